import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeper.definition import Grid, Heatmap, Metric, Selection, Sweep, Table, Trajectory, registry
from sweeper.definition.space import change_space, parts_of
from sweeper.planning.cohorts import enumerate_trials
from sweeper.report import publish, tables, trajectories
from sweeper.report.figures import Shown, figures_of
from sweeper.report.selections import in_order, labelled, narrowed
from sweeper.storage.files import Files
from sweeper.storage.rows import plain_value
from tests.cases import for_each
from trainables.config import keys, resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.training.metric_names import metric_names

ACCURACY = Metric("accuracy", "maximize")
ROWS = pd.DataFrame(
    {
        "trial_id": [*"abcd"],
        "method": ["gje", "gje", "hsic", "hsic"],
        "ema": [0.0, 0.9, None, None],
        "weight": [0.0, 1.0, 0.0, 1.0],
        "accuracy": [0.1, 0.9, 0.2, 0.8],
    }
)
SELECTIONS = (
    Selection({"failure": "no entropy", "state": "remedied"}, {"method": "hsic", "weight": 1.0}),
    Selection({"failure": "no entropy", "state": "collapsed"}, {"method": "hsic", "weight": 0}),
    Selection({"failure": "trap", "state": "remedied"}, {"method": "hsic", "weight": 1.0}),
    Selection({"failure": "trap", "state": "collapsed"}, {"method": "gje", "ema": 0.0}),
)


def test_rows_come_in_the_order_of_the_preset() -> None:
    grids = (Grid({"method": "b"}, {"k": (3, 1)}), Grid({"method": "a"}, {"k": (2,)}))
    rows = pd.DataFrame({"method": ["a", "x", "b", "b"], "k": [2, 9, 1, 3]})
    assert in_order(grids, rows, ("method", "k"))["k"].tolist() == [3, 1, 2, 9]


def test_rows_are_those_of_each_selection_in_turn_with_its_labels() -> None:
    rows = labelled(ROWS, SELECTIONS)
    assert list(zip(rows["trial_id"], rows["failure"], rows["state"], strict=True)) == [
        ("d", "no entropy", "remedied"),
        ("c", "no entropy", "collapsed"),
        ("d", "trap", "remedied"),
        ("a", "trap", "collapsed"),
    ]
    assert [*rows["state"].drop_duplicates().sort_values()] == ["remedied", "collapsed"]
    assert labelled(ROWS, ()) is ROWS and "failure" not in ROWS


@for_each(
    ("where", "selected"),
    [
        ({"ema": None}, "cd"),
        ({"ema": 0.9}, "b"),
        ({}, "abcd"),
        ({"missing": 1}, ""),
        ({"missing": None, "method": "gje"}, "ab"),
        ({"weight": True}, "bd"),
    ],
)
def test_null_equals_none_and_a_missing_column_is_null(where: dict, selected: str) -> None:
    assert [*labelled(ROWS, [Selection({"x": "y"}, where)])["trial_id"]] == [*selected]


@pytest.mark.parametrize("dtype", ["boolean", "Int64", "object"])
def test_columns_with_null_of_every_type_are_compared(dtype: str) -> None:
    rows = pd.DataFrame({"key": pd.array([1, None, 0], dtype=dtype)})
    assert [*labelled(rows, [Selection({"x": "y"}, {"key": 1})])["key"]] == [1]


def test_a_line_has_the_reports_of_all_its_trials_also_of_those_of_other_lines() -> None:
    history = pd.DataFrame({"trial_id": [*"abcd"], "epoch": 1, "metric": "accuracy", "value": [0.1, 0.9, 0.2, 0.8]})
    trajectory = Trajectory("t", (ACCURACY,), by=("failure", "state"), selections=SELECTIONS)
    points = trajectories.average(history, labelled(ROWS, trajectory.selections), trajectory)
    assert dict(zip(points["failure, state"], points["mean"], strict=True)) == {
        "no entropy, remedied": 0.8,
        "no entropy, collapsed": 0.2,
        "trap, remedied": 0.8,
        "trap, collapsed": 0.1,
    }


