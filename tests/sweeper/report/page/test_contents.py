import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution

from sweeper.definition import Constraint, Metric, Search, Sweep
from sweeper.report import figures
from sweeper.report.figures import Shown, figures_of
from sweeper.report.formatting import json_values
from sweeper.report.kinds import read_figures
from sweeper.report.page import contents as contents_module
from sweeper.report.page import findings
from sweeper.report.page.contents import Contents, collect
from sweeper.report.page.findings import declared_metrics, encode
from sweeper.report.page.publish import sweep_names
from sweeper.results.best import Settings, best_settings
from sweeper.results.sentences import sentences
from sweeper.storage.layout import page_figures_folder, request_path, trial_names_path
from sweeper.storage.load import take_snapshot
from sweeper.storage.requests import RequestRows, short_name, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page import stored_search
from tests.sweeper.report.page.stored import COLUMNS, ERROR, NAME, SWEEP, add_sample_grids, fill


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    store = fill(tmp_path_factory.mktemp("store"))
    add_sample_grids(store)
    store.files.write(trial_names_path(NAME), b'{"training": {"preset": "paper", "beta": 2.0}}')
    return collect(store.files, NAME)


def column(contents: Contents, name: str) -> dict[str, Any]:
    return next(column for column in contents.report["columns"] if column["name"] == name)


def test_rows_and_requests(contents: Contents) -> None:
    (request,) = contents.report["requests"]
    assert (contents.report["count"], request["label"], request["trials"]) == (18, "paper", [[0, 18]])
    assert column(contents, "error")["values"][-1] == ERROR
    assert column(contents, "nu")["values"][4] == "inf"
    assert column(contents, "width")["values"][:2] == [None, 64]


def test_a_page_opens_with_the_largest_request_that_is_listed(tmp_path: Path) -> None:
    store = fill(tmp_path)
    trials = list(take_snapshot(store.files, NAME).rows["trial_id"])

    def opens_with() -> str:
        report = collect(store.files, NAME).report
        return str(report["requests"][report["opens_with"]]["label"])

    write_request(store.files, NAME, RequestRows("latest", "paper", trials[-1:]))
    assert opens_with() == "latest", "other rows are of an earlier definition"
    write_request(store.files, NAME, RequestRows("larger", "paper", trials[2:6]))
    write_request(store.files, NAME, RequestRows("as large, later", "paper", trials[3:7]))
    assert opens_with() == "as large, later"


def test_long_names_of_requests_are_short_in_headings() -> None:
    assert short_name("digits, beta=0.5,1 epochs=2") == "digits, beta=0.5,1 epochs=2"
    assert short_name("digits, nu=1,2,3,4,5") == "digits, nu=1,2,3,4,5"
    assert short_name("digits, nu=1,2,3,4,5,6 seed=0") == "digits, nu=1,2,…,6 (6 values) seed=0"
    assert len(short_name("x" * 500)) == 140


def test_requests_whose_short_names_are_equal_have_long_ones(tmp_path: Path) -> None:
    store = fill(tmp_path)
    trials = list(take_snapshot(store.files, NAME).rows["trial_id"])
    names = ["paper, nu=1,2,3,4,5,6", "paper, nu=1,2,3.5,4,5,6", "paper, nu=1,2,3,4,5,7"]
    for name in names:
        write_request(store.files, NAME, RequestRows(name, "paper", trials))
    titles = {request["label"]: request["title"] for request in collect(store.files, NAME).report["requests"]}
    assert titles == dict(zip(names, [*names[:2], "paper, nu=1,2,…,7 (6 values)"], strict=True))


def test_rows_of_which_no_study_is_known_have_a_page() -> None:
    rows = pd.DataFrame({"trial_id": ["a", "b"], "study": None, "number": None, "seed": [0, 1]})
    assert contents_module._halves(rows, []) == [None, None]


def test_tables_have_the_papers_figures(contents: Contents) -> None:
    (table,) = contents.report["requests"][0]["figures"]["tables"]
    assert table["cells"]["beta"] == [0.0, 0.5, 1.0]
    assert table["cells"]["published"] == [None, None, 0.93]
    mean, difference = table["cells"]["mean"][2], table["cells"]["difference"][2]
    assert difference == pytest.approx(mean - 0.93)


