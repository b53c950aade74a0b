"""A study in progress, and what it begins with."""

import json
import statistics
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from sweeper.errors import SpecError
from sweeper.option_values import WarmStartRequest
from sweeper.search.ask_tell import TrialResult
from sweeper.search.study_run import Recorded, WarmStart, mean_result, read_warm_start, result, warm_start_from_rows
from sweeper.storage.files import Files
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.search.toy_waves import SPACE, study, study_run


def test_the_definition_of_a_study_is_written_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    files, path = Files(tmp_path), tmp_path / "studies/search/s0.json"
    run = study_run(study(trials=8, wave=8))
    run.write_definition(files, "search")
    definition = path.read_text()
    path.write_text(definition.replace("\n", ""))
    run.write_definition(files, "search")
    assert path.read_text() == definition.replace("\n", "")
    path.write_text(definition[:-1])
    run.write_definition(files, "search")
    assert path.read_text() == definition


COLUMNS = Columns({"method": str, "dataset": str, "x": float, "width": int}, ("auroc",))
CONFIG = {"method": "vje", "dataset": "digits"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FITTING: dict[str, Any] = {
    **{"trial_id": "fits", "status": "finished", "x": 0.5, "width": 2, "auroc": 0.75},
    **{"cohort": "c", "cohort_size": 1, "epochs_run": 1, "started": NOW, "ended": NOW, **CONFIG},
}
EARLIER = WarmStartRequest("earlier")
RESULTS = (({"x": 0.5, "width": 2}, (0.75,)),)
PATH = "studies/s/identity.json"


def store_of(folder: Path, *rows: dict[str, Any]) -> Store:
    store = Store(folder)
    store.prepare("earlier", COLUMNS)
    store.write("earlier", "c", rows, COLUMNS)
    return store


@for_each(
    "change",
    [
        *({"status": "pruned"}, {"status": "diverged"}, {"auroc": None}, {"x": 1.5}, {"x": None}, {"width": 3}),
        *({"method": "simclr"}, {"dataset": "cifar10"}),
    ],
)
def test_only_finished_rows_that_fit_the_study_are_used(change: dict[str, Any], tmp_path: Path) -> None:
    other = {**FITTING, "trial_id": "other", **change}
    store = store_of(tmp_path / "both", FITTING, other)
    assert warm_start_from_rows(store, EARLIER, study(), CONFIG, {}) == WarmStart("earlier", RESULTS)
    with pytest.raises(SpecError, match=r"^no finished row of sweep 'earlier' fits study 'all': a row must have"):
        warm_start_from_rows(store_of(tmp_path / "other", other), EARLIER, study(), CONFIG, {})


@pytest.mark.parametrize(("default", "fits"), [(0.25, True), (1.5, False), (None, False)])
def test_a_value_that_is_null_is_the_default(default: float | None, fits: bool, tmp_path: Path) -> None:
    """Trials lack the keys of an optional section at their defaults. The space of x is [0, 1]."""
    store = store_of(tmp_path, FITTING, {**FITTING, "trial_id": "other", "x": None})
    warm = warm_start_from_rows(store, EARLIER, study(), CONFIG, {"x": default})
    other = (({"x": default, "width": 2}, (0.75,)),)
    assert warm == WarmStart("earlier", RESULTS + other if fits else RESULTS)


def test_rows_of_other_epochs_count_only_if_the_request_says_so(tmp_path: Path) -> None:
    """The note says how many rows count, and in which fixed keys they differ."""
    columns = Columns({**COLUMNS.hyperparameters, "epochs": int, "lr": float}, COLUMNS.metrics)
    rows = [{**FITTING, "trial_id": f"t{epochs}", "epochs": epochs, "lr": 0.1} for epochs in (9, 9, 50)]
    store = Store(tmp_path)
    config: dict[str, Any] = {**CONFIG, "epochs": 50, "lr": 0.5, "x": 0.0}
    store.prepare("earlier", columns)
    store.write("earlier", "c", [{**row, "trial_id": f"t{index}"} for index, row in enumerate(rows)], columns)
    warm = warm_start_from_rows(store, EARLIER, study(), config, {})
    assert warm.results == RESULTS and warm.note == (
        "study all begins with 1 of the 3 rows of 'earlier'; in keys that are fixed here, lr was 0.1, is 0.5; 2 with "
        "epochs=9 do not count, because these trials have epochs=50 (--warm-start earlier,any-epochs)"
    )
    every = warm_start_from_rows(store, WarmStartRequest("earlier", any_epochs=True), study(), config, {})
    assert every.results == 3 * RESULTS and every.note == (
        "study all begins with 3 of the 3 rows of 'earlier'; in keys that are fixed here, lr was 0.1, is 0.5; epochs "
        "was 9, is 50 (2 rows)"
    )
    law = "that fit study 'all' have epochs=9,50, and these trials have epochs=4; --warm-start earlier,any-epochs"
    with pytest.raises(SpecError, match=law):
        warm_start_from_rows(store, EARLIER, study(), {**config, "epochs": 4}, {})


def test_a_sweep_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^--warm-start needs rows, but store .* has none of sweep 'earlier'$"):
        warm_start_from_rows(Store(tmp_path), EARLIER, study(), CONFIG, {})


@pytest.mark.parametrize("warm", [WarmStart(None), WarmStart("earlier", RESULTS)])
def test_a_written_warm_start_is_read_back(warm: WarmStart, tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert read_warm_start(files, PATH, study()) is None
    warm.write(files, PATH, study())
    assert read_warm_start(files, PATH, study()) == warm


@pytest.mark.parametrize(
    "result",
    [
        *([{"x": 0.5}, [0.75]], [{"x": 1.5, "width": 2}, [0.75]], [{"x": 0.5, "width": 2}, []]),
        *([{"x": 0.5, "width": 2}, ["1"]], [{"x": 0.5, "width": 2}, [float("nan")]]),
    ],
)
def test_a_damaged_file_counts_as_absent(result: list[Any], tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(PATH, json.dumps({"warm_start": "earlier", "results": [result]}).encode())
    assert read_warm_start(files, PATH, study()) is None


SEEDS = {"seed": (0, 1, 2)}
STATUSES = st.sampled_from(["finished"] * 6 + ["pruned", "diverged", "failed"])


@pytest.mark.slow
@given(st.lists(st.tuples(STATUSES, st.floats(-1e3, 1e3)), min_size=9, max_size=9), st.integers(0, 9))
def test_the_sampler_is_told_the_mean_of_the_rows_of_a_proposal_before_and_after_the_study_is_continued(
    outcomes: list[tuple[str, float]], in_the_store: int
) -> None:
    """Three proposals of three seeds each, of which some rows are in the store when the study is continued."""
    definition = study(trials=3, wave=3, replicates=SEEDS)
    rows, trials = list[dict[str, Any]](), study_run(definition).trials
    for trial, (status, value) in zip(trials, outcomes, strict=True):
        row = {"trial_id": trial.id, "number": trial.facts["number"], "status": status, "epochs_run": 2}
        rows.append(row | ({"auroc": value} if status == "finished" else {}))
    recorded = dict[int, Recorded]()
    for trial, row in list(zip(trials, rows, strict=True))[:in_the_store]:
        params = {key: trial.config[key] for key in SPACE}
        own = recorded.setdefault(int(str(trial.facts["number"])), Recorded(params, {})).results
        own[definition.replicate_of(trial.config, {})] = result(definition, row, [])
    run = study_run(definition, recorded)
    assert run.trials == trials
    if not run.ended:
        run.add_results({str(row["trial_id"]): result(definition, row, []) for row in rows})
    assert run.ended
    optuna_trials = run.engine.optuna_study.get_trials()
    for number, optuna_trial in enumerate(optuna_trials):
        statuses, values = zip(*outcomes[3 * number : 3 * number + 3], strict=True)
        if set(statuses) == {"finished"}:
            assert optuna_trial.values == [statistics.fmean(values)] and optuna_trial.user_attrs["replicates"] == [
                [list(values)]
            ]
        else:
            assert optuna_trial.state != TrialState.COMPLETE
        assert (optuna_trial.state == TrialState.FAIL) == ("failed" in statuses)
    assert run.diverged == all(
        "diverged" in seen and "failed" not in seen
        for seen in ([status for status, _ in outcomes[first : first + 3]] for first in (0, 3, 6))
    )


def test_a_mean_is_over_the_objectives_and_the_epochs_that_all_replicates_have() -> None:
    first = TrialResult(4, "finished", (0.5, 10.0), {2: 0.25, 4: 0.5}, {"trial_id": "a"})
    second = TrialResult(4, "finished", (1.0, None), {2: 0.75}, {"trial_id": "b"})
    mean = mean_result([first, second], [{"seed": 0}, {"seed": 1}])
    assert (mean.number, mean.values, mean.reached) == (4, (0.75, None), {2: 0.5})
    assert mean.attributes["trial_id"] == "a,b" and mean_result([first], [{}]) is first
    of_classes = [{"normal_class": of, "seed": seed} for seed in (0, 1) for of in (3, 4)]
    four = mean_result([replace(first, values=(float(place),)) for place in range(4)], of_classes)
    assert four.attributes["replicates"] == [[[0.0, 2.0], [1.0, 3.0]]], "by class and seed"


def test_a_study_with_replicates_is_another_one_and_one_without_is_what_it_was() -> None:
    plain, seeds = study(), study(replicates=SEEDS)
    assert "replicates" not in plain.identity and seeds.identity == {**plain.identity, "replicates": SEEDS}


def test_a_warm_start_has_the_means_of_rows_of_each_replicate(tmp_path: Path) -> None:
    columns = Columns({**COLUMNS.hyperparameters, "seed": int}, ("auroc",))
    rows = [{**FITTING, "trial_id": f"a{seed}", "seed": seed, "auroc": 0.5 + 0.25 * seed} for seed in range(4)]
    rows += [{**FITTING, "trial_id": f"b{seed}", "seed": seed, "x": 0.75} for seed in (0, 2)]
    store, definition = Store(tmp_path), study(replicates=SEEDS)
    store.prepare("earlier", columns)
    store.write("earlier", "c", rows, columns)
    assert warm_start_from_rows(store, EARLIER, definition, CONFIG, {}).results == RESULTS
    with pytest.raises(SpecError, match=r"within the search space, one for each seed=0,5$"):
        warm_start_from_rows(store, EARLIER, study(replicates={"seed": (0, 5)}), CONFIG, {})