def test_figures_of_a_sweep_show_their_selections(tmp_path: Path) -> None:
    sweep = Sweep(
        about="",
        presets={"paper": Grid({}, {})},
        figures=(
            Heatmap(ACCURACY, "failure", "state", selections=SELECTIONS),
            Table("collapses", ("failure",), (ACCURACY,), columns="state", selections=SELECTIONS),
        ),
    )
    text = publish.write(Files(tmp_path), publish.Subject("s", sweep, "paper"), ROWS)
    cells = pd.read_parquet(tmp_path / "heatmaps/s/paper/accuracy.parquet").set_index(["failure", "state"])["mean"]
    assert cells.to_dict() == {
        ("no entropy", "collapsed"): 0.2,
        ("no entropy", "remedied"): 0.8,
        ("trap", "collapsed"): 0.1,
        ("trap", "remedied"): 0.8,
    }
    assert "remedied: accuracy" in text and np.array_equal(
        pd.read_parquet(tmp_path / "tables/s/paper/collapses.parquet")["mean"], [0.8, 0.2, 0.8, 0.1]
    )


GRIDS = (
    Grid({"method": "gje"}, {"ema": (0.0, 0.9), "dataset": ("digits", "mnist")}),
    Grid({"method": "hsic", "weight": 1.0, "dataset": "digits"}, {}),
)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([("gje", "digits"), ("gje", "mnist"), ("hsic", "digits")], {}),
        ([("gje", "digits"), ("hsic", "digits")], {"dataset": {"digits"}}),
        ([("gje", "digits"), ("gje", "mnist")], {"method": {"gje"}}),
        ([("hsic", "digits")], {"method": {"hsic"}, "dataset": {"digits"}}),
        ([("gje", "digits"), ("gje", "folder"), ("hsic", "digits")], {"dataset": {"digits", "folder"}}),
    ],
)
def test_an_axis_is_narrowed_where_the_grids_have_values_that_no_row_has(found: list, expected: dict) -> None:
    rows = pd.DataFrame(found, columns=["method", "dataset"])
    assert narrowed(GRIDS, rows, ("method", "dataset"), ()) == expected


def test_an_axis_that_no_grid_has_is_never_narrowed_and_one_that_no_row_has_is_null() -> None:
    rows = pd.DataFrame({"method": ["gje", "hsic"]})
    assert narrowed(GRIDS, rows, ("method", "views"), ()) == {}
    assert narrowed(GRIDS, rows, ("ema",), ()) == {"ema": {None}}
    assert narrowed((), rows, ("method",), ()) == {}, "a search has no grids"


def test_labels_are_narrowed_to_those_whose_trials_were_asked_for() -> None:
    """A label of which no grid has trials is no narrowing: only the paper has it."""
    selections = (
        Selection({"failure": "trap"}, {"method": "gje", "ema": 0.0}),
        Selection({"failure": "no entropy"}, {"method": "hsic"}),
        Selection({"failure": "other"}, {"method": "simclr"}),
    )
    rows = pd.DataFrame({"trial_id": ["a", "b"], "method": ["gje", "hsic"], "ema": [0.0, None], "dataset": "digits"})
    assert narrowed(GRIDS, labelled(rows, selections), ("failure",), selections) == {}
    assert narrowed(GRIDS, labelled(rows[:1], selections), ("failure",), selections) == {"failure": {"trap"}}


CONTENT = ("mlp_probe_and_knn", "linear_probe_and_mixture", "clusters", "clusters_in_batches", "probes_at_best_epoch")


def rows_of(sweep: Sweep, preset: str, **axes: tuple[Any, ...]) -> pd.DataFrame:
    """Rows of all trials of a request that narrows these axes of a preset, each metric with a value."""
    parts = parts_of(change_space(sweep.presets[preset], {}, axes, keys))
    combinations = (combination for part in parts for combination in part.combinations())
    trials = enumerate_trials(combinations, resolve)
    return pd.DataFrame(
        [
            {
                **trial.config,
                **{name: 0.5 for name in metric_names(resolve(trial.config), classes(str(trial.config["dataset"])))},
                "trial_id": trial.id,
                "status": "finished",
            }
            for trial in trials
        ]
    )


