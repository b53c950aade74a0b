"""What a study leaves for a reader: figures, tables, and the journal for optuna-dashboard."""

import errno
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from sweeper.commands.conclusion import finish
from sweeper.definition import Metric, Sweep
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.search.journal import DashboardJournal, begin_journal
from sweeper.storage.files import Files
from sweeper.storage.layout import journal_path
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.search.toy_waves import recorded, study, study_run

SPACE = {
    "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
    "width": optuna.distributions.IntDistribution(32, 512, step=32),
    "act": optuna.distributions.CategoricalDistribution(["relu", None, 2.0]),
}


def begun(*directions: Literal["minimize", "maximize"]) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(directions=list(directions), sampler=optuna.samplers.RandomSampler(seed=0))


def end_trial(study: optuna.Study, trial: Trial) -> None:
    """Complete, pruned and failed ones, in turn."""
    trial.set_user_attr("trial_id", f"t{trial.number}")
    trial.set_constraint("seconds <= 60", trial.number - 4.0)
    if len(study.directions) > 1:
        study.tell(trial, [trial.number / 7, -1.0])
        return
    trial.report(0.25, 1)
    trial.report(trial.number / 3, 4)
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    state = states[trial.number % 3]
    study.tell(trial, 0.1 * trial.number if state == TrialState.COMPLETE else None, state=state)


def run(study: optuna.Study, count: int) -> optuna.Study:
    for _ in range(count):
        end_trial(study, study.ask(SPACE))
    return study


def content(trial: FrozenTrial) -> tuple[Any, ...]:
    return (
        trial.number,
        trial.state,
        trial.params,
        trial.distributions,
        trial.values,
        trial.user_attrs,
        trial.constraints,
        trial.intermediate_values,
    )


def read(path: Path, name: str) -> optuna.Study:
    """As the dashboard does it."""
    return optuna.load_study(study_name=name, storage=JournalStorage(JournalFileBackend(str(path))))


def same(path: Path, name: str, study: optuna.Study) -> bool:
    return list(map(content, read(path, name).trials)) == list(map(content, study.trials))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_studies_read_back_as_they_are(tmp_path: Path) -> None:
    single, double = run(begun("maximize"), 9), run(begun("maximize", "minimize"), 4)
    double.set_metric_names(["knn", "seconds"])
    double.set_user_attr("dataset", "digits")
    journal = DashboardJournal(tmp_path / "new" / "journal.log")
    assert [journal.begin(), journal.add("s/one", single), journal.add("s/two", double)] == [None] * 3
    assert same(journal.path, "s/one", single) and same(journal.path, "s/two", double)
    copy = read(journal.path, "s/two")
    assert copy.directions == double.directions and copy.metric_names == ["knn", "seconds"]
    assert copy.user_attrs == {"dataset": "digits"}


def test_the_file_only_grows_and_only_with_new_trials(tmp_path: Path) -> None:
    journal, study = DashboardJournal(tmp_path / "j"), begun("minimize")
    journal.begin()
    before = b""
    for _ in range(3):
        run(study, 4)
        assert journal.add("s", study) is None
        grown = journal.path.read_bytes()
        assert grown.startswith(before) and len(grown) > len(before)
        assert journal.add("s", study) is None and journal.path.read_bytes() == grown
        before = grown
    assert same(journal.path, "s", study)


def test_trials_keep_their_numbers_in_whatever_order_they_finish(tmp_path: Path) -> None:
    journal, study = DashboardJournal(tmp_path / "j"), begun("maximize")
    study.enqueue_trial({"lr": 0.01})
    open_trials = [study.ask(SPACE) for _ in range(6)]
    for order in ([4, 2], [0, 3], [1, 5]):
        for number in order:
            end_trial(study, open_trials[number])
        assert journal.add("s", study) is None
        copy = read(journal.path, "s").trials
        for mine, its in zip(study.trials, copy, strict=False):
            assert content(mine) == content(its) if mine.state.is_finished() else not its.state.is_finished()
    assert same(journal.path, "s", study)


def test_a_new_run_begins_a_new_file(tmp_path: Path) -> None:
    journal = DashboardJournal(tmp_path / "j")
    journal.add("old", run(begun("maximize"), 3))
    (tmp_path / "j.lock").symlink_to("nowhere")
    assert journal.begin() is None and list(tmp_path.iterdir()) == []
    study = run(begun("maximize"), 2)
    assert journal.add("new", study) is None
    assert optuna.get_all_study_names(JournalStorage(JournalFileBackend(str(journal.path)))) == ["new"]


def test_a_failed_write_is_reported_in_one_line_and_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "folder"
    blocked.write_text("a file")
    journal, study = DashboardJournal(blocked / "j"), run(begun("maximize"), 3)
    for message in (journal.begin(), journal.add("s", study), journal.add("s", study)):
        assert message is not None and "cannot be written" in message and "\n" not in message
    assert capsys.readouterr().err.count("the journal for optuna-dashboard cannot be written") == 1
    blocked.unlink()
    assert journal.add("s", study) is None and same(journal.path, "s", study)


