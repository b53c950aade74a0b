"""Functions train one after the other, and go on where their process ended."""

import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import for_each
from trainables import catalog
from trainables.config import resolve
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.method import method_of_function
from trainables.functions.trial import RunningTrial
from trainables.reports import EpochRanking, Member, Move, Report, Stopped, UnusableGpu, Verdict

LOSS = EpochRanking("loss", maximize=False)
CPU = torch.device("cpu")


@dataclass
class Run:
    """What a cohort of functions did."""

    members: Sequence[Member] = ()
    records: dict[tuple[int, int], Mapping[str, float | None]] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    kept: dict[int, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    saved: list[bytes] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def emit(self, report: Report) -> None:
        self.reports.append(report)
        self.records |= {(record.member, record.epoch): record.metrics for record in report.new}
        self.members = report.members

    @property
    def outcome(self) -> Any:
        """All but times."""
        return [replace(member, seconds=0.0) for member in self.members], self.records


def train(
    function: Callable[..., Any],
    *keys: Mapping[str, Any],
    run: Run | None = None,
    checkpoint: bytes | None = None,
    ranking: EpochRanking | None = LOSS,
    retries: int = 3,
    population: bool = False,
    **callbacks: Any,
) -> Run:
    """Train the trials with these values of a function."""
    run, name = run or Run(), f"own:function{id(function.__code__)}"
    catalog._own_methods[name] = method = method_of_function(name, function)
    configs = [resolve({"method": name, **values}) for values in keys or ({},)]
    own = FunctionCallbacks(
        emit=run.emit,
        save=run.saved.append,
        keep=run.kept.__setitem__,
        say=lambda index, error: run.said.append(error),
        **{"save_every": 0.0, **callbacks},
    )
    cohort = FunctionCohort(
        configs,
        method,
        CPU,
        own,
        ranking=ranking,
        retries=retries,
        population=population,
        reserved=frozenset({"status"}),
    )
    cohort.train(checkpoint)
    return run


def walk(order: Literal["save first", "report first", "yield"], every: int = 1) -> Callable[..., Any]:
    """A function whose numbers depend on its state, which it saves in this order every so many epochs."""

    def function(trial: RunningTrial, rate: float = 0.1, seed: int = 0, epochs: int = 5) -> None:
        torch.manual_seed(seed)
        x, start = torch.zeros(2), 0
        if (state := trial.resume()) is not None:
            x, start = state["x"], state["epoch"]
            torch.set_rng_state(state["random"])
        for epoch in range(start + 1, epochs + 1):
            x = x + rate * torch.randn(2)
            state = {"x": x, "epoch": epoch, "random": torch.get_rng_state()}
            if order == "save first" and epoch % every == 0:
                trial.save(state)
            trial.report(epoch, loss=float(x.sum()), mean=float(x.mean()))
            if order == "report first" and epoch % every == 0:
                trial.save(state)
        trial.keep({"x": x})

    def generator(rate: float = 0.1, seed: int = 0, epochs: int = 5) -> Any:
        torch.manual_seed(seed)
        x = torch.zeros(2)
        for _ in range(epochs):
            x = x + rate * torch.randn(2)
            yield {"loss": float(x.sum()), "mean": float(x.mean())}

    return generator if order == "yield" else function


TRIALS = [{"rate": 0.1, "seed": 0}, {"rate": 0.2, "seed": 0}, {"rate": 0.1, "seed": 1, "epochs": 3}]


def test_the_three_forms_report() -> None:
    def returns(rate: float = 1.0) -> dict[str, float]:
        return {"loss": rate}

    def yields(rate: float = 1.0) -> Any:
        yield {"loss": rate, "other": True}
        yield {"loss": np.float32(0.5), "epoch": 4}

    def tells(trial: RunningTrial, rate: float = 1.0) -> None:
        trial.report(loss=torch.tensor(rate))
        trial.report(7, loss=0.25)

    assert train(returns).records == {(0, 1): {"loss": 1.0}}
    assert train(yields).records == {(0, 1): {"loss": 1.0, "other": 1.0}, (0, 4): {"loss": 0.5}}
    run = train(tells, {"rate": 2.0}, {"rate": 3.0})
    assert run.records == {(0, 1): {"loss": 2.0}, (0, 7): {"loss": 0.25}, (1, 1): {"loss": 3.0}, (1, 7): {"loss": 0.25}}
    assert [(member.status, member.epochs_run, member.metrics) for member in run.members] == [
        ("finished", 7, {"loss": 0.25})
    ] * 2
    assert run.reports[-1].done and not any(report.done for report in run.reports[:-1])


def test_a_row_has_the_latest_value_of_each_metric() -> None:
    def function() -> Any:
        yield {"loss": 1.0, "early": 3.0}
        yield {"loss": 0.5, "early": None}

    assert train(function).members[0].metrics == {"loss": 0.5, "early": 3.0}


@settings(max_examples=60, deadline=None)
@given(
    order=st.sampled_from(["save first", "report first", "yield"]),
    every=st.integers(1, 3),
    asked=st.lists(st.integers(0, 14), min_size=1, max_size=4),
)
def test_trials_that_were_stopped_anywhere_end_as_undisturbed_ones(order: Any, every: int, asked: list[int]) -> None:
    """Each process is asked to stop after so many questions."""
    function, undisturbed, run = walk(order, every), train(walk(order, every), *TRIALS), Run()
    for questions in asked:
        left = [questions]

        def stop(left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        try:
            train(function, *TRIALS, run=run, checkpoint=run.saved[-1] if run.saved else None, stop=stop)
            break
        except Stopped as stopped:
            assert "saved" in str(stopped)
    else:
        train(function, *TRIALS, run=run, checkpoint=run.saved[-1] if run.saved else None)
    assert run.outcome == undisturbed.outcome
    assert {index: kept["x"].tolist() for index, kept in run.kept.items()} == {
        index: kept["x"].tolist() for index, kept in undisturbed.kept.items()
    }


def test_every_checkpoint_continues_to_the_undisturbed_end() -> None:
    """Whenever the process is killed, the last checkpoint that was written is continued."""
    for order in ("save first", "report first"):
        whole = train(walk(order), *TRIALS)
        assert len(whole.saved) > 5
        for checkpoint in whole.saved:
            again = train(walk(order), *TRIALS, checkpoint=checkpoint)
            assert again.outcome == whole.outcome


def test_a_checkpoint_serves_the_trials_that_are_left_of_its_cohort_and_no_others() -> None:
    whole = train(walk("save first"), *TRIALS)
    part = train(walk("save first"), TRIALS[1], checkpoint=whole.saved[2])
    assert replace(part.members[0], seconds=0) == replace(whole.members[1], seconds=0)
    other = train(walk("save first"), {"rate": 0.7}, checkpoint=whole.saved[-1])
    assert other.outcome == train(walk("save first"), {"rate": 0.7}).outcome


def test_a_damaged_checkpoint_is_said_and_not_used() -> None:
    lines: list[str] = []
    whole = train(walk("save first"), *TRIALS)
    for damaged in (b"nonsense", whole.saved[-1][:-9], bytes([whole.saved[-1][0] ^ 1]) + whole.saved[-1][1:]):
        again = train(walk("save first"), *TRIALS, checkpoint=damaged, notify=lines.append)
        assert again.outcome == whole.outcome
    assert len(lines) == 3 and all(line.startswith("its checkpoint cannot be used: ") for line in lines)


@for_each("state", [b"bytes", {"list": [1, "a", None, torch.ones(2)]}])
def test_states_come_back(state: Any) -> None:
    def function(trial: RunningTrial) -> None:
        resumed = trial.resume()
        if resumed is None:
            trial.save(state)
            trial.report(1, loss=1.0)
        trial.report(2, loss=float(str(resumed) == str(state)))

    first = train(function)
    assert first.members[0].metrics == {"loss": 0.0}
    assert train(function, checkpoint=first.saved[0]).members[0].metrics == {"loss": 1.0}


def test_a_folder_comes_back() -> None:
    def function(trial: RunningTrial) -> None:
        if (resumed := trial.resume()) is None:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "sub").mkdir()
                (Path(folder) / "sub" / "state.txt").write_text("12")
                trial.save(folder)
                trial.report(1, loss=1.0)
        else:
            trial.report(2, loss=int((resumed / "sub" / "state.txt").read_text()))

    first = train(function)
    assert train(function, checkpoint=first.saved[0]).members[0].metrics == {"loss": 12.0}


def test_a_state_of_other_objects_is_refused_with_a_way_out() -> None:
    def function(trial: RunningTrial) -> None:
        trial.save({"model": FunctionCallbacks})
        trial.report(1, loss=1.0)

    (member,) = train(function).members
    assert member.status == "failed" and "pickle.dumps turns it into bytes" in str(member.error)


# What fails, and why


def _raises_once_here(calls: list[int]) -> None:
    calls.append(1)
    if len(calls) == 1:
        raise ValueError("the first time")


def test_an_exception_is_tried_again_unless_it_comes_twice_at_one_place() -> None:
    calls: list[int] = []

    def once() -> dict[str, float]:
        _raises_once_here(calls)
        return {"loss": 1.0}

    def always(rate: float = 0.0) -> dict[str, float]:
        calls.append(1)
        return {"loss": rate or float("none")}

    assert train(once).members[0].status == "finished"
    calls.clear()
    run = train(always, {"rate": 0.0}, {"rate": 1.0})
    assert [member.status for member in run.members] == ["failed", "finished"] and len(calls) == 3
    line = always.__code__.co_firstlineno + 2
    assert run.members[0].error == f"test_cohort.py, line {line}: ValueError: could not convert string to float: 'none'"
    assert run.said == [run.members[0].error]


def test_an_unusable_gpu_ends_the_cohort_and_fails_no_trial() -> None:
    """The other trials, too, would fail on it."""

    def function(rate: float = 0.1) -> float:
        raise torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")

    run = Run()
    with pytest.raises(UnusableGpu, match=r"^CUDA error: uncorrectable ECC error encountered$"):
        train(function, {"rate": 1.0}, {"rate": 2.0}, run=run)
    assert not run.said


def test_without_retries_a_function_is_called_once() -> None:
    calls: list[int] = []

    def function() -> dict[str, float]:
        _raises_once_here(calls)
        return {"loss": 1.0}

    assert train(function, retries=0).members[0].status == "failed"


def _bad(report: Callable[[RunningTrial], Any]) -> Callable[..., Any]:
    def function(trial: RunningTrial) -> Any:
        return report(trial)

    return function


def _twice(trial: RunningTrial) -> None:
    trial.report(2, loss=1.0)
    trial.report(2, loss=1.0)


def _from_thread(trial: RunningTrial) -> None:
    errors: list[BaseException] = []

    def report() -> None:
        try:
            trial.report(1, loss=1.0)
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=report)
    thread.start()
    thread.join()
    raise errors[0]


