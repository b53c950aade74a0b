"""The training loop: which reports are made when, with which pictures, and members that diverge or fail alone."""

import io
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.cases import for_each
from tests.trainables.methods import method_configs
from tests.trainables.small import HERE, at_ends, config_of, content_of, metrics_of, three
from tests.trainables.training.judged import assert_near, without_seconds
from trainables.config import resolve
from trainables.contract import Losses
from trainables.methods.variational.vje import VJE
from trainables.reports import Report, Verdict
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.metric_names import metric_names
from trainables.training.train import Callbacks, Checkpointing, train


@for_each(("every", "epochs"), [(1, [1, 2, 3]), (2, [2, 3]), (3, [3]), (9, [3])])
def test_reports_come_every_so_often_and_at_the_end(every: int, epochs: list[int]) -> None:
    reports = list(train([config_of(report_every=every, epochs=3)], HERE))
    assert [report.epoch for report in reports] == epochs
    assert [report.done for report in reports] == [False] * (len(epochs) - 1) + [True]
    assert [report.members[0].status for report in reports] == ["running"] * (len(epochs) - 1) + ["finished"]
    assert [report.members[0].epochs_run for report in reports] == epochs
    assert [report.seconds for report in reports] == sorted(report.seconds for report in reports)


def test_report_every_changes_no_metric() -> None:
    often, seldom = (list(train(three(report_every=every, epochs=3), HERE)) for every in (1, 3))
    assert [metrics_of(often[-1:], i) for i in range(3)] == [metrics_of(seldom, i) for i in range(3)]


@pytest.mark.parametrize("normal_class", [3, None])
def test_every_metric_is_named_beforehand(normal_class: int | None) -> None:
    config = config_of(normal_class=normal_class, epochs=1)
    (report,) = train([config], HERE)
    assert tuple(report.members[0].metrics) == metric_names(config, 10)
    assert any("auroc" in name for name in metric_names(config, 10)) == (normal_class is not None)
    assert all(isinstance(value, float) for value in report.members[0].metrics.values())


def _spoil(monkeypatch: pytest.MonkeyPatch, verb: str, spoilt: Callable[[Any, Tensor], Any]) -> None:
    """Members with beta = 7 get what `spoilt` makes of the result of this verb of VJE; it is given which they are."""
    real = getattr(VJE, verb)

    def call(self: VJE, *inputs: Any) -> Any:
        return spoilt(real(self, *inputs), self.beta == 7)

    monkeypatch.setattr(VJE, verb, call)


def _nan_loss(losses: Losses, bad: Tensor) -> Losses:
    return losses._replace(total=torch.where(bad, torch.nan, losses.total))


def _infinite_score(scores: dict[str, Tensor], bad: Tensor) -> dict[str, Tensor]:
    return scores | {"rad": torch.where(bad, torch.inf, scores["rad"])}


def _neighbours() -> list[TrialConfig]:
    return [config_of(beta=0.5), config_of(beta=7.0), config_of(beta=2.0, seed=1)]


@pytest.mark.parametrize("width", [None, 1])
def test_a_loss_that_is_not_finite_ends_only_that_member(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = list(train(_neighbours(), HERE, width=width))
    _spoil(monkeypatch, "losses", _nan_loss)
    reports = list(train(_neighbours(), HERE, width=width))
    for member in (0, 2):
        assert_near(reports, clean, member)
    assert [report.members[0].status for report in reports] == ["running", "running", "finished"]
    for report in reports:
        bad = report.members[1]
        error = "loss was not finite in epoch 1, first at step 1 of 2 (loss)"
        assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 1, error)
        assert set(bad.metrics.values()) == {None} and set(bad.metrics) <= set(metric_names(config_of(), 10))
    assert [report.epoch for report in reports] == [2, 4, 5]


def test_divergence_is_detected_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TrainingCohort.epoch

    def epoch(self: TrainingCohort, number: int, *begun: Any) -> dict[str, np.ndarray]:
        losses = real(self, number, *begun)
        losses["loss"][1] = np.nan if number == 2 else losses["loss"][1]  # the third epoch alone
        return losses

    monkeypatch.setattr(TrainingCohort, "epoch", epoch)
    reports = list(train(three(), HERE))
    assert [report.members[1].status for report in reports] == ["running", "diverged", "diverged"]
    assert {report.members[1].error for report in reports[1:]} == {"loss was not finite in epoch 3"}
    assert {report.members[1].epochs_run for report in reports[1:]} == {3}


