"""The law of every grouping of rows by keys: null is a value of a key, and a cell has the rows that have its values."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.claims import Side
from sweeper.claims.samples import SweepRows, sample
from sweeper.definition import Grid, Heatmap, Metric, Ranking, Sweep, Table, Trajectory, Value
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report import heatmaps, rankings, tables, trajectories
from sweeper.report.figures import Shown, figures_of
from sweeper.report.selections import in_order
from sweeper.storage.files import Files
from sweeper.storage.rows import Columns, plain_value, table_of

VALUES: Mapping[type, Sequence[Value]] = {
    float: (0.1, 2.0, math.inf), int: (1, 5, 30), bool: (False, True), str: ("a", "b"),
}  # fmt: skip
AXES = ("first", "second")
KNN = Metric("knn_z", "maximize")
TABLE = Table("table", ("first",), (KNN,), "second")
LINES = Trajectory("lines", (KNN,), AXES)
RANKING = Ranking(name="ranking", rows=("first",), metric=KNN, tasks="second", over="tasks", reference=("none",))
Row = dict[str, Any]
Key = tuple[Any, ...]


@st.composite
def stored(draw: st.DrawFn) -> tuple[list[Row], pd.DataFrame]:
    """Rows with nulls in their keys and seeds, as they are and as they come out of a store."""
    kinds = {axis: draw(st.sampled_from(sorted(VALUES, key=str))) for axis in AXES}
    keys = [st.sampled_from((None, *VALUES[kinds[axis]])) for axis in AXES]
    drawn = st.tuples(*keys, st.sampled_from((None, 0, 1)), st.integers(0, 99))
    rows = [
        {"trial_id": f"t{index}", "status": "finished", "knn_z": value / 100}
        | {"first": first, "second": second, "seed": seed}
        for index, (first, second, seed, value) in enumerate(draw(st.lists(drawn, min_size=1, max_size=16)))
    ]
    return rows, table_of(rows, Columns({**kinds, "seed": int}, ("knn_z",))).to_pandas()


NONE = Repeats((), ())


def means(rows: Sequence[Row], keys: Sequence[str]) -> dict[Key, float]:
    """The mean of the rows of each cell, in plain Python."""
    cells: dict[Key, list[float]] = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in keys), []).append(row["knn_z"])
    return {key: sum(values) / len(values) for key, values in cells.items()}


def known(cells: pd.DataFrame) -> dict[Key, float]:
    """The mean of each cell with a value, none of which is there twice."""
    keys = zip(*(map(plain_value, cells[axis]) for axis in AXES), strict=True)
    found = [(key, mean) for key, mean in zip(keys, cells["mean"], strict=True) if not math.isnan(mean)]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.slow
@settings(max_examples=40)
@given(stored())
def test_a_cell_has_the_mean_of_the_rows_with_its_values(drawn: tuple[list[Row], pd.DataFrame]) -> None:
    rows, frame = drawn
    expected = means(rows, AXES)
    cells = heatmaps.pivot(frame, "knn_z", AXES, NONE)
    assert known(cells) == pytest.approx(expected)
    for axis in AXES:
        values = [*dict.fromkeys(map(plain_value, cells[axis]))]
        assert values == sorted({row[axis] for row in rows}, key=lambda value: (value is None, value or 0))
    assert known(tables.average(frame, TABLE, "p", repeats=NONE)) == pytest.approx(expected)

    history = frame[["trial_id", "knn_z"]].rename(columns={"knn_z": "value"}).assign(metric="knn_z", epoch=1)
    points = trajectories.average(history, frame, LINES, repeats=NONE)
    assert points[LINES.key].is_unique and sorted(points["mean"]) == pytest.approx(sorted(expected.values()))

    ranked = rankings.rank(frame, RANKING, "p")
    tasks = {first: sum(own == first for own, _ in expected) for first, _ in expected}
    assert dict(zip(map(plain_value, ranked["first"]), ranked["tasks"], strict=True)) == tasks


@pytest.mark.slow
@settings(max_examples=40)
@given(stored())
def test_a_null_seed_is_a_replicate(drawn: tuple[list[Row], pd.DataFrame]) -> None:
    rows, frame = drawn
    seeds = means(rows, (*AXES, "seed"))
    for cell in heatmaps.pivot(frame, "knn_z", AXES, SEEDS).to_dict("records"):
        own = [mean for (*key, _), mean in seeds.items() if key == [plain_value(cell[axis]) for axis in AXES]]
        assert cell["replicates"] == len(own) and (not own or cell["mean"] == pytest.approx(sum(own) / len(own)))


@pytest.mark.slow
@settings(max_examples=40)
@given(stored())
def test_a_side_of_a_claim_has_a_column_for_each_cell(drawn: tuple[list[Row], pd.DataFrame]) -> None:
    rows, frame = drawn
    sweep = Sweep("", {"p": Grid({}, {})}, figures=(TABLE,))
    source = SweepRows(sweep, "p", frame, frame, pd.DataFrame())
    for keys in (("first",), AXES):
        expected = means(rows, keys)
        values = sample(Side("knn_z", {}, "largest", "+".join(keys)), source, frame.assign(value=frame["knn_z"]), ())
        assert sorted(values.means_MNK[0, 0]) == pytest.approx(sorted(expected.values()))
        assert len(keys) > 1 or {(value,) for value in values.columns} == {*expected}


def test_rows_of_a_page_have_the_order_of_the_grids() -> None:
    grid = Grid({}, {"patience": (30, None, 5)})
    rows = [{"trial_id": str(value), "status": "finished", "patience": value} for value in (5, 30, None)]
    frame = table_of(rows, Columns({"patience": int}, ())).to_pandas()
    assert in_order((grid,), frame, ("patience",))["trial_id"].tolist() == ["30", "None", "5"]


@pytest.mark.usefixtures("undrawn")
def test_a_published_figure_of_null_is_found(tmp_path: Path) -> None:
    rows = pd.DataFrame({"lr": [0.1, 0.2], "patience": [5, None], "knn_z": [0.5, 0.6]})
    heatmap = Heatmap(KNN, "lr", "patience", published={"p": {(0.2, None): 0.7, (0.1, 5): 0.4}})
    shown = Shown(figures_of(Sweep("", {"p": Grid({}, {})}, (heatmap,)), "p"), rows, pd.DataFrame, ())
    cells = heatmaps.write(Files(tmp_path), "g", shown, heatmap, rows)
    assert cells["published"].dropna().tolist() == [0.4, 0.7]
