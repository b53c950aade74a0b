"""Sweeps are found by name, and a file that defines none is refused in one line."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import search_spaces
import sweeper.run as run
from sweeper.errors import SpecError
from sweeper.spec import Sweep, registry


def test_modules_that_begin_with_an_underscore_are_not_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_shared", "__hidden", "mine"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('a name is not read')")
    monkeypatch.setattr(search_spaces, "__path__", [str(tmp_path)])
    assert registry.names() == ["mine"]
    with pytest.raises(SpecError, match=r"^no sweep '_shared'; there are: mine$"):
        registry.find("_shared")


BROKEN = {
    "syntax": ("SWEEP = (", r"search_spaces/syntax\.py, line 1: SyntaxError: '\(' was never closed"),
    "imports": ("\nimport no_such_module", r"search_spaces/imports\.py, line 2: ModuleNotFoundError: No module named "),
    "raises": ("x = 1\ny = x / 0", r"search_spaces/raises\.py, line 2: ZeroDivisionError: division by zero$"),
    "leaves": ("raise SystemExit(3)", r"search_spaces/leaves\.py, line 1: SystemExit: 3$"),
    "refused": (
        "from sweeper.spec import Metric\nKNN = Metric('knn_z', 'max')",
        r"search_spaces/refused\.py, line 2: the direction of a metric must be 'maximize', 'minimize' or None, "
        "but knn_z has 'max'$",
    ),
    "empty": ("", r"search_spaces/empty\.py must define SWEEP, a sweeper\.spec\.Sweep, but defines none$"),
    "wrong": ("SWEEP = {}", r"search_spaces/wrong\.py must define SWEEP, .*, but defines SWEEP of type dict$"),
}
"""Name of a sweep -> content of its file, and a pattern of the error's reason."""


@pytest.fixture
def folder_of_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of `search_spaces`. Modules imported from it are forgotten afterwards."""
    monkeypatch.setattr(search_spaces, "__path__", [str(tmp_path)])
    importlib.invalidate_caches()
    imported_before = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - imported_before:
        if module.startswith("search_spaces."):
            del sys.modules[module]


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_without_a_sweep_is_refused_in_one_line(name: str, folder_of_sweeps: Path) -> None:
    text, reason = BROKEN[name]
    (folder_of_sweeps / f"{name}.py").write_text(text)
    with pytest.raises(SpecError, match=f"^sweep '{name}' cannot be read: {reason}") as refused:
        registry.find(name)
    assert "\n" not in str(refused.value)


GOOD = """
from sweeper.spec import Grid, Heatmap, Metric, Sweep
SWEEP = Sweep(
    "a good one", {"paper": Grid({}, {"beta": (1.0, 2.0)})}, (Heatmap(Metric("auroc", "maximize"), "a", "b"),)
)
"""


def test_a_broken_sweep_affects_neither_others_nor_the_list(
    folder_of_sweeps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder_of_sweeps / "a_broken.py").write_text("SWEEP = (")
    (folder_of_sweeps / "good.py").write_text(GOOD)
    assert registry.find("good").about == "a good one"
    assert run.main(["--list"]) == 0
    out, err = capsys.readouterr()
    assert out == "good: a good one\n  presets: paper (2 trials)\n"
    assert err.startswith("error: sweep 'a_broken' cannot be read: search_spaces/a_broken.py, line 1: SyntaxError: ")
    assert err.count("\n") == 1
    assert run.main(["a_broken", "--plan"]) == 2


def test_every_sweep_that_ships_is_found_by_its_name() -> None:
    assert "anomaly_grid" in registry.names()
    for name in registry.names():
        assert isinstance(registry.find(name), Sweep)


def test_an_unknown_sweep_is_refused_with_the_nearest_or_all() -> None:
    with pytest.raises(
        SpecError, match=r"no sweep 'anomaly_gird' \(did you mean 'anomaly_grid'\?\); --list shows all$"
    ):
        registry.find("anomaly_gird")
    with pytest.raises(SpecError, match=r"no sweep 'os'; there are"):
        registry.find("os")


def test_a_file_that_is_no_python_file_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text("# Not Python")
    with pytest.raises(
        SpecError, match=r"^sweep 'README.md' cannot be read: the name of a Python file must end with .py"
    ):
        registry.find("README.md")
