"""Sweeps by name, and the user's own by file or module.

A cluster is sent those of the user's modules that have been imported, packages as a whole.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from grimp import build_graph

import search_spaces
from sweeper.commands import run
from sweeper.definition import Sweep, registry, user_code
from sweeper.errors import SpecError
from tests.test_imports import PACKAGES
from tests.user_files import user_folder


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
        "from sweeper import Metric\nKNN = Metric('knn_z', 'max')",
        r"search_spaces/refused\.py, line 2: the direction of a metric must be 'maximize', 'minimize' or None, "
        "but knn_z has 'max'$",
    ),
    "empty": ("", r"search_spaces/empty\.py must define SWEEP, a sweeper\.Sweep, but defines none$"),
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
from sweeper import Grid, Heatmap, Metric, Sweep
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
    with pytest.raises(SpecError, match=r"no sweep 'os'; --list shows all"):
        registry.find("os")


def test_a_file_that_is_no_python_file_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").write_text("# Not Python")
    with pytest.raises(
        SpecError, match=r"^sweep 'README.md' cannot be read: the name of a Python file must end with .py"
    ):
        registry.find("README.md")


__all__ = ["user_folder"]

SWEEP = """
from sweeper import Grid, Heatmap, Metric, Sweep

SWEEP = Sweep(
    "mine",
    {"tiny": Grid({"method": "vje"}, {"beta": (1.0, 2.0)})},
    (Heatmap(Metric("m", "maximize"), "a", "b"),),
)
"""
NAMED = SWEEP.replace(")\n", '    name="chosen",\n)\n')


@pytest.mark.parametrize(
    ("file", "reference", "name"),
    [
        ("my_sweep.py", "my_sweep.py", "my_sweep"),
        ("deep/my-sweep.py", "deep/my-sweep.py", "my-sweep"),
        ("my_sweep.py", "my_sweep:SWEEP", "my_sweep"),
        ("package/my_sweep.py", "package.my_sweep", "my_sweep"),
        ("package/my_sweep.py", "package.my_sweep:SWEEP", "my_sweep"),
    ],
)
def test_a_sweep_is_named_by_its_file_or_by_itself(user_folder: Path, file: str, reference: str, name: str) -> None:
    path = user_folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(SWEEP)
    found = registry.find(reference)
    assert found.name == name and found.about == "mine"


def test_a_name_of_its_own_counts(user_folder: Path) -> None:
    (user_folder / "my_sweep.py").write_text(NAMED)
    assert registry.find("my_sweep.py").name == "chosen"
    assert registry.find(str(user_folder / "my_sweep.py")).name == "chosen"


def test_no_sweep_is_named_as_the_list_of_all_sweeps(user_folder: Path) -> None:
    (user_folder / "index.py").write_text(SWEEP)
    with pytest.raises(SpecError, match=r"must not be 'index', .* rename the file"):
        registry.find("index.py")
    (user_folder / "index.py").write_text(NAMED)
    assert registry.find("index.py").name == "chosen"


def test_another_attribute_of_a_file_is_another_sweep(user_folder: Path) -> None:
    (user_folder / "my_sweep.py").write_text(SWEEP + "\nLONG = SWEEP")
    assert registry.find("my_sweep.py:LONG").name == "my_sweep.LONG"
    assert registry.find("my_sweep:LONG").name == "my_sweep.LONG"


def test_a_file_is_read_as_it_is_now_and_imports_its_neighbours(user_folder: Path) -> None:
    (user_folder / "sub").mkdir()
    file = user_folder / "sub/my_sweep.py"
    file.write_text(SWEEP)
    registry.find("sub/my_sweep.py")
    (user_folder / "sub/neighbour_of_mine.py").write_text("ABOUT = 'changed'")
    file.write_text("from neighbour_of_mine import ABOUT\n" + SWEEP.replace('"mine"', "ABOUT"))
    assert registry.find("sub/my_sweep.py").about == "changed"


def test_the_file_of_a_sweep_that_ships_is_that_sweep() -> None:
    folder = Path(sys.modules["search_spaces"].__path__[0])
    assert registry.find(str(folder / "anomaly_grid.py")).name == registry.find("anomaly_grid").name == "anomaly_grid"


@pytest.mark.parametrize(
    ("files", "reference", "law"),
    [
        ({}, "no/such.py", "cannot be read: no/such.py does not exist; a sweep of your own is a Python file"),
        ({"folder/x.py": ""}, "folder/", "cannot be read: folder is a folder; a sweep of your own is a Python file"),
        ({"text/mine.txt": ""}, "text/mine.txt", "the name of a Python file must end with .py"),
        ({"mine.py": ""}, "mine.py", "mine.py must define SWEEP, a sweeper.Sweep, but defines none"),
        ({"mine.py": "SWEEP = 3"}, "mine.py", "but defines SWEEP of type int"),
        ({"mine.py": "a = 1\nb = a / 0"}, "mine.py", "mine.py, line 2: ZeroDivisionError: division by zero"),
        ({"mine.py": "\nx = ("}, "mine.py", "mine.py, line 2: SyntaxError: '(' was never closed"),
        ({"mine.py": "import other", "other.py": "\n1 / 0"}, "mine.py", "other.py, line 2: ZeroDivisionError"),
        ({"package/mine.py": "1 / 0"}, "package.mine", "mine.py, line 1: ZeroDivisionError"),
        ({}, "no.such:SWEEP", "cannot be read: ModuleNotFoundError: No module named 'no'"),
        ({}, "no such.thing", "must be a name (--list shows all), a file (path/to/my_sweep.py) or a module"),
        ({"random.py": SWEEP}, "random.py", "there is another module 'random'; rename random.py"),
        ({"torch.py": SWEEP}, "torch.py", "there is another module 'torch'; rename torch.py"),
        ({"mine.py": SWEEP, "numpy/__init__.py": ""}, "mine.py", "numpy/__init__.py hides numpy; rename it"),
        ({"anomaly_grid.py": SWEEP}, "anomaly_grid.py", "must not be that of one that ships"),
        ({"mine.py": NAMED.replace("chosen", "a/b")}, "mine.py", "line 4: the name of a sweep must consist of"),
        ({"mine.py": SWEEP}, "mine", "no sweep 'mine'"),
        ({"mine.py": SWEEP}, "mine", "; to run the file mine.py, write mine.py"),
    ],
)
def test_what_is_no_sweep_is_refused_in_one_line(
    user_folder: Path, files: dict[str, str], reference: str, law: str
) -> None:
    import torch  # noqa: F401  a module that a user's file could hide

    for name, text in files.items():
        (user_folder / name).parent.mkdir(exist_ok=True)
        (user_folder / name).write_text(text)
    with pytest.raises(SpecError) as refused:
        registry.find(reference)
    assert law in str(refused.value) and "\n" not in str(refused.value)
    assert sys.modules["random"].__file__ != str(user_folder / "random.py")


def test_no_library_of_the_project_can_be_hidden() -> None:
    """But `datasets`: that is a usual name of a user's own module, and an extra."""
    graph = build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    imported = {name.partition(".")[0] for name in graph.modules} - {*PACKAGES, *sys.stdlib_module_names, "datasets"}
    assert set(user_code.LIBRARIES) == imported