def test_a_diverged_member_stays_diverged_through_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, "losses", _nan_loss)
    saved: list[bytes] = []
    reports = list(train(_neighbours(), HERE, checkpointing=Checkpointing(save=at_ends(saved), every=0.0)))
    monkeypatch.undo()
    resumed = list(train(_neighbours(), HERE, checkpointing=Checkpointing(saved[2])))
    assert without_seconds(resumed) == without_seconds(reports)


def test_a_huge_learning_rate_diverges_and_does_not_affect_other_members() -> None:
    def cohort(lr: float) -> list[TrialConfig]:
        return [config_of(beta=0.5), config_of(lr=lr), config_of(beta=2.0, lr=0.01)]

    clean, spoilt = list(train(cohort(0.03), HERE)), list(train(cohort(1e30), HERE))
    assert spoilt[-1].members[1].status == "diverged" and "\n" not in (spoilt[-1].members[1].error or "\n")
    without = list(train([cohort(0.03)[0], cohort(0.03)[2]], HERE))
    for member, alone in ((0, 0), (2, 1)):
        assert_near(spoilt, clean, member)
        assert_near(spoilt, without, member, alone)


def test_a_score_that_is_not_finite_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = list(train(_neighbours(), HERE))
    _spoil(monkeypatch, "score", _infinite_score)
    reports = list(train(_neighbours(), HERE))
    bad = reports[-1].members[1]
    assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 2, "auroc_rad was not finite in epoch 2")
    assert bad.metrics == dict.fromkeys(metric_names(config_of(), 10))
    for member in (0, 2):
        assert metrics_of(reports[:1], member) == metrics_of(clean[:1], member)
        assert_near(reports, clean, member)