def test_trajectories_and_heatmaps(contents: Contents) -> None:
    (trajectory,) = contents.report["requests"][0]["figures"]["trajectories"]
    points = trajectory["charts"][0]["data"]["points"]
    assert points["epoch"] == [1, 2, 3] * 3 and points["count"] == [6] * 6 + [5] * 3
    assert contents.report["presets"]["paper"]["heatmaps"][0]["published"] == [[1.0, 0.5, 0.75]]


def test_a_trial_without_a_row_has_its_hyperparameters_and_a_curve(contents: Contents) -> None:
    assert contents.report["unfinished"] == [{"trial_id": "training", "config": {"beta": 2.0}}]
    assert contents.report["curves"][0]["trials"][-1] == 18


def test_sample_grids(contents: Contents) -> None:
    shared, own = contents.report["pictures"]
    assert (shared["title"], shared["trial"]) == ("paper: digits-samples", None)
    assert (own["title"], own["trial"]) == ("samples", "trial00000")


def test_a_sweep_without_figures_has_its_rows(tmp_path: Path) -> None:
    store = fill(tmp_path)
    store.files.delete_folder(page_figures_folder(NAME))
    report = collect(store.files, NAME).report
    assert report["presets"] == {} and report["requests"][0]["figures"] == {} and report["count"] == 18


def test_figures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    store = fill(tmp_path)
    store.files.write(f"{page_figures_folder(NAME)}/other.json", b'{"preset": "other"}')
    report = collect(store.files, NAME).report
    assert list(report["presets"]) == ["paper"]
    assert report["notes"] == [
        "The figures in reports/grid.views/other.json cannot be read and are left out: must have the key about."
    ]


def test_damaged_files_are_left_out_and_named(tmp_path: Path) -> None:
    store = fill(tmp_path)
    (tmp_path / f"trials/sweep={NAME}/c0.parquet").write_bytes(b"PAR1 damaged PAR1")
    report = collect(store.files, NAME).report
    assert report["count"] == 0 and len(report["unfinished"]) == 18
    assert report["notes"][0].startswith(f"Damaged and left out: trials/sweep={NAME}/c0.parquet")
    assert (tmp_path / f"trials/sweep={NAME}/c0.parquet").exists(), "a reader moves nothing"


def test_damaged_names_are_left_out(tmp_path: Path) -> None:
    store = fill(tmp_path)
    store.files.write(trial_names_path(NAME), b"[1, 2")
    assert collect(store.files, NAME).report["unfinished"] == [{"trial_id": "training", "config": {}}]


def change(store: Store, folder: Path, changes: str, count: int = 18) -> None:
    """Add rows of a request that changes the preset."""
    rows = pd.read_parquet(folder / f"trials/sweep={NAME}/c0.parquet").to_dict("records")[:count]
    cohort = changes.replace("=", "-")
    changed = [{**_plain(row), "trial_id": f"{row['trial_id']}{cohort}", "changes": changes} for row in rows]
    store.write(NAME, cohort, changed, COLUMNS)


def labels(report: Mapping[str, Any]) -> list[str]:
    return [request["label"] for request in report["requests"]]


def test_without_lists_each_change_is_a_request(tmp_path: Path) -> None:
    store = fill(tmp_path)
    change(store, tmp_path, "epochs=5")
    report = collect(store.files, NAME).report
    assert sorted(labels(report)) == ["paper", "paper, epochs=5"]
    trials = [trial for request in report["requests"] for trial in trials_of(request)]
    assert sorted(trials) == list(range(36))
    assert report["notes"] == []


def trials_of(request: Mapping[str, Any]) -> list[int]:
    return [position for first, count in request["trials"] for position in range(first, first + count)]


def test_a_request_has_the_trials_of_its_list_and_those_of_an_earlier_definition_are_another(tmp_path: Path) -> None:
    store = fill(tmp_path)
    change(store, tmp_path, "epochs=5", count=4)
    new, ids = [f"trial{index:05d}" for index in range(12, 18)], [f"trial{index:05d}epochs-5" for index in range(4)]
    write_request(store.files, NAME, RequestRows("paper", "paper", [*new, "to-come"]))
    write_request(store.files, NAME, RequestRows("paper, epochs=5", "paper", [*ids, new[0]]))
    contents = collect(store.files, NAME)
    report, trial_ids = contents.report, column(contents, "trial_id")["values"]
    found = {request["label"]: [trial_ids[trial] for trial in trials_of(request)] for request in report["requests"]}
    earlier = [f"trial{index:05d}" for index in range(12)]
    assert {label: sorted(trials) for label, trials in found.items()} == {
        "paper": new,
        "paper, epochs=5": sorted([*ids, new[0]]),
        "paper, earlier definition": earlier,
    }
    totals = {request["label"]: request["total"] for request in report["requests"]}
    assert totals == {"paper": 7, "paper, epochs=5": 5, "paper, earlier definition": None}
    assert labels(report)[0] == "paper", "it has the latest row"
    (table,) = report["requests"][0]["figures"]["tables"]
    assert table["cells"]["beta"] == [1.0], "no trial of the earlier definition is in its tables"