def _many(trial: RunningTrial) -> None:
    for _ in range(100_001):
        trial.report(loss=1.0)


@for_each(("report", "error"), [
    (lambda trial: None, "a function must return a dict of numbers, yield dicts of numbers, or call trial.report, but"),
    (lambda trial: [1.0], "but it returned list"),
    (lambda trial: iter([1.0]), "a function must yield dicts of numbers, but it yielded 1.0"),
    (lambda trial: {}, "a report must contain at least one metric"),
    (lambda trial: {"loss": "low"}, "a metric must be a number, but loss is str 'low'"),
    (lambda trial: {"loss": [1.0, 2.0]}, "a metric must be a number, but loss is list"),
    (lambda trial: {"loss": np.ones(2)}, "a metric must be a number, but loss is ndarray"),
    (lambda trial: {f"metric {number}": 1.0 for number in range(1001)}, "a trial must have at most 1000 metrics"),
    (lambda trial: {"status": 1.0}, "that of another column, but got 'status'"),
    (lambda trial: {"workers": 1.0}, "that of another column, but got 'workers'"),
    (lambda trial: trial.report(1.5, loss=1.0), "an epoch must be a whole number of at least 0, but got 1.5"),
    (lambda trial: trial.report(-1, loss=1.0), "an epoch must be a whole number of at least 0"),
    (_twice, "epochs must ascend, but got epoch 2 after 2"),
    (_from_thread, "must be called in the thread that runs the function"),
    (_many, "a trial must report at most 100000 times"),
    (lambda trial: sys.exit("no data"), "SystemExit: no data"),
])  # fmt: skip
def test_what_cannot_be_a_row_fails_by_name(report: Callable[[RunningTrial], Any], error: str) -> None:
    (member,) = train(_bad(report)).members
    assert member.status == "failed" and error in str(member.error) and member.metrics == {}


