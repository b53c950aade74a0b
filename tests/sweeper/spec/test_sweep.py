"""The definition of a sweep, and the registry that finds sweeps by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import search_spaces
from sweeper import run
from sweeper.errors import SpecError
from sweeper.spec import Grid, Grids, Metric, Sweep, registry
from sweeper.spec.views import Heatmap, Table, Trajectory

GRID = Grid(fixed={"method": "vje"}, axes={"beta": (0.0, 1.0)})
AUROC, KNN, LOSS = Metric("auroc", "maximize"), Metric("knn_z", "maximize", percent=True), Metric("loss", "minimize")
HEATMAP = Heatmap(AUROC, "beta", "nu")
TABLE = Table("accuracy", ("method",), (KNN, LOSS))


def sweep(**parts: Any) -> Sweep:
    return Sweep("about", **{"presets": {"paper": GRID, "digits": GRID}, "heatmaps": (HEATMAP,), **parts})


def test_the_first_preset_is_the_default_and_others_go_by_name() -> None:
    small = Grids((GRID, GRID))
    made = sweep(presets={"paper": GRID, "digits": small})
    assert made.preset(None) == ("paper", GRID) and made.preset("digits") == ("digits", small)
    with pytest.raises(SpecError, match=r"no preset 'digit' \(did you mean 'digits'\?\); there are: paper, digits"):
        made.preset("digit")


@pytest.mark.parametrize("parts", [{"presets": {}}, {"heatmaps": ()}, {"presets": {}, "heatmaps": ()}])
def test_a_sweep_has_presets_and_shows_something(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must have at least one preset, and for grids one heatmap or table"):
        sweep(**parts)
    assert sweep(heatmaps=(), tables=(TABLE,)).headline("paper") == KNN


@pytest.mark.parametrize("parts", [{"breakdown": "seed"}, {"correlations": (("auroc", "loss"),)}])
def test_breakdown_and_correlations_are_of_a_heatmap(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a breakdown or correlations need a heatmap, but the sweep has none"):
        sweep(heatmaps=(), tables=(TABLE,), **parts)
    assert sweep(**parts).heatmaps == (HEATMAP,)


def test_views_of_one_kind_have_different_names() -> None:
    """Otherwise they would write the same file."""
    line = Trajectory("accuracy", (KNN,), ("method",))
    assert sweep(tables=(TABLE,), trajectories=(line,)).trajectories == (line,)
    for parts, kind in (({"tables": (TABLE, TABLE)}, "table"), ({"trajectories": (line, line)}, "trajectory")):
        message = f"the names of a sweep's {kind} views must differ, but got accuracy, accuracy"
        with pytest.raises(SpecError, match=message):
            sweep(**parts)


@pytest.mark.parametrize("empty", [{"rows": ()}, {"metrics": ()}])
def test_a_table_has_rows_and_metrics(empty: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^table t must have rows and metrics, but lacks one$"):
        Table(**{"name": "t", "rows": ("nu",), "metrics": (KNN,), **empty})


@pytest.mark.parametrize(
    ("columns", "cells", "message"),
    [
        (
            None,
            {(3.0, "a"): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 1, but got \(3.0, 'a'\)",
        ),
        (None, {3.0: {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got 3.0"),
        (None, {"3": {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got '3'"),
        (
            "dataset",
            {(3.0,): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 2, but got \(3.0,\)",
        ),
        (
            None,
            {(3.0,): {"knn_mu": 1.0}},
            r"table t has a published knn_mu for \(3.0,\), but its metrics are: knn_z, loss",
        ),
    ],
)
def test_published_figures_have_a_place(columns: str | None, cells: dict[Any, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}$"):
        Table("t", ("nu",), (KNN, LOSS), columns=columns, published={"paper": cells})


def test_published_figures_that_have_a_place() -> None:
    Table("t", ("nu",), (KNN, LOSS), published={"paper": {(3.0,): {"knn_z": 1.0}, (1.0,): {}}})
    Table("t", ("nu", "terms"), (KNN,), columns="dataset", published={"paper": {(3.0, "kl", "a"): {"knn_z": 1.0}}})


def test_a_preset_has_the_tables_of_its_own_and_those_of_all() -> None:
    tables = (Table("all", ("nu",), (KNN,)), Table("far", ("nu",), (KNN,), presets=("paper",)))
    of_both = sweep(tables=tables)
    assert of_both.of("paper") == of_both
    assert [table.name for table in of_both.of("digits").tables] == ["all"]
    assert of_both.of("digits").heatmaps == (HEATMAP,)
    only = sweep(heatmaps=(), tables=tables[1:])
    with pytest.raises(SpecError, match="at least one preset, and for grids one heatmap or table"):
        only.of("digits")


def test_the_first_view_says_which_trial_is_best() -> None:
    assert sweep(tables=(TABLE,)).headline("paper") == AUROC
    assert sweep(heatmaps=(), tables=(Table("t", ("nu",), (LOSS, KNN)), TABLE)).headline("paper") == LOSS


def test_all_that_is_shown_and_over_what() -> None:
    shown = sweep(
        heatmaps=(HEATMAP, Heatmap(LOSS, "beta", "seed")),
        tables=(TABLE, Table("t", ("nu",), (KNN,), columns="dataset")),
        trajectories=(Trajectory("lines", (LOSS, Metric("knn_mu", "maximize")), ("method", "width")),),
    ).shown
    assert {name: set(axes) for name, axes in shown.items()} == {
        "auroc": {"beta", "nu"},
        "loss": {"beta", "seed", "method", "width"},
        "knn_z": {"method", "nu", "dataset"},
        "knn_mu": {"method", "width"},
    }


def test_views_go_to_folders_of_their_kind() -> None:
    line = Trajectory("lines", (KNN,), ("method", "width"))
    made = sweep(tables=(TABLE,), trajectories=(line,))
    assert made.views == {"heatmaps": (HEATMAP,), "tables": (TABLE,), "trajectories": (line,)}
    assert line.key == "method, width"


def test_modules_that_begin_with_an_underscore_are_no_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_file_that_makes_no_sweep_is_refused_in_one_line(name: str, folder_of_sweeps: Path) -> None:
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


def test_a_broken_sweep_spoils_neither_another_nor_the_list(
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


def test_a_preset_is_a_grid_or_a_search() -> None:
    with pytest.raises(
        SpecError, match=r"^preset 'paper' must be a Grid, Grids, Search or Searches, but is of type dict$"
    ):
        sweep(presets={"paper": {"beta": (0.0, 1.0)}})


def test_every_sweep_that_ships_is_found_by_its_name() -> None:
    assert "anomaly_grid" in registry.names()
    for name in registry.names():
        assert isinstance(registry.find(name), Sweep)


def test_an_unknown_sweep_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(
        SpecError, match=r"no sweep 'anomaly_gird' \(did you mean 'anomaly_grid'\?\); there are: .*grid"
    ):
        registry.find("anomaly_gird")
    with pytest.raises(SpecError, match=r"no sweep 'os'; there are"):
        registry.find("os")
