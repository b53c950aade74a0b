"""What the page of a large sweep has: cells of all trials, and some of the trials."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.definition.sweep import SEEDS
from sweeper.report.heatmaps import pivot
from sweeper.report.page import aggregates
from sweeper.report.page.contents import collect
from sweeper.report.selections import labelled
from sweeper.results.replicates import MEASURED
from sweeper.storage.files import Files
from sweeper.storage.load import load
from tests.sweeper.report.page import stored_search
from tests.sweeper.report.page.stored import AXES, NAME, SELECTIONS, fill


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A store with more trials than a page has."""
    monkeypatch.setattr(aggregates, "MAX_TRIALS", 20)
    monkeypatch.setattr(aggregates, "KEPT_TRIALS", 12)
    return fill(tmp_path, repeat=4).files


def plain(values: list[float]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def ids(report: Mapping[str, Any]) -> list[str]:
    return next(column["values"] for column in report["columns"] if column["name"] == "trial_id")


@pytest.mark.slow
def test_the_cells_are_those_of_all_trials(files: Files) -> None:
    rows, report = load(NAME, files), collect(files, NAME).report
    (request,) = report["requests"]
    by_values, by_labels = request["cells"]
    assert (by_values["rows"], by_values["columns"]) == ("beta", "nu")
    assert by_values["over"] == {"replicates": "seeds", "fixed": "fixed values"}
    assert by_values["values"] == [list(AXES["beta"]), [0.5, 3.0, "inf"]]
    assert by_labels["values"][0] == [selection.labels["setting"] for selection in SELECTIONS[:3]]
    shown = {"beta": rows, "setting": labelled(rows, SELECTIONS)}
    for drawn in (by_values, by_labels):
        for metric, figures in drawn["metrics"].items():
            axes, share = (drawn["rows"], drawn["columns"]), metric != "loss"
            cells = pivot(shown[drawn["rows"]], metric, axes, SEEDS, share)
            for name in MEASURED:
                assert plain(figures[name]) == pytest.approx(cells[name].tolist(), nan_ok=True), name
    assert {*by_values["metrics"]} == {"auroc_joint", "knn_z", "loss"}
    everything = collect(files, NAME, every=True).report
    best = ids(everything)[everything["requests"][0]["best"]["auroc_joint"]["trials"][0]]
    place = rows.set_index("trial_id").loc[best, ["beta", "nu"]].tolist()
    assert by_values["metrics"]["auroc_joint"]["trials"] == [
        [*itertools.product(*AXES.values())][::2].index((*place, 0))
    ]
    assert request["course"]["statuses"] == [("finished", 71), ("failed", 1)] and request["count"] == 72


def test_the_trials_are_the_best_of_each_setting_and_what_failed(files: Files) -> None:
    rows, report = load(NAME, files), collect(files, NAME).report
    finished = rows[rows["status"] == "finished"]
    best = finished.loc[finished.groupby(["beta", "nu"])["auroc_joint"].idxmax(), "trial_id"]
    assert {*ids(report)} > {*best, rows.loc[rows["status"] == "failed", "trial_id"].item()}
    assert report["count"] == len(ids(report)) == 12 and report["requests"][0]["trials"] == [[0, 12]]
    assert "This page has 12 of them" in report["left_out"]["text"]
    assert report["left_out"]["command"] == f"sweeper view {files.display_uri}"
    assert all(trial <= 12 for series in report["curves"] for trial in series["trials"])


def test_all_trials_are_read_on_demand(files: Files) -> None:
    report = collect(files, NAME, every=True).report
    assert report["count"] == 72 and report["left_out"] is None and report["requests"][0]["cells"] == []


def test_a_search_has_its_best_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "MAX_TRIALS", 5)
    monkeypatch.setattr(aggregates, "KEPT_TRIALS", 8)
    files = stored_search.fill(tmp_path).files
    report, rows = collect(files, stored_search.NAME).report, load(stored_search.NAME, files)
    finished = rows[rows["status"] == "finished"]
    objective = report["presets"][rows["preset"][0]]["headline"]
    assert {*finished.nlargest(5, objective)["trial_id"]} < {*ids(report)} and report["count"] == 8
    assert report["requests"][0]["cells"] == []


def test_how_trials_ran_is_counted_and_summed() -> None:
    times = pd.to_datetime(["2026-01-02", "2026-01-01", None], utc=True)
    rows = pd.DataFrame(
        {"status": ["failed", "finished", "finished"], "seconds": [1.0, None, 2.5], "host": ["b", "a", "a"]}
    )
    course = aggregates.course(rows.assign(cuda=None, started=times, ended=times))
    assert course == {
        "statuses": [("failed", 1), ("finished", 2)],
        "sums": [["seconds", 3.5, 2]],
        "counts": [["host", [("a", 2), ("b", 1)]], ["status", [("finished", 2), ("failed", 1)]]],
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-02T00:00:00+00:00",
    }