def test_only_imported_modules_of_the_users_folders_are_sent(user_folder: Path) -> None:
    for name in ("package_of_mine/inner.py", "package_of_mine/other.py", "module_of_mine.py", "unused_of_mine.py"):
        (user_folder / name).parent.mkdir(exist_ok=True)
        (user_folder / name).write_text("")
    assert user_code.modules() == ()
    user_code.search_folder(user_folder)
    assert user_code.modules() == () and user_code.folders() == (str(user_folder),)
    importlib.import_module("package_of_mine.inner")
    importlib.import_module("module_of_mine")
    assert user_code.modules() == (str(user_folder / "module_of_mine.py"), str(user_folder / "package_of_mine"))


def test_this_projects_packages_are_not_the_users(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cluster", raising=False)  # pytest imports the folder as it collects tests/cluster
    user_code.search_folder(Path(user_code.__file__).parents[2])
    importlib.import_module("search_spaces")
    assert user_code.modules() == ()


def test_a_folder_is_searched_once_and_first(user_folder: Path) -> None:
    user_code.search_folder(user_folder)
    user_code.search_folder(user_folder)
    assert sys.path[0] == str(user_folder) and sys.path.count(str(user_folder)) == 1


def test_modules_may_be_imported_meanwhile(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a thread does while Ray starts."""
    look, late = user_code._origin, ModuleType("late_module")

    def look_while_another_imports(module: ModuleType) -> Path | None:
        monkeypatch.setitem(sys.modules, late.__name__, late)
        return look(module)

    monkeypatch.setattr(user_code, "_origin", look_while_another_imports)
    assert user_code.modules() == ()