def test_a_function_may_leave_by_sys_exit() -> None:
    def function(trial: RunningTrial) -> None:
        trial.report(loss=1.0)
        sys.exit()

    assert train(function).members[0].status == "finished"


def test_a_report_after_the_end_is_refused() -> None:
    trials: list[RunningTrial] = []

    def function(trial: RunningTrial) -> None:
        trials.append(trial)
        trial.report(loss=1.0)

    train(function)
    with pytest.raises(ValueError, match="must not be called after the function has ended"):
        trials[0].report(loss=1.0)


def test_the_working_directory_is_that_of_before(tmp_path: Path) -> None:
    def function() -> dict[str, float]:
        os.chdir(tmp_path)
        return {"loss": 1.0}

    before = os.getcwd()
    train(function)
    assert os.getcwd() == before


def test_a_process_that_a_function_forks_ends_with_it(tmp_path: Path) -> None:
    def function() -> dict[str, float]:
        if os.fork() == 0:
            return {"loss": 2.0}
        os.wait()
        return {"loss": 1.0}

    run = train(function)
    assert run.members[0].metrics == {"loss": 1.0} and run.reports[-1].done


@for_each("value", [math.nan, math.inf])
def test_a_ranking_metric_that_is_not_finite_has_diverged(value: float) -> None:
    def function(rate: float = 0.0) -> Any:
        yield {"loss": 1.0, "other": value}
        yield {"loss": value}
        yield {"loss": 1.0}

    run = train(function)
    assert run.members[0].status == "diverged" and run.members[0].epochs_run == 2
    assert run.members[0].error == "loss was not finite in epoch 2"
    assert run.records[0, 1] == {"loss": 1.0, "other": None}
    assert train(function, ranking=None).members[0].status == "finished"