def test_a_damaged_list_is_named_and_its_trials_stay(tmp_path: Path) -> None:
    store = fill(tmp_path)
    store.files.write(request_path(NAME, "paper"), b"PAR1 damaged PAR1")
    report = collect(store.files, NAME).report
    assert labels(report) == ["paper"] and report["notes"][0].startswith("Damaged and left out: requests/grid/paper")


def test_tables_that_are_left_out_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "MAX_REQUESTS", 1)
    store = fill(tmp_path)
    change(store, tmp_path, "epochs=5", count=2)
    report = collect(store.files, NAME).report
    assert [len(request["figures"]) for request in report["requests"]] == [2, 0]
    assert report["notes"] == [
        "To keep this page small, it lacks the tables and best settings of 1 of 2 requests, those with the oldest "
        f"results; the tables are in {tmp_path}/tables/grid."
    ]


def test_studies_that_are_left_out_are_said_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored_search.fill(tmp_path)
    source = f"studies/{stored_search.NAME}/paper/normal_class=0"
    for table in ("importance", "trials"):
        store.files.write(f"{source[:-1]}1/{table}.parquet", store.files.read(f"{source}/{table}.parquet") or b"")
    assert [len(part) for part in findings.importances(store.files, stored_search.NAME)] == [2, 0]
    monkeypatch.setattr(findings, "MAX_STUDIES", 1)
    store.files.write(f"{source[:-1]}1/trials.parquet", b"not read")
    found, notes = findings.importances(store.files, stored_search.NAME)
    assert [study["study"] for study in found] == ["normal_class=0"]
    assert notes == [
        f"To keep this page small, it lacks the importances of 1 of 2 studies, which are in {tmp_path}/studies/search."
    ]


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    plain = {name: None if pd.isna(value) else value for name, value in row.items()}
    return plain | {"width": None if plain["width"] is None else int(plain["width"])}


def test_what_cannot_be_made_of_its_data_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    store = fill(tmp_path)
    path = next(f"trials/sweep={NAME}/{file}" for file in store.files.list(f"trials/sweep={NAME}"))
    folder = page_figures_folder(NAME)
    plain = json.loads(store.files.read(f"{folder}/paper.json") or b"")
    odd = {**plain["tables"][0], "name": "odd", "published": [], "metrics": [{"name": "status"}]}
    plain["tables"].insert(0, odd)
    store.files.write(f"{folder}/paper.json", json.dumps(plain).encode())
    store.files.write(f"studies/{NAME}/paper/one/importance.parquet", store.files.read(path) or b"")
    store.files.write(f"studies/{NAME}/paper/one/trials.parquet", store.files.read(path) or b"")
    report = collect(store.files, NAME).report
    (request,) = report["requests"]
    assert [table["name"] for table in request["figures"]["tables"]] == [plain["tables"][1]["name"]]
    assert request["figures"]["trajectories"]
    assert [note.split(" cannot be shown: ")[0] for note in report["notes"]] == ["table odd", "study one of paper"]
    assert report["count"] == 18 and report["importances"] == []


def test_each_request_says_its_best_setting_and_whose_trials_that_has(contents: Contents) -> None:
    (request,) = contents.report["requests"]
    best = request["best"][contents.report["presets"]["paper"]["headline"]]
    assert best["text"][0].startswith("best ") and "; chosen " in best["text"][0]
    statuses = column(contents, "status")["values"]
    assert best["trials"] and all(0 <= trial < len(statuses) for trial in best["trials"])


