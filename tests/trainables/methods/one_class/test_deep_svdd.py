"""Deep SVDD: its centre and its radius, its two phases, and how it collapses.

Shapes: K members, N images, D dimensions of a representation.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainables.methods.method_configs import images_of_tests
from tests.trainables.small import HERE, image_trial
from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.learners.stack import Stack
from trainables.methods.one_class.deep_svdd import DeepSVDD
from trainables.reports import Report
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.stacks import build_models
from trainables.training.train import Callbacks, Checkpointing, train

CPU = torch.device("cpu")
NORMAL = 3


def config_of(**changes: Value) -> TrialConfig:
    small: dict[str, Value] = {
        "method": "deep_svdd", "normal_class": NORMAL, "encoder": "lenet", "features": 16, "decoder": "lenet",
        "epochs": 3, "batch_size": 60, "optimiser": "adam", "lr": 0.01,
    }  # fmt: skip
    return resolve({**small, **changes})


def normal_images(label: int) -> Tensor:
    """All training images of a class, in [0, 1]."""
    digits = load("digits", HERE)
    assert isinstance(digits.train_images, Tensor)
    return digits.train_images[digits.train_labels == label] / digits.levels


def stack_of(cohort: TrainingCohort) -> Stack:
    (stack,) = cohort._stacks
    assert isinstance(stack, Stack)
    return stack


def centre_of(stack: Stack, member: int) -> Tensor:
    return stack.buffers["method.sum_D"][member] / stack.buffers["method.observed"][member]


@pytest.mark.parametrize("pretrain_epochs", [0, 2])
def test_the_centre_is_the_mean_output_before_the_first_step_and_stays(pretrain_epochs: int) -> None:
    """Of all training images without augmentation, in evaluation mode, of each member's own class and weights; the
    classes of the digits have different numbers of images."""
    changes: dict[str, Value] = {"pretrain_epochs": pretrain_epochs, "rotation": 20.0, "normalise": False}
    cohort = TrainingCohort([config_of(normal_class=label, **changes) for label in (3, 8)], HERE, CPU, None)
    stack = stack_of(cohort)
    for epoch in range(pretrain_epochs):
        cohort.epoch(epoch)
    images = [normal_images(label) for label in (3, 8)]
    expected = [stack.evaluate("embed", images_NCHW)["z"][member].mean(0) for member, images_NCHW in enumerate(images)]
    cohort.begin_epoch(pretrain_epochs)
    for member, expected_D in enumerate(expected):
        torch.testing.assert_close(centre_of(stack, member), expected_D, rtol=1e-4, atol=1e-6)
    assert stack.buffers["method.observed"].tolist() == [len(images_NCHW) for images_NCHW in images]
    orders = cohort.orders(pretrain_epochs)
    for step in range(cohort.steps):
        cohort.step(pretrain_epochs, step, orders, 1.0)
    torch.testing.assert_close(centre_of(stack, 1), expected[1], rtol=1e-4, atol=1e-6)
    moved_D = stack.evaluate("embed", images[1])["z"][1].mean(0)
    assert not torch.allclose(moved_D, expected[1], rtol=1e-2)
    images_NCHW = images_of_tests()
    z_KND, scores_KN = stack.evaluate("embed", images_NCHW), stack.evaluate("score", images_NCHW, {})
    centre_D = expected[1].numpy()
    centre_D = np.where(abs(centre_D) < 0.1, np.where(centre_D < 0, -0.1, 0.1), centre_D)
    distance_N = ((z_KND["z"][1].numpy() - centre_D) ** 2).sum(1)
    np.testing.assert_allclose(scores_KN["distance"][1].numpy(), distance_N, rtol=1e-4)


def test_after_pretraining_optimiser_and_schedule_start_anew_and_the_decoder_rests() -> None:
    cohort = TrainingCohort([config_of(pretrain_epochs=2, epochs=5)], HERE, CPU, None)
    stack, steps = stack_of(cohort), cohort.steps
    first = [cohort.epoch(epoch) for epoch in range(2)]
    assert (
        all(losses["loss_reconstruction"] == losses["loss"] for losses in first) and first[1]["loss"] < first[0]["loss"]
    )
    assert any(tensor.abs().max() > 0 for tensors in stack.optimiser.moments().values() for tensor in tensors)
    cohort.begin_epoch(2)
    assert all(not tensor.any() for tensors in stack.optimiser.moments().values() for tensor in tensors)
    rates = [rate for step in range(5 * steps) if isinstance(rate := cohort._rate(step), float)]
    assert rates[0] == rates[2 * steps] == 1.0 and rates[2 * steps - 1] < 0.2
    assert rates[: 2 * steps] == sorted(rates[: 2 * steps], reverse=True)
    assert rates[2 * steps :] == sorted(rates[2 * steps :], reverse=True)
    before = {name: tensor.clone() for name, tensor in stack.parameters.items()}
    assert "loss_reconstruction" not in cohort.epoch(2)
    for name, tensor in stack.parameters.items():
        assert torch.equal(tensor, before[name]) == name.startswith("method.decoder"), name


def test_stopped_at_any_step_it_continues_as_if_uninterrupted() -> None:
    """In the first phase, between the two, and in the second, where the centre must not be observed again."""
    config = config_of(pretrain_epochs=1, objective="soft_boundary", radius_epochs=1)
    saved: list[bytes] = []
    uninterrupted = list(train([config], HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    assert len(saved) == 5  # of six steps; after the last there is nothing to save
    for checkpoint in saved:
        resumed = list(
            train([config], HERE, checkpointing=Checkpointing(checkpoint), callbacks=Callbacks(notify=pytest.fail))
        )
        assert [_metrics(report) for report in resumed] == [_metrics(report) for report in uninterrupted]


def _metrics(report: Report) -> dict[str, Any]:
    return dict(report.members[0].metrics)


def test_the_radius_is_0_and_then_leaves_the_share_nu_outside() -> None:
    configs = [config_of(objective="soft_boundary", radius_epochs=1, nu=nu) for nu in (0.05, 0.5)]
    cohort = TrainingCohort(configs, HERE, CPU, None)
    assert cohort.epoch(0)["radius"].tolist() == [0, 0]
    stack = stack_of(cohort)
    cohort.epoch(1)
    stack.method.train()
    radius_K = stack.buffers["method.radius"]
    assert (radius_K > 0).all() and radius_K[0] > radius_K[1]
    cohort.begin_epoch(2)
    (order,), before = cohort.orders(2), {name: tensor.clone() for name, tensor in stack.buffers.items()}
    cohort.step(2, 0, [order], 1e-12)
    batch_BCHW = normal_images(NORMAL)[order[0]]
    for member, nu in enumerate((0.05, 0.5)):
        model = DeepSVDD(configs[member].options, image_trial(configs[member].flat()).networks, {"views": (1, 8, 8)})
        state = {**stack.parameters, **before}
        model.load_state_dict({name.removeprefix("method."): tensor[member] for name, tensor in state.items()})
        digits = load("digits", HERE)
        z_BD = model.train()((batch_BCHW - digits.mean[0]) / digits.std[0]).detach()
        distance_B = ((z_BD - model.centre) ** 2).sum(1).sqrt().numpy()
        assert stack.buffers["method.radius"][member].item() == pytest.approx(np.quantile(distance_B, 1 - nu), rel=1e-3)


class Last(nn.Module):
    """The features before a linear layer, which has a bias or none."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.features = 3
        self.linear = nn.Linear(64, 3, bias=bias)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.linear(images_BCHW.flatten(1))