@pytest.mark.parametrize(("verb", "spoilt", "epoch"), [("losses", _nan_loss, 1), ("score", _infinite_score, 2)])
def test_training_stops_when_all_members_have_diverged(
    verb: str, spoilt: Callable[[Any, Tensor], Any], epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spoil(monkeypatch, verb, spoilt)
    (report,) = train([config_of(beta=7.0), config_of(beta=7.0, seed=1)], HERE)
    assert report.done and report.epoch == epoch
    assert [member.status for member in report.members] == ["diverged"] * 2


def test_members_that_all_have_diverged_are_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large data set an evaluation takes longer than an epoch, and here its result would not be used."""
    evaluated: list[bool] = []
    real = TrainingCohort.evaluate

    def evaluate(self: TrainingCohort, last: bool) -> dict[str, np.ndarray]:
        evaluated.append(last)
        return real(self, last)

    monkeypatch.setattr(TrainingCohort, "evaluate", evaluate)
    list(train(_neighbours(), HERE))
    assert evaluated == [False, False, True]
    _spoil(monkeypatch, "losses", _nan_loss)
    (report,) = train([config_of(beta=7.0)], HERE)
    assert evaluated == [False, False, True] and report.members[0].metrics == {"loss": None}


def test_zero_epochs_give_one_report_of_the_untrained_members() -> None:
    saved: list[bytes] = []
    (report,) = train(three(epochs=0), HERE, checkpointing=Checkpointing(save=at_ends(saved), every=0.0))
    assert (report.epoch, report.done) == (0, True) and report.seconds > 0 and not saved
    for member in report.members:
        assert (member.status, member.epochs_run, member.error) == ("finished", 0, None)
        assert tuple(member.metrics) == tuple(name for name in metric_names(config_of(), 10) if "loss" not in name)
    alone = [next(train([config], HERE)).members[0].metrics for config in three(epochs=0)]
    assert [dict(member.metrics) for member in report.members] == [pytest.approx(dict(metrics)) for metrics in alone]
    assert alone[0] != alone[1]


def test_untrained_members_diverge_if_a_score_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, "score", _infinite_score)
    (report,) = train([config_of(beta=0.5, epochs=0), config_of(beta=7.0, epochs=0)], HERE)
    sound, bad = report.members
    assert sound.status == "finished" and None not in sound.metrics.values()
    assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 0, "auroc_rad was not finite in epoch 0")
    assert set(bad.metrics.values()) == {None} and report.done


@for_each(("name", "status"), [("var_cv", "finished"), ("var_mean", "diverged"), ("other", "diverged")])
def test_only_metrics_that_may_be_undefined_may_be_null(
    name: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evaluate(self: TrainingCohort, last: bool) -> dict[str, np.ndarray]:
        members = list(self.members)
        return {"known": np.array([1.0, 2.0])[members], name: np.array([np.nan, 4.0])[members]}

    monkeypatch.setattr(TrainingCohort, "evaluate", evaluate)
    reports = list(train([config_of(beta=0.5), config_of(beta=1.0)], HERE))
    first, second = reports[-1].members
    assert first.status == status and first.metrics[name] is None and second.metrics[name] == 4
    assert first.metrics["known"] == (1 if status == "finished" else None)
    assert second.status == "finished" and len(reports) == 3


@pytest.mark.parametrize("width", [None, 1])
def test_bfloat16_is_close_to_float32_and_not_the_same(width: int | None) -> None:
    full, half = (list(train(three(precision=kind, epochs=2), HERE, width=width)) for kind in ("float32", "bfloat16"))
    for member in range(3):
        actual, expected = metrics_of(half, member)[-1], metrics_of(full, member)[-1]
        assert actual["loss"] == pytest.approx(expected["loss"], rel=0.02, abs=0.02)
        assert actual["loss"] != expected["loss"]
        assert actual["auroc_joint"] == pytest.approx(expected["auroc_joint"], abs=0.03)


def test_bfloat16_keeps_weights_in_float32() -> None:
    saved: list[bytes] = []
    list(
        train(
            [config_of(precision="bfloat16", epochs=2)],
            HERE,
            checkpointing=Checkpointing(save=at_ends(saved), every=0.0),
        )
    )
    state = content_of(saved[0])["state"][0]
    trained = [state[kind] for kind in ("parameters", "buffers", "velocity")]
    assert {tensor.dtype for tensors in trained for tensor in tensors.values()} == {torch.float32}


def test_channels_last_gives_the_same() -> None:
    plain, last = (list(train(three(channels_last=flag, epochs=2), HERE)) for flag in (False, True))
    assert without_seconds(plain) == without_seconds(last)


def test_sampled_scores_are_reproducible_alone_or_fused() -> None:
    configs = three(score_samples=4, epochs=2)
    fused, again = list(train(configs, HERE)), list(train(configs, HERE))
    assert without_seconds(fused) == without_seconds(again)
    for actual, expected in zip(metrics_of(list(train(configs[1:2], HERE)), 0), metrics_of(fused, 1), strict=True):
        assert actual == pytest.approx(expected, rel=1e-3, abs=1e-3)
    means = metrics_of(list(train(three(epochs=2), HERE)), 0)[-1]
    sampled = metrics_of(fused, 0)[-1]
    assert sampled["auroc_joint"] != means["auroc_joint"] and sampled["auroc_variance"] == means["auroc_variance"]


def test_members_with_unequal_steps_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^the members of a cohort must have the same number of steps per epoch, but these"
    ):
        list(train([config_of(), config_of(normal_class=None)], HERE))


def test_learning_rate_follows_the_schedule_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule counts steps rather than epochs, in the warm-up, too: 5 epochs of 2 steps, 2 epochs of warm-up."""
    rates: list[float] = []
    real = TrainingCohort.step

    def step(self: TrainingCohort, epoch: int, number: int, orders: Any, rate: float, *rest: Any) -> dict[str, Tensor]:
        rates.append(rate)
        return real(self, epoch, number, orders, rate, *rest)

    monkeypatch.setattr(TrainingCohort, "step", step)
    list(train([config_of(warmup_epochs=2)], HERE))
    assert rates == pytest.approx([0, 0.25, 0.5, 0.75, 1, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)


PNG = b"\x89PNG"


def members(**changes: Value) -> list[TrialConfig]:
    """Three VAEs with two seeds."""
    given: dict[str, Value] = {
        "method": "vae", "encoder": "relu_mlp", "hidden": "16", "decoder_hidden": "16", "features": 4,
        "batch_size": 512, "epochs": 2, "report_every": 1, "reconstructions": True, "sheets": True,
    }  # fmt: skip
    return [resolve({**given, "seed": seed, "lr": lr, **changes}) for seed, lr in ((0, 0.01), (1, 0.01), (0, 0.05))]


@cache
def whole() -> tuple[list[Report], list[bytes]]:
    """The reports of a training, and all its checkpoints."""
    saved: list[bytes] = []
    return list(train(members(), HERE, checkpointing=Checkpointing(save=saved.append, every=0.0))), saved


def pictures_of(report: Report) -> list[dict[str, bytes]]:
    return [dict(member.pictures) for member in report.members]


def test_each_member_of_the_last_report_has_pictures_of_its_own() -> None:
    *earlier, last = whole()[0]
    assert [pictures_of(report) for report in earlier] == [[{}, {}, {}]]
    grids = [pictures["reconstructions.png"] for pictures in pictures_of(last)]
    assert len(set(grids)) == 3 and all(Image.open(io.BytesIO(grid)).format == "PNG" for grid in grids)


@pytest.mark.parametrize("width", [1, 2])
def test_a_member_has_the_same_pictures_whatever_is_stacked_with_it(width: int) -> None:
    """Grey levels may differ by the rounding of another stack."""
    (*_, last), (*_, expected) = train(members(), HERE, width=width), whole()[0]
    for pictures, others in zip(pictures_of(last), pictures_of(expected), strict=True):
        own, other = (Image.open(io.BytesIO(grids["reconstructions.png"])) for grids in (pictures, others))
        assert own.size == other.size
        assert max(abs(a - b) for a, b in zip(own.tobytes(), other.tobytes(), strict=True)) <= 1


def test_no_checkpoint_has_pictures_and_a_resume_makes_them_again() -> None:
    reports, saved = whole()
    assert len(saved) > 2 and not any(PNG in checkpoint for checkpoint in saved)
    for checkpoint in (saved[0], saved[-1]):
        again = list(train(members(), HERE, checkpointing=Checkpointing(checkpoint)))
        assert without_seconds(again) == without_seconds(reports) and again[-1].members[0].pictures


def test_members_that_were_not_trained_have_pictures() -> None:
    (report,) = train(members(epochs=0), HERE)
    assert all(pictures.keys() == {"reconstructions.png"} for pictures in pictures_of(report))


def test_neither_a_pruned_member_nor_one_that_diverged_has_pictures_and_the_others_keep_their_own() -> None:
    configs = [*members(), *members(lr=1e30)[:1]]
    *_, last = train(configs, HERE, callbacks=Callbacks(lambda report: Verdict(pruned={0: "bad luck"})))
    assert [member.status for member in last.members] == ["pruned", "finished", "finished", "diverged"]
    assert [bool(pictures) for pictures in pictures_of(last)] == [False, True, True, False]
    assert pictures_of(last)[1:3] == pictures_of(whole()[0][-1])[1:]


def test_trials_that_ask_for_none_have_none() -> None:
    *_, last = train(members(sheets=False), HERE)
    assert pictures_of(last) == [{}, {}, {}]


NO_JITTER = 1e-30
"""Lost in float32. The moment of 60 images in more than 60 dimensions is then singular."""
SINGULAR: Mapping[str, Mapping[str, Value]] = {
    "gje": {"projection": 64},
    "hsic": {"projection": 128},
    "gmje_mdn": {"projection": 128},
    "gpje": {"random_features": 128},
}
"""Method with a fusible jitter -> what makes its matrix singular."""


@pytest.mark.slow
@for_each(("method", "width"), [*((method, None) for method in SINGULAR), ("gje", 2)])
def test_a_matrix_that_is_not_positive_definite_fails_its_own_member(method: str, width: int | None) -> None:
    """The others of its stack train as they do without it; with `width=2` it is in the first of two stacks."""

    def reports(*epsilons: float) -> list:
        configs = [
            method_configs.config_of(method, epochs=1, epsilon=epsilon, **SINGULAR[method]) for epsilon in epsilons
        ]
        return list(train(configs, HERE, width=width))

    spoilt, clean = reports(0.1, NO_JITTER, 0.3), reports(0.1, 0.3)
    bad = spoilt[-1].members[1]
    assert bad.status == "diverged" and bad.error
    assert bad.error.startswith("loss was not finite in epoch 1, first at step 1 of 2 (loss")
    for member, alone in ((0, 0), (2, 1)):
        assert spoilt[-1].members[member].status == "finished"
        assert_near(spoilt, clean, member, alone)
