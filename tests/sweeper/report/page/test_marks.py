"""The cells that a page marks are those that the terminal and the Parquet files mark."""

import io
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.definition import Grid, Heatmap, Metric, Selection, Sweep, Table, Value
from sweeper.report import publish
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.marks import positions
from sweeper.report.page.contents import collect
from sweeper.report.page.findings import labelled_name
from sweeper.report.selections import labelled
from sweeper.results.sentences import ALIKE, BEST
from sweeper.storage.layout import figure_path
from sweeper.storage.load import load
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store

KNN, LOSS = Metric("knn_z", "maximize"), Metric("loss", "minimize")
AXES: Mapping[str, tuple[Value, ...]] = {"method": ("vje", "byol"), "lr": (0.1, 0.2, None), "seed": (0, 1, 2)}
SELECTIONS = (Selection({"rate": "small"}, {"lr": 0.1}), Selection({"rate": "default"}, {"lr": None}))
SWEEP = Sweep(
    "marks",
    {"p": Grid({}, AXES)},
    (
        Heatmap(KNN, "method", "lr"),
        Heatmap(LOSS, "method", "rate", selections=SELECTIONS),
        Table("by_rate", ("lr",), (KNN, LOSS), "method"),
        Table("selected", ("rate",), (LOSS,), "method", selections=SELECTIONS),
    ),
    name="marks",
)
COLUMNS = Columns({"method": str, "lr": float, "seed": int}, ("knn_z", "loss", "val_knn_z"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**31), st.floats(0, 2), st.integers(0, 1))
def test_a_page_marks_the_cells_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, seed: int, difference: float, without: int
) -> None:
    """Settings whose means differ by up to two deviations of a seed. What all have in common of a seed is larger than
    that: only who pairs the seeds finds the settings that are not told apart from the best."""
    rng, store = np.random.default_rng(seed), Store(tmp_path_factory.mktemp("marks"))
    of_seed = 10 * rng.normal(size=3)
    rows = [
        {"trial_id": rng.bytes(8).hex(), "method": method, "lr": lr, "seed": number, "status": "finished"}
        | {"preset": "p", "changes": "", "cohort": "c", "cohort_size": 1}
        | {name: of_seed[number] + rng.normal(difference * index) for name in COLUMNS.metrics}
        for index, (method, lr) in enumerate((method, lr) for method in AXES["method"] for lr in AXES["lr"])
        for number in range(3)
    ][without:]
    store.prepare("marks", COLUMNS)
    store.write("marks", "c", rows, COLUMNS)
    write_figures(store.files, "marks", figures_of(SWEEP, "p"))
    write_request(store.files, "marks", RequestRows("p", "p", [str(row["trial_id"]) for row in rows]))
    frame = load("marks", store.files, "p")
    subject = publish.Subject("marks", SWEEP, "p")
    publish.write(store.files, subject, frame, hyperparameters=list(COLUMNS.hyperparameters))

    def written(folder: str, name: str) -> pd.DataFrame:
        data = store.files.read(figure_path(folder, subject.folder, f"{name}.parquet"))
        assert data
        return pd.read_parquet(io.BytesIO(data))

    report = collect(store.files, "marks").report
    (request,) = report["requests"]
    marks = set[str]()
    for table in request["figures"]["tables"]:
        expected = written("tables", table["name"])["mark"].tolist()
        assert table["cells"]["mark"] == expected, table["name"]
        marks |= {*expected}
    ids = next(column["values"] for column in report["columns"] if column["name"] == "trial_id")
    for heatmap in figures_of(SWEEP, "p").of_kind(Heatmap):
        cells, shown = written("heatmaps", heatmap.file), labelled(frame, heatmap.selections)
        best = request["best"][labelled_name(heatmap) if heatmap.selections else heatmap.metric.name]
        alike = [ids[trial] for first, count in best["alike"] for trial in range(first, first + count)]
        framed = {*positions(cells, shown, heatmap.axes, [ids[trial] for trial in best["trials"]])}
        marked = {*positions(cells, shown, heatmap.axes, alike)} - framed
        own = [BEST if index in framed else ALIKE if index in marked else "" for index in range(len(cells))]
        assert own == cells["mark"].tolist(), heatmap.title
        marks |= {*own}
    assert BEST in marks