def classes(dataset: str) -> int:
    return DATASETS[dataset].declaration.classes if dataset in DATASETS else 0


def shown_tables(sweep: Sweep, preset: str, rows: pd.DataFrame, folder: Path) -> tuple[str, dict[str, pd.DataFrame]]:
    """The text, and the tables in the store. The page has the same tables and cells."""
    own = sweep.for_preset(preset)
    text = publish.write(Files(folder), publish.Subject(sweep.name, own, preset), rows)
    stored = {path.stem: pd.read_parquet(path) for path in (folder / "tables").rglob("*.parquet")}
    shown = Shown(figures_of(own, preset), rows, pd.DataFrame, ())
    on_page = {table.name: tables.on_page(shown, table) for table in own.of_kind(Table)}
    assert {name for name, table in on_page.items() if table} == set(stored)
    for table in own.of_kind(Table):
        if drawn := on_page[table.name]:
            cells = stored[table.name]
            assert all(len(values) == len(cells) for values in drawn["cells"].values())
            for axis in table.axes:
                assert set(drawn["cells"][axis]) == set(map(plain_value, cells[axis]))
    return text, stored


@pytest.mark.slow
def test_a_request_for_some_methods_and_one_data_set_shows_these_alone(tmp_path: Path) -> None:
    sweep = registry.find("simvae_content")
    rows = rows_of(sweep, "paper", method=("vae", "simvae"), dataset=("mnist",))
    text, stored = shown_tables(sweep, "paper", rows, tmp_path)
    assert set(stored) == set(CONTENT)
    for cells in stored.values():
        assert set(cells["method"]) == {"vae", "simvae"} and set(cells["dataset"]) == {"mnist"}
        assert (cells["count"] == 3).all()
    assert "(paper 97.80" in text
    for absent in ("simclr", "vicreg", "cifar10", "celeba", "no trial has a value yet"):
        assert absent not in text.split("best probe_mlp")[0]


def test_a_whole_request_keeps_the_rows_that_only_the_paper_has() -> None:
    """VJE's paper has baselines on ImageNet that no trial is."""
    sweep = registry.find("imagenet_linear")
    (table,) = sweep.of_kind(Table)
    assert len(table.published["paper"]) == 6
    rows = pd.DataFrame({"method": ["vje"], "probe_z": [0.6], "trial_id": ["a"]})
    found = tables.on_page(Shown(figures_of(sweep, "paper"), rows, pd.DataFrame, ()), table)
    assert found and {"simclr", "byol", "swav"} < set(found["cells"]["method"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "axes", "wanted"),
    [
        ("ssl_benchmark", {"method": ("simclr",)}, {"accuracy", "embeddings"}),
        ("ssl_cifar10", {"method": ("random",)}, {"accuracy", "weighted_knn"}),
        ("collapse_ablation", {"method": ("random",)}, {"untrained"}),
        ("collapse_ablation", {"method": ("hsic",)}, {"collapse"}),
        ("synthetic_alignment", {"method": ("gmje_em",), "dataset": ("synthetic_b",)}, {"densities"}),
    ],
)
def test_no_table_is_empty_and_no_row_was_not_asked_for(
    name: str, axes: dict[str, tuple[Any, ...]], wanted: set[str], tmp_path: Path
) -> None:
    warnings.simplefilter("error", UserWarning)  # of figures that cannot be shown
    sweep = registry.find(name)
    rows = rows_of(sweep, "paper", **axes)
    text, stored = shown_tables(sweep, "paper", rows, tmp_path)
    assert set(stored) == wanted
    for cells in stored.values():
        assert (cells["count"] + cells["missing"] > 0).any()
        for axis, asked in axes.items():
            if axis in cells:
                assert set(cells[axis]) == set(asked)
    assert not any(f"\n{table.name}: " in f"\n{text}" for table in sweep.of_kind(Table) if table.name not in wanted)
