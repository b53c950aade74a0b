"""What figures show of the trials of searches: the best setting of each study in a cell, and not the mean over all."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution

from sweeper.definition import Constraint, Grid, Heatmap, Metric, Ranking, Search, Sweep, Table, Trajectory
from sweeper.report import charts, heatmaps, rankings, tables, trajectories
from sweeper.report.figures import MEAN_OF_STUDY, Shown, figures_of
from sweeper.report.formatting import DASH
from sweeper.results.sentences import BEST
from sweeper.storage.files import Files

KNN, LOSS = Metric("knn_z", "maximize"), Metric("loss", "minimize")
LINES = Trajectory("lines", (KNN,), ("method",))
TABLE = Table("methods", ("method",), (KNN, LOSS))
RANKING = Ranking(name="r", rows=("method",), metric=KNN, tasks="dataset", over="sets", reference=("grid",))
SEEDS, METHODS, SLOW = (0, 1, 2), ("vje", "byol"), 60.0
SPACE = {"lr": FloatDistribution(0.0, 1.0)}
SEARCH = Search(
    SPACE, {"method": "vje"}, 4, replace(KNN, name="val_knn_z"), 4, constraints=(Constraint("seconds", "<=", SLOW),)
)
PRESET: tuple[Grid | Search, ...] = (
    Grid({"method": "grid"}, {"lr": (0.1, 0.2)}),
    *(replace(SEARCH, fixed={"method": method}) for method in METHODS),
)
SWEEP = Sweep("", {"p": PRESET}, (TABLE, LINES, RANKING))
Row = dict[str, Any]


@st.composite
def stored(draw: st.DrawFn) -> list[Row]:
    """Three seeds of four settings of each method, of which one diverged and others may be too slow, and of a grid."""
    numbers = st.integers(0, 1000).map(lambda number: number / 1000)
    rows = []
    for method in (*METHODS, "grid"):
        slow = draw(st.sets(st.integers(0, 2)))
        for number in range(4):
            lr, has_values = number + draw(numbers), method == "grid" or number < 3
            for seed in SEEDS:
                values = {name: draw(numbers) if has_values else None for name in ("val_knn_z", "knn_z", "loss")}
                seconds = 2 * SLOW if number in slow else SLOW
                status = "finished" if has_values else "diverged"
                rows.append({**row(method, number, seed, lr), **values, "status": status, "seconds": seconds})
    return rows


def row(method: str, number: int, seed: int, lr: float) -> Row:
    of_study: Row = {"study": method, "study_id": f"{method}!", "number": number, "wave": number // 2}
    return (
        {"trial_id": f"{method}{number}{seed}", "method": method, "lr": lr, "seed": seed, "dataset": "d"}
        | {"status": "finished", "val_knn_z": lr, "knn_z": lr, "loss": lr, "seconds": SLOW}
        | (dict.fromkeys(of_study) if method == "grid" else of_study)
    )


def expected(rows: list[Row], method: str) -> list[Row]:
    """The rows behind the cell of a method, in plain Python; of a search those of its best setting."""
    own = [row for row in rows if row["method"] == method]
    if method == "grid":
        return own
    proposals = [[row for row in own if row["number"] == number] for number in range(3)]
    feasible = [each for each in proposals if each[0]["seconds"] <= SLOW]
    return max(feasible, key=lambda each: fmean(row["val_knn_z"] for row in each), default=[])


def mean(rows: list[Row], name: str) -> float:
    return fmean(row[name] for row in rows) if rows else math.nan


def shown_of(rows: list[Row], sweep: Sweep = SWEEP) -> Shown:
    frame = pd.DataFrame(rows)
    history = frame[["trial_id", "knn_z"]].rename(columns={"knn_z": "value"}).assign(metric="knn_z", epoch=1)
    keys = ("method", "lr", "seed", "dataset", "study", "study_id", "number", "wave")
    return Shown(figures_of(sweep, "p"), frame, lambda: history, keys, is_in_order=True)


@pytest.mark.slow
@settings(max_examples=40)
@given(stored())
def test_a_cell_has_the_best_setting_of_its_study(rows: list[Row]) -> None:
    shown, order = shown_of(rows), (*METHODS, "grid")
    table = tables.on_page(shown, TABLE)
    assert table and table["cells"]["method"] == [method for method in order for _ in TABLE.metrics]
    found = [math.nan if value is None else value for value in table["cells"]["mean"]]
    wanted = [mean(expected(rows, method), metric.name) for method in order for metric in TABLE.metrics]
    assert found == pytest.approx(wanted, nan_ok=True)
    any_best = any(expected(rows, method) for method in METHODS)
    clause = "of a search the best setting for each method, chosen on validation images (val_knn_z)"
    assert (clause in table["captions"]["interval"]) == any_best
    best = [method for method, mark in zip(order, table["cells"]["mark"][::2], strict=True) if mark == BEST]
    assert len(best) == any_best and all(expected(rows, method) for method in best), "one is the best of its column"

    lines = trajectories.on_page(shown, LINES)
    assert lines
    (chart,) = lines["charts"]
    points: Mapping[str, float] = dict(
        zip(chart["data"]["points"]["line"], chart["data"]["points"]["mean"], strict=True)
    )
    assert points == pytest.approx({m: mean(own, "knn_z") for m in order if (own := expected(rows, m))})
    ranking = rankings.on_page(shown, RANKING)
    assert ranking and (clause.replace("method", "method and dataset") in ranking["captions"]["interval"]) == any_best
    texts = dict(zip(*(ranking["texts"]["interval"][name] for name in ("method", "mean")), strict=True))
    for method in order:
        value, text = mean(expected(rows, method), "knn_z"), texts[method].split(" ")[0]
        assert text == DASH if math.isnan(value) else float(text) == pytest.approx(100 * value, abs=0.0501)


def test_a_replicate_of_the_best_setting_that_failed_is_missing() -> None:
    """One of another setting is not."""
    failed = {"status": "failed", "val_knn_z": None, "knn_z": None, "loss": None}
    rows = [row("vje", number, seed, 0.1 * number) for number in range(3) for seed in SEEDS]
    rows = [each | failed if each["trial_id"] in ("vje02", "vje11", "vje12", "vje22") else each for each in rows]
    table = tables.on_page(shown_of(rows), TABLE)
    assert table and (table["cells"]["count"], table["cells"]["missing"]) == ([2, 2], [1, 1])


def test_what_averages_over_settings_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(method, number, seed, 0.1 * number) for method in METHODS for number in range(3) for seed in SEEDS]
    front = replace(SEARCH, metric=(replace(KNN, name="val_knn_z"), LOSS), constraints=())
    heatmap = Heatmap(KNN, "method", "seed")
    sweep = Sweep("", {"p": front}, (heatmap, TABLE))
    table = tables.on_page(shown_of(rows, sweep), TABLE)
    assert table and MEAN_OF_STUDY in table["captions"]["interval"]
    shown = shown_of(rows, replace(sweep, figures=(heatmap,)))
    drawn = list[dict[str, Any]]()

    def png(chart: Any, **values: Any) -> bytes:
        drawn.append(values)
        return b"png"

    monkeypatch.setattr(charts, "png", png)
    text = heatmaps.publish(Files(tmp_path), "g", shown, heatmap)
    assert text and text.startswith(MEAN_OF_STUDY) and MEAN_OF_STUDY in drawn[0]["title"]["subtitle"]