@pytest.mark.parametrize("stored", [fill, stored_search.fill], ids=["grid", "search"])
def test_what_is_best_is_the_same_without_the_columns_that_tell_no_settings_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Callable[[Path], Store]
) -> None:
    """Most columns of a sweep are constant, and each costs time in every row of every request."""
    files, read = stored(tmp_path).files, set[str]()
    (name,) = sweep_names(files)
    (shown,) = read_figures(files, name)[0].values()
    snapshot = take_snapshot(files, name)

    class Recorded(Settings):
        def add_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
            read.update(name for name, values in columns.items() if values)
            super().add_columns(columns)

    monkeypatch.setattr(figures, "Settings", Recorded)
    for rows in (snapshot.rows, snapshot.rows[:1], snapshot.rows[:0]):
        said = findings.best(Shown(shown, rows, pd.DataFrame, ()), snapshot.columns)
        said = {name: best for name, best in said.items() if name in rows}  # without those of labels
        for metric, best in said.items():
            direction = {"loss": "minimize"}.get(metric, "maximize")
            declared = shown.metric(metric) or Metric(metric, direction)  # type: ignore[arg-type]
            whole = best_settings(
                rows.to_dict("records"),
                declared,
                snapshot.columns.hyperparameters,
                repeats=shown.repeats,
                named=shown.naming,
            )
            assert best["text"] == sentences(whole, findings.MAX_BEST)
        assert said
    assert "trial_id" in read and not read & {"flip", "seconds", "host", "cohort"}


VIEWS = [figures_of(SWEEP, "paper")]
FEW_COLUMNS = Columns({"width": int, "nu": float, "flip": bool}, ("knn_z", "loss"))


def test_values_keep_every_digit_and_their_type() -> None:
    assert json_values(pd.Series([0.1 + 0.2, 1e-300, math.nan, math.inf, -math.inf])) == [
        0.30000000000000004, 1e-300, None, "inf", "-inf",
    ]  # fmt: skip
    widths = json_values(pd.Series([64.0, math.nan]), int)
    assert widths == [64, None] and isinstance(widths[0], int)
    assert json_values(pd.Series([True, None, "a"], dtype=object)) == [True, None, "a"]
    assert json_values(pd.Series(pd.to_datetime(["2026-01-02T03:04:05Z", None]))) == ["2026-01-02T03:04:05+00:00", None]


def test_equal_values_are_stored_once() -> None:
    rows = pd.DataFrame({"width": [64, 64], "nu": [1.0, 2.0]})
    width, nu = encode(rows, FEW_COLUMNS, ())
    assert width == {"name": "width", "kind": "hyperparameter", "constant": 64}
    assert nu["values"] == [1.0, 2.0]
    assert encode(rows[:0], FEW_COLUMNS, ())[0]["values"] == []


def test_metrics_have_direction_unit_and_bounds() -> None:
    rows = pd.DataFrame({"knn_z": [0.5], "loss": [1.0], "status": ["finished"]})
    knn, loss, status = encode(rows, FEW_COLUMNS, VIEWS)
    assert (knn["direction"], knn["percent"], knn["bounds"]) == ("maximize", True, [0.0, 1.0])
    assert (loss["direction"], loss["percent"], loss["bounds"]) == ("minimize", False, None)
    assert status["kind"] == "run"


def test_a_metric_is_shown_alike_on_validation_and_on_test_images() -> None:
    rows = pd.DataFrame({"val_knn_z": [0.5]})
    (column,) = encode(rows, Columns({}, ("val_knn_z",)), VIEWS)
    assert column["percent"] and column["direction"] == "maximize"


def test_the_first_figure_of_a_metric_decides() -> None:
    assert set(declared_metrics(VIEWS)) == {"auroc_joint", "knn_z", "loss"}
    assert declared_metrics(()) == {}


def test_metrics_of_a_family_have_one_unit() -> None:
    rows = pd.DataFrame({"knn_mu": [0.5]})
    (column,) = encode(rows, Columns({}, ("knn_mu",)), VIEWS)
    assert column["percent"], "as knn_z, which a figure shows in percent"


def test_the_page_knows_which_proposals_are_infeasible() -> None:
    """By the means of their trials, at the places of these among all rows of the sweep."""
    bounds = (Constraint("seconds", "<=", 60),)
    search = Search({"lr": FloatDistribution(0, 1)}, {"method": "vje"}, 3, Metric("auroc", "maximize"), 1)
    plain, bounded = (
        figures_of(Sweep("", {"digits": replace(search, constraints=own)}), "digits") for own in ((), bounds)
    )
    rows = pd.DataFrame(
        {"trial_id": list("abcde"), "study": "all", "number": [0, 0, 1, 1, 2], "status": "finished"}
        | {"seconds": [50.0, 80.0, 80.0, 30.0, math.nan]},
        index=range(7, 12),
    )
    assert findings.infeasible(bounded, rows) == [7, 8, 11] and findings.infeasible(plain, rows) == []
    assert findings.preset(bounded)["constraints"] == ["seconds <= 60"]
