"""The noise of a training: of each stream, epoch, step and purpose its own, and the same for members of one stream."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from tests.trainables.small import HERE
from tests.trainables.tasks.pairs_methods import GaussianMLP
from trainables.config import resolve
from trainables.contract import Batch, Losses, Noise, Noises
from trainables.training.cohort import Cohort

pytestmark = pytest.mark.usefixtures("pairs")


class Recorder:
    """Keeps the noise of every call of `losses` and `after_step`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losses: list[Tensor] = []
        self.after_step: list[Tensor] = []
        compute_losses = GaussianMLP.losses

        def losses(model: GaussianMLP, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
            self.losses.append(noise["jitter"])
            return compute_losses(model, batch, noise)

        def after_step_noise(model: GaussianMLP) -> Noises:
            return {"jitter": Noise((60, 1), kind="uniform")}

        def after_step(model: GaussianMLP, noise: Mapping[str, Tensor]) -> None:
            self.after_step.append(noise["jitter"])

        monkeypatch.setattr(GaussianMLP, "losses", losses)
        monkeypatch.setattr(GaussianMLP, "after_step_noise", after_step_noise)
        monkeypatch.setattr(GaussianMLP, "after_step", after_step)


def _train(epochs: int, seeds: tuple[int, ...]) -> None:
    """Members in stacks of one, whose methods see plain tensors; two steps an epoch."""
    configs = [resolve({"method": "gaussian_mlp", "examples": 120, "batch_size": 60, "seed": seed}) for seed in seeds]
    cohort = Cohort(configs, HERE, torch.device("cpu"), width=1)
    for epoch in range(epochs):
        cohort.epoch(epoch)


def test_every_stream_epoch_step_and_purpose_has_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    _train(epochs=2, seeds=(0, 1))
    noises = [*recorder.losses, *recorder.after_step]
    assert len(noises) == 2 * 2 * 2 * 2 and {noise.shape for noise in noises} == {(60, 1)}
    assert not any(torch.equal(noises[i], noises[j]) for i in range(len(noises)) for j in range(i))


def test_members_of_one_stream_share_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    _train(epochs=1, seeds=(3, 3))
    for noises in (recorder.losses, recorder.after_step):
        assert len(noises) == 4 and torch.equal(noises[0], noises[1]) and torch.equal(noises[2], noises[3])
