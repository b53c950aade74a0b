"""Linear and MLP probes on frozen features, trained by Adam, of all members at once (SimVAE, section 8).

Shapes: K members, N bank images, M test images, D features, C classes, B images of a batch, E epochs; P parameters of a
probe, I inputs and O outputs of one of its layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.evaluation.anomaly import Floats
from trainables.evaluation.probes import all_finite
from trainables.validation import positive, whole

EPS = 1e-8
"""Adam's epsilon."""

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weights `[K, O, I]` and biases `[K, O, 1]` of each layer. All layers but the last are followed by ReLU."""


class Accuracies(NamedTuple):
    """Shares in [0, 1] of the labelled test images that each member's probe classifies correctly, `[K]`."""

    last: Floats
    """After the last epoch."""
    best: Floats
    """The largest after any epoch. It is chosen on the test images, so it is biased upwards."""


@torch.no_grad()
def accuracies(
    bank_KND: Tensor,
    bank_labels_N: Tensor,
    test_KMD: Tensor,
    test_labels_M: Tensor,
    classes: int,
    *,
    hidden: Sequence[int],
    epochs: int,
    lr: float,
    batch_size: int,
    initial_generators: Sequence[torch.Generator],
    generator_of_epoch: Callable[[int], torch.Generator],
) -> Accuracies:
    """Train probes with `train` and return their accuracy on the test images.

    Images with a negative label (UNLABELLED) are left out. NaN for a member with a feature or logit that is not finite,
    and for all members if no bank image or no test image has a label. Raises ValueError unless `epochs`, `batch_size`,
    `classes` and all widths in `hidden` are at least 1 and `lr > 0`.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("classes", classes)):
        whole(name, value, 1)
    for width in hidden:
        whole("hidden", width, 1)
    positive("lr", lr)
    finite_K = [all_finite(bank) and all_finite(test) for bank, test in zip(bank_KND, test_KMD, strict=True)]
    bank_KND, bank_labels_N = _labelled(bank_KND, bank_labels_N)
    test_KMD, test_labels_M = _labelled(test_KMD.float(), test_labels_M)
    if not (len(bank_labels_N) and len(test_labels_M)):
        return Accuracies(*np.full((2, len(bank_KND)), math.nan))
    share_by_epoch: list[Tensor] = []
    train(
        bank_KND,
        bank_labels_N,
        (bank_KND.shape[2], *hidden, classes),
        epochs=epochs,
        lr=lr,
        batch_size=batch_size,
        initial_generators=initial_generators,
        generator_of_epoch=generator_of_epoch,
        after_epoch=lambda layers: share_by_epoch.append(_share_correct(layers, test_KMD, test_labels_M)),
    )
    shares_EK = np.where(finite_K, torch.stack(share_by_epoch).cpu().numpy(), math.nan)
    return Accuracies(shares_EK[-1], shares_EK.max(0))


@torch.no_grad()
def train(
    bank_KND: Tensor,
    labels_N: Tensor,
    widths: Sequence[int],
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    initial_generators: Sequence[torch.Generator],
    generator_of_epoch: Callable[[int], torch.Generator],
    after_epoch: Callable[[Layers], None] = lambda layers: None,
) -> Layers:
    """Train K classifiers and return their layers.

    `widths` are `(D, C)` for linear probes and `(D, H, C)` for MLPs with H hidden units. Member k starts from weights
    that `initial_generators[k]` draws as torch.nn.Linear draws them. Probes are trained in float32 on
    the bank's device, by Adam on the cross-entropy with a constant learning rate and without weight decay. An epoch
    consists of whole batches of `batch_size` images (N, if that is smaller), in a permutation drawn by
    `generator_of_epoch(epoch)`, counted from 0, which all members share. After each epoch `after_epoch` is called with
    the layers. Members do not affect each other.
    """
    images = bank_KND.shape[1]
    size = min(batch_size, images)
    labels_N = labels_N.to(bank_KND.device)
    # All parameters share one tensor, so that one kernel updates them.
    drawn = [_initial_parameters(widths, generator) for generator in initial_generators]
    parameters_KP = torch.stack(drawn).to(bank_KND.device)
    parameters_KP.grad = torch.empty_like(parameters_KP)
    layers, gradients = _layers(parameters_KP, widths), _layers(parameters_KP.grad, widths)
    optimiser = torch.optim.Adam([parameters_KP], lr, eps=EPS, fused=True)
    for epoch in range(epochs):
        generator = generator_of_epoch(epoch)
        order_N = torch.randperm(images, generator=generator, device=generator.device).to(bank_KND.device)
        for step in range(images // size):
            batch_B = order_N[step * size : (step + 1) * size]
            _differentiate(layers, bank_KND.index_select(1, batch_B).float(), labels_N[batch_B], out=gradients)
            optimiser.step()
        after_epoch(layers)
    return layers


def _initial_parameters(widths: Sequence[int], generator: torch.Generator) -> Tensor:
    """Weights and biases `[P]` of a probe, uniform in `±1 / sqrt(I)`."""
    parts = []
    for inputs, outputs in pairwise(widths):
        bound = 1 / math.sqrt(inputs)
        for count in (outputs * inputs, outputs):
            parts.append(torch.empty(count, device=generator.device).uniform_(-bound, bound, generator=generator))
    return torch.cat(parts)


def _layers(flat_KP: Tensor, widths: Sequence[int]) -> Layers:
    """Views of the weights and biases in `flat_KP`."""
    shapes = [shape for inputs, outputs in pairwise(widths) for shape in ((outputs, inputs), (outputs, 1))]
    parts = flat_KP.split([math.prod(shape) for shape in shapes], dim=1)
    views = [part.view(len(flat_KP), *shape) for part, shape in zip(parts, shapes, strict=True)]
    return list(zip(views[::2], views[1::2], strict=True))


def _forward(layers: Layers, x_KBD: Tensor) -> list[Tensor]:
    """Inputs `[K, I, B]` of each layer, and last the logits `[K, C, B]`. Classes come before images, because with few
    classes this makes the products and the softmax faster on a CPU."""
    values = [x_KBD.mT]
    for weight_KOI, bias_KO1 in layers[:-1]:
        values.append(torch.baddbmm(bias_KO1, weight_KOI, values[-1]).relu_())
    weight_KOI, bias_KO1 = layers[-1]
    return [*values, torch.baddbmm(bias_KO1, weight_KOI, values[-1])]


def _differentiate(layers: Layers, x_KBD: Tensor, labels_B: Tensor, out: Layers) -> None:
    """Write the gradients of the mean cross-entropy into `out`."""
    *inputs, logits_KCB = _forward(layers, x_KBD)
    error_KOB = logits_KCB.softmax(1)
    index_K1B = labels_B.expand(len(x_KBD), 1, -1)
    error_KOB.scatter_add_(1, index_K1B, error_KOB.new_full((1, 1, 1), -1.0).expand_as(index_K1B)).div_(len(labels_B))
    for depth in reversed(range(len(layers))):
        input_KIB, (weight_out_KOI, bias_out_KO1) = inputs[depth], out[depth]
        torch.bmm(error_KOB, input_KIB.mT, out=weight_out_KOI)
        torch.sum(error_KOB, 2, keepdim=True, out=bias_out_KO1)
        if depth:
            error_KOB = torch.bmm(layers[depth][0].mT, error_KOB).mul_(input_KIB.sign())  # the derivative of ReLU


def _share_correct(layers: Layers, test_KMD: Tensor, labels_M: Tensor) -> Tensor:
    """Share `[K]` of images whose label has the largest logit. NaN for a member with a logit that is not finite."""
    logits_KCM = _forward(layers, test_KMD)[-1]
    share_K = (logits_KCM.max(1).indices == labels_M).double().mean(1)
    return torch.where(logits_KCM.isfinite().all(2).all(1), share_K, math.nan)


def _labelled(x_KND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The features and labels of the images whose label is not negative."""
    labels_N = labels_N.to(x_KND.device)
    labelled_N = labels_N >= 0
    return (x_KND, labels_N) if labelled_N.all() else (x_KND[:, labelled_N], labels_N[labelled_N])