@pytest.mark.parametrize("bias", [True, False])
def test_weights_of_0_are_no_loss_with_a_bias_and_a_loss_without(bias: bool) -> None:
    """The constant network: with a bias at the centre it has neither loss nor gradient, and tells no images apart.
    Without one its output is 0, from which the centre keeps its distance: also a centre whose mean is 0."""
    model = build_models([config_of(encoder="mlp", features=3)], {"views": (1, 8, 8)})[0]
    assert isinstance(model, DeepSVDD)
    model.encoder = Last(bias)
    images = images_of_tests()
    model.observed.add_(1)
    with torch.no_grad():
        model.encoder.linear.weight.zero_()
        if bias:
            model.encoder.linear.bias.copy_(model.centre)
    losses = model.losses({"views": (images,)}, {})
    gradients = torch.autograd.grad(losses.total, list(model.encoder.parameters()))
    scores_N = model.score(images, {})["distance"]
    assert losses.parts["z_variance"].item() < 1e-12 and scores_N.max() == scores_N.min()
    if bias:
        assert losses.total.item() == 0 and all(not gradient.any() for gradient in gradients)
    else:
        assert losses.total.item() == pytest.approx(3 * 0.1**2) and gradients[0].abs().max() > 1e-3


def test_training_goes_that_way_with_biases_and_does_not_with_the_authors_encoder() -> None:
    """What shows it is the variance of the representations."""
    spreads = {}
    for encoder in ("lenet", "relu_mlp"):
        config = config_of(encoder=encoder, hidden="32", epochs=40, report_every=40)
        (report,) = train([config], HERE)
        spreads[encoder] = report.members[0].metrics["z_variance"]
    assert spreads["lenet"] is not None and spreads["relu_mlp"] is not None
    assert spreads["relu_mlp"] < 0.25 * spreads["lenet"]


def test_what_cannot_be_pretrained_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^a phase of deep_svdd begins after 3 epochs, .* got epochs=3$"):
        config_of(pretrain_epochs=3)
    with pytest.raises(ValueError, match=r"multiples of 16 .* decoder=simvae_deconv"):
        config_of(pretrain_epochs=1, decoder="simvae_deconv")
    config_of(decoder="simvae_deconv")  # it builds no decoder
    with pytest.raises(ValueError, match=r"at least 8 for encoder=lenet_wide, but are 6x6"):
        config_of(dataset="folder", image_size=6, image_channels=1, encoder="lenet_wide")
