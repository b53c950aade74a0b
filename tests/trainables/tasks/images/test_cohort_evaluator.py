"""Metrics of the members of a cohort depend on no other member, on no other report, and do not change training."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainables.small import HERE, at_ends, metrics_of
from tests.trainables.tasks.images.evaluated import EVERYTHING, eval_config, last_metrics
from tests.trainables.training.judged import untimed, without_seconds
from trainables.methods.variational.vje import VJE
from trainables.reports import Report
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import Cohort
from trainables.training.train import train


def _members(**changes: Value) -> list[TrialConfig]:
    return [eval_config(**{"beta": beta, "seed": seed, **changes}) for beta, seed in ((0.5, 0), (7.0, 1), (2.0, 0))]


def _reports(*configs: TrialConfig, **how: Any) -> list[Report]:
    return list(train(configs, HERE, **how))


@cache
def _clean(width: int | None) -> list[Report]:
    return _reports(*_members(knn=5, probe_epochs=2), width=width)


@pytest.mark.parametrize("vector", ["z", "mu", "var"])
@pytest.mark.parametrize("width", [None, 1])
def test_features_that_are_not_finite_end_only_their_member(
    vector: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = _members(knn=5, probe_epochs=2)
    clean, real = _clean(width), VJE.embed

    def embed(self: VJE, images_BCHW: Tensor) -> dict[str, Tensor]:
        vectors = real(self, images_BCHW)
        return vectors | {vector: torch.where(self.beta == 7, torch.nan, vectors[vector])}

    monkeypatch.setattr(VJE, "embed", embed)
    reports = _reports(*configs, width=width)
    first = {"z": "knn_z", "mu": "knn_mu", "var": "var_mean"}[vector]
    bad = reports[-1].members[1]
    assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 1, f"{first} was not finite in epoch 1")
    assert set(bad.metrics.values()) == {None}
    assert untimed(reports[0].members)[::2] == untimed(clean[0].members)[::2]


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["mlp", "convnet"])
def test_metrics_are_the_same_fused_or_alone(encoder: str) -> None:
    configs = _members(**EVERYTHING, encoder=encoder, width=4)
    fused, in_turn = _reports(*configs), _reports(*configs, width=1)
    for member, config in enumerate(configs):
        alone = metrics_of(_reports(config), 0)
        assert metrics_of(in_turn, member) == alone
        for actual, expected in zip(metrics_of(fused, member), alone, strict=True):
            assert actual.keys() == expected.keys()
            for name, value in expected.items():  # of 537 images; the means of barely trained posteriors are all ties
                if not name.endswith("_mu"):
                    assert actual[name] == pytest.approx(value, rel=1e-3, abs=0.02 if "_z" in name else 4e-3), name


def test_evaluation_does_not_change_training() -> None:
    configs = _members(**EVERYTHING, encoder="convnet", width=4, score_samples=2)
    evaluated, left = (Cohort(configs, HERE, torch.device("cpu"), None) for _ in range(2))
    for cohort in (evaluated, left):
        cohort.epoch(0)
    drawn = torch.get_rng_state()
    first, again = evaluated.evaluate(last=True), evaluated.evaluate(last=True)
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)
    assert torch.equal(torch.get_rng_state(), drawn)
    for _ in range(2):
        for kind, tensors in evaluated.state()[0].items():
            assert all(torch.equal(tensor, left.state()[0][kind][name]) for name, tensor in tensors.items())
        losses, expected = evaluated.epoch(1), left.epoch(1)
        assert all(np.array_equal(losses[name], expected[name]) for name in expected)


def test_rare_reports_or_a_resume_change_no_metric() -> None:
    saved: list[bytes] = []
    configs = _members(**EVERYTHING, epochs=3)
    whole = _reports(*configs, save=at_ends(saved), save_every=0.0)
    (seldom,) = _reports(*_members(**EVERYTHING, epochs=3, report_every=3))
    assert len(whole) == 3 and untimed(whole[-1].members) == untimed(seldom.members)
    assert without_seconds(_reports(*configs, resume=saved[1])) == without_seconds(whole)


def test_metrics_of_an_untrained_encoder_do_not_depend_on_training_options() -> None:
    """They also equal those of a method that trains, because the initial weights depend on the seed."""
    options: dict[str, Value] = {"knn": 5, "probe_epochs": 2}
    (report,) = _reports(*(eval_config("random", lr=lr, seed=seed, **options) for lr, seed in ((1, 0), (9, 0), (1, 1))))
    assert (report.epoch, report.done) == (0, True)
    first, other, seed = report.members
    assert first == other and first.metrics != seed.metrics
    assert (first.status, first.epochs_run, first.error) == ("finished", 0, None)
    vje = last_metrics(eval_config(epochs=0, **options))
    assert dict(first.metrics) == pytest.approx({name: vje[name] for name in first.metrics}, abs=4e-3)