def test_a_line_cut_off_by_a_full_disk_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, study = DashboardJournal(tmp_path / "j"), run(begun("maximize"), 3)
    assert journal.add("s", study) is None
    whole = journal.path.read_bytes()
    run(study, 5)
    calls: list[int] = []
    append = JournalFileBackend.append_logs

    def full(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        calls.append(1)
        if len(calls) < 3:
            return append(self, logs)
        with journal.path.open("ab") as stream:
            stream.write(b'{"op_code": 4, "wor')
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(JournalFileBackend, "append_logs", full)
        message = journal.add("s", study)
    assert message is not None and "No space left on device" in message
    assert journal.path.read_bytes().startswith(whole) and len(read(journal.path, "s").trials) == 5
    assert journal.add("s", study) is None and same(journal.path, "s", study)


def test_an_attribute_that_is_not_json_is_no_error(tmp_path: Path) -> None:
    journal, study = DashboardJournal(tmp_path / "j"), begun("maximize")
    trial = study.ask(SPACE)
    trial.set_user_attr("path", tmp_path)
    study.tell(trial, math.inf)
    message = journal.add("s", study)
    assert message is not None and "JSON" in message
    assert journal.add("other", run(begun("maximize"), 2)) is None


def test_nothing_is_printed_on_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = run(begun("maximize"), 2)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        DashboardJournal(tmp_path / "j").add("s", study)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO
    finally:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
    assert capfd.readouterr() == ("", "")


def test_a_journal_has_the_studies_of_a_local_store(tmp_path: Path) -> None:
    files, path = Files(tmp_path), tmp_path / journal_path("search/digits")
    copy = begin_journal(files, "search/digits")
    copy(study_run(study(trials=8, wave=8)))
    assert optuna.get_all_study_names(JournalStorage(JournalFileBackend(str(path)))) == ["all"]
    begin_journal(files, "search/digits")
    assert not path.exists(), "a new run begins a new journal"


FACTS = {"study": str, "study_id": str, "number": int, "wave": int}
COLUMNS = Columns({"method": str, "seed": int, "x": float, "width": int, **FACTS}, ("auroc",))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FIXED: dict[str, Any] = {"cohort": "c", "cohort_size": 8, "epochs_run": 1, "started": NOW, "ended": NOW}


@pytest.mark.parametrize(("statuses", "status"), [(["diverged"] * 8, 1), (["diverged"] * 7 + ["finished"], 0)])
def test_a_search_all_of_whose_trials_diverged_says_so_and_ends_with_status_1(
    statuses: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_study = study(trials=8, wave=8)
    trials = study_run(small_study).trials
    known_trials = [recorded([trial], small_study, state) for trial, state in zip(trials, statuses, strict=True)]
    ended = study_run(
        small_study,
        {number: trial for trials_by_number in known_trials for number, trial in trials_by_number.items()},
    )
    store = Store(tmp_path)
    rows = [
        {"trial_id": trial.id, **trial.config, **trial.facts, "status": state, "auroc": 0.5, **FIXED}
        for trial, state in zip(trials, statuses, strict=True)
    ]
    store.prepare("lost", COLUMNS)
    store.write("lost", "c", rows, COLUMNS)
    sweep = Sweep("about", {"digits": small_study.search})
    plan = Plan("lost", "digits", sweep, study_runs=[ended])
    assert plan.trials_left == 0 and finish(plan, store, COLUMNS, Request(plan.name)) == status
    out, err = capsys.readouterr()
    if status:
        assert "lost (digits), 8 trials: 8 diverged\nall 8 trials diverged, so none is best\n" in out
        assert err == "error: all trials of lost diverged in study all, so there is no best trial\n"
    else:
        assert "best auroc" in out and "1 complete, 7 diverged" in out and err == ""


def test_chosen_trials_have_the_name_of_their_study_in_this_plan_and_not_of_the_one_that_trained_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    definition = replace(study(trials=4, wave=4, metric=Metric("val_auroc", "maximize")), name="3")
    trials = study_run(definition).trials
    store, columns = Store(tmp_path), replace(COLUMNS, metrics=("auroc", "val_auroc"))
    rows = [
        {"trial_id": trial.id, **trial.config, **trial.facts, "study": "all", "status": "finished", **FIXED}
        | {"auroc": 0.5, "val_auroc": trial.config["x"]}
        for trial in trials
    ]
    store.prepare("again", columns)
    store.write("again", "c", rows, columns)
    sweep = Sweep("about", {"digits": definition.search})
    ended = study_run(definition, recorded(trials, definition))
    finish(Plan("again", "digits", sweep, study_runs=[ended]), store, columns, Request("again"))
    table = capsys.readouterr().out.splitlines()
    (best,) = (line for line in table if line.startswith("best "))
    assert re.match(r"best auroc: 0\.500 at x=.* \(trial 3\); chosen on validation images \(val_auroc \d\.\d+\)", best)
    assert not any("study all" in line for line in table)