def test_patience_ends_a_trial_that_does_not_get_better() -> None:
    def function() -> Any:
        for loss in (3.0, 2.0, 2.0, 2.5, 1.0):
            yield {"loss": loss}

    run = train(function, {"patience": 2}, {"patience": 0})
    assert [(member.status, member.epochs_run) for member in run.members] == [("finished", 4), ("finished", 5)]


def test_without_own_seeds_trials_repeat_by_their_seed() -> None:
    def function(seed: int = 0) -> dict[str, float]:
        return {"loss": float(np.random.rand()), "other": float(torch.rand(()))}

    run = train(function, {"seed": 3}, {"seed": 4})
    assert run.records[0, 1] != run.records[1, 1]
    assert train(function, {"seed": 4}).records[0, 1] == run.records[1, 1]


# Compared while they train


@for_each("order", ["save first", "report first", "yield"])
def test_members_that_are_compared_wait_for_each_other(order: Any) -> None:
    """What they would be without comparison, up to the epoch at which a judge prunes."""
    alone, judged = train(walk(order), *TRIALS[:2]), list[tuple[int, list[float | None]]]()

    def judge(report: Report) -> Verdict:
        judged.append((report.epoch, [member.metrics["loss"] for member in report.members]))
        return Verdict(pruned={1: "too high"} if report.epoch == 4 else {})

    run = train(walk(order), *TRIALS[:2], judge=judge, compared=lambda epoch: epoch in (2, 4))
    assert judged == [(epoch, [alone.records[index, epoch]["loss"] for index in (0, 1)]) for epoch in (2, 4)]
    assert replace(run.members[0], seconds=0) == replace(alone.members[0], seconds=0)
    assert (run.members[1].status, run.members[1].epochs_run, run.members[1].error) == ("pruned", 4, "too high")


def test_a_member_alone_is_compared_where_it_reports() -> None:
    def judge(report: Report) -> Verdict:
        return Verdict(pruned={0: "too high"} if report.epoch == 3 else {})

    run = train(walk("yield"), judge=judge, compared=lambda epoch: epoch in (1, 3))
    assert (run.members[0].status, run.members[0].epochs_run) == ("pruned", 3)


def test_a_function_that_does_not_report_where_it_is_compared_fails() -> None:
    def function(epochs: int = 4) -> Any:
        yield {"loss": 1.0, "epoch": 2}
        yield {"loss": 1.0, "epoch": 4}

    run = train(function, judge=lambda report: Verdict(), compared=lambda epoch: epoch == 3)
    assert "trials are compared at epoch 3, so each must report there" in str(run.members[0].error)


def test_a_member_of_a_population_goes_on_from_the_state_of_another() -> None:
    def function(trial: RunningTrial, rate: float = 0.0, epochs: int = 4) -> None:
        x, start = trial.resume() or (0.0, 0)
        for epoch in range(start + 1, epochs + 1):
            x += rate
            trial.save((x, epoch))
            trial.report(epoch, loss=x)

    def judge(report: Report) -> Verdict:
        return Verdict(moves={1: Move(0, {"rate": 10.0})})

    run = train(
        *(function, {"rate": 1.0}, {"rate": 5.0}), judge=judge, compared=lambda epoch: epoch == 2, population=True
    )
    assert [run.records[1, epoch]["loss"] for epoch in (1, 2, 3, 4)] == [5.0, 10.0, 12.0, 22.0]
    assert run.members[0].metrics == {"loss": 4.0} and run.members[0].schedule is None
    assert run.members[1].schedule == '[{"epoch": 2, "from": 0, "rate": 10.0}]'
