"""Linear and MLP probes on frozen features, trained by Adam, of all members at once (SimVAE, Tables 1 and 5).

Shapes: K members, N bank images, M test images, D features, C classes, B images of a batch, E epochs; S probes of each
member, Q = K * S probes in the order of the members; P parameters of a probe, I inputs and O outputs of one of its
layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics.evaluator import (
    EvaluationSet,
    Floats,
    ProbeData,
    RepresentationEvaluator,
    Representations,
    all_finite,
)
from trainables.metrics.linear_probes import Schedule
from trainables.validation import whole

STARTS = 3
"""Probes of each kind that a member has, each from weights of its own. A metric is the mean over them. In
`simvae_content --preset digits` the linear and the MLP probes take 4 % of the time of a trial of SimVAE, 8 % of the VAE
and 9 % of SimCLR, 1.1 to 1.4 times as long as with one start."""
EPS = 1e-8
"""Adam's epsilon."""

Layers = Sequence[tuple[Tensor, Tensor]]
"""Weights `[Q, O, I]` and biases `[Q, O, 1]` of each layer. All layers but the last are followed by ReLU."""


class Accuracies(NamedTuple):
    """Shares in [0, 1] of the labelled test images that are classified correctly, means over each member's probes,
    `[K]`."""

    last: Floats
    """After the last epoch."""
    best: Floats
    """The largest after any epoch of each probe. It is chosen on the test images, so it is biased upwards."""


@torch.no_grad()
def accuracies(
    data: ProbeData,
    schedule: Schedule,
    *,
    hidden: Sequence[int],
    initial_generators: Sequence[torch.Generator],
    starts: int = 1,
) -> Accuracies:
    """Train probes with `train` and return their accuracy on the test images.

    Images with a negative label (UNLABELLED) are left out. NaN for a member with a feature or logit that is not finite,
    and for all members if no bank image or no test image has a label. Raises ValueError unless the number of classes,
    `starts` and all widths in `hidden` are at least 1.
    """
    for name, value in (("classes", data.classes), ("starts", starts), *(("hidden", width) for width in hidden)):
        whole(name, value, 1)
    finite_K = [all_finite(bank) and all_finite(test) for bank, test in zip(data.bank_KND, data.test_KMD, strict=True)]
    bank_KND, bank_labels_N = _labelled(data.bank_KND, data.bank_labels_N)
    test_KMD, test_labels_M = _labelled(data.test_KMD.float(), data.test_labels_M)
    if not (len(bank_labels_N) and len(test_labels_M)):
        return Accuracies(*np.full((2, len(bank_KND)), math.nan))
    test_QMD = test_KMD.repeat_interleave(starts, 0)
    share_by_epoch: list[Tensor] = []
    train(
        bank_KND,
        bank_labels_N,
        (bank_KND.shape[2], *hidden, data.classes),
        schedule,
        initial_generators=initial_generators,
        starts=starts,
        after_epoch=lambda layers: share_by_epoch.append(_share_correct(layers, test_QMD, test_labels_M)),
    )
    shares_EKS = torch.stack(share_by_epoch).unflatten(1, (-1, starts)).cpu().numpy()
    last_K, best_K = (
        np.where(finite_K, shares_KS.mean(1), math.nan) for shares_KS in (shares_EKS[-1], shares_EKS.max(0))
    )
    return Accuracies(last_K, best_K)


@torch.no_grad()
def train(
    bank_KND: Tensor,
    labels_N: Tensor,
    widths: Sequence[int],
    schedule: Schedule,
    *,
    initial_generators: Sequence[torch.Generator],
    starts: int = 1,
    after_epoch: Callable[[Layers], None] = lambda layers: None,
) -> Layers:
    """Train Q classifiers, `starts` of each member, and return their layers.

    `widths` are `(D, C)` for linear probes and `(D, H, C)` for MLPs with H hidden units. The probes of member k start
    from weights that `initial_generators[k]` draws one probe after the other, as torch.nn.Linear draws them. They are
    trained in float32 on the bank's device, by Adam on the cross-entropy with a constant learning rate and without
    weight decay. After each epoch `after_epoch` is called with the layers. Probes do not affect each other.
    """
    images = bank_KND.shape[1]
    size = min(schedule.batch_size, images)
    labels_N = labels_N.to(bank_KND.device)
    # All parameters share one tensor, so that one kernel updates them.
    drawn = [_initial_parameters(widths, generator) for generator in initial_generators for _ in range(starts)]
    parameters_QP = torch.stack(drawn).to(bank_KND.device)
    parameters_QP.grad = torch.empty_like(parameters_QP)
    layers, gradients = _layers(parameters_QP, widths), _layers(parameters_QP.grad, widths)
    optimiser = torch.optim.Adam([parameters_QP], schedule.lr, eps=EPS, fused=True)
    for epoch in range(schedule.epochs):
        generator = schedule.generator_of_epoch(epoch)
        order_N = torch.randperm(images, generator=generator, device=generator.device).to(bank_KND.device)
        for step in range(images // size):
            batch_B = order_N[step * size : (step + 1) * size]
            x_KBD = bank_KND.index_select(1, batch_B).float()
            _differentiate(layers, x_KBD.repeat_interleave(starts, 0), labels_N[batch_B], out=gradients)
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


def _layers(flat_QP: Tensor, widths: Sequence[int]) -> Layers:
    """Views of the weights and biases in `flat_QP`."""
    shapes = [shape for inputs, outputs in pairwise(widths) for shape in ((outputs, inputs), (outputs, 1))]
    parts = flat_QP.split([math.prod(shape) for shape in shapes], dim=1)
    views = [part.view(len(flat_QP), *shape) for part, shape in zip(parts, shapes, strict=True)]
    return list(zip(views[::2], views[1::2], strict=True))


def _forward(layers: Layers, x_QBD: Tensor) -> list[Tensor]:
    """Inputs `[Q, I, B]` of each layer, and last the logits `[K, C, B]`. Classes come before images, because with few
    classes this makes the products and the softmax faster on a CPU."""
    values = [x_QBD.mT]
    for weight_QOI, bias_QO1 in layers[:-1]:
        values.append(torch.baddbmm(bias_QO1, weight_QOI, values[-1]).relu_())
    weight_QOI, bias_QO1 = layers[-1]
    return [*values, torch.baddbmm(bias_QO1, weight_QOI, values[-1])]


def _differentiate(layers: Layers, x_QBD: Tensor, labels_B: Tensor, out: Layers) -> None:
    """Write the gradients of the mean cross-entropy into `out`."""
    *inputs, logits_QCB = _forward(layers, x_QBD)
    error_QOB = logits_QCB.softmax(1)
    index_Q1B = labels_B.expand(len(x_QBD), 1, -1)
    error_QOB.scatter_add_(1, index_Q1B, error_QOB.new_full((1, 1, 1), -1.0).expand_as(index_Q1B)).div_(len(labels_B))
    for depth in reversed(range(len(layers))):
        input_QIB, (weight_out_QOI, bias_out_QO1) = inputs[depth], out[depth]
        torch.bmm(error_QOB, input_QIB.mT, out=weight_out_QOI)
        torch.sum(error_QOB, 2, keepdim=True, out=bias_out_QO1)
        if depth:
            error_QOB = torch.bmm(layers[depth][0].mT, error_QOB).mul_(input_QIB.sign())  # the derivative of ReLU


def _share_correct(layers: Layers, test_QMD: Tensor, labels_M: Tensor) -> Tensor:
    """Share `[Q]` of images whose label has the largest logit. NaN for a probe with a logit that is not finite."""
    logits_QCM = _forward(layers, test_QMD)[-1]
    share_Q = (logits_QCM.max(1).indices == labels_M).double().mean(1)
    return torch.where(logits_QCM.isfinite().all(2).all(1), share_Q, math.nan)


def _labelled(x_KND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The features and labels of the images whose label is not negative."""
    labels_N = labels_N.to(x_KND.device)
    labelled_N = labels_N >= 0
    return (x_KND, labels_N) if labelled_N.all() else (x_KND[:, labelled_N], labels_N[labelled_N])


class AdamProbes(RepresentationEvaluator):
    """What the linear probe and the MLP probe have in common with the probes of styles: their training."""

    def accuracies(self, data: ProbeData, seeds: Sequence[int], mlp: bool) -> Accuracies:
        """Accuracies `[K]` of probes, which start by the members' seeds, after the last epoch and in the best one."""
        content, dataset = self.config.content, self.config.data.dataset

        def generator_of_epoch(epoch: int) -> torch.Generator:
            self.images.raise_if_stopped()
            return seeded_generator("content probe", dataset, epoch)

        return accuracies(
            data,
            Schedule(
                content.content_probe_epochs,
                content.content_probe_lr,
                content.content_probe_batch_size,
                generator_of_epoch,
            ),
            hidden=(content.content_probe_width or data.bank_KND.shape[-1],) if mlp else (),
            initial_generators=[seeded_generator("content probe weights", dataset, seed) for seed in seeds],
            starts=STARTS,
        )


class ContentProbes(AdamProbes):
    """Accuracy of a linear probe and an MLP probe of the class."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not (last and config.content.content_probe_epochs):
            return ()
        return "probe_linear", "probe_linear_best", "probe_mlp", "probe_mlp_best"

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        data = vectors.probed(tested)["z"]
        for name, mlp in (("probe_linear", False), ("probe_mlp", True)):
            last, best = self.accuracies(data, vectors.seeds, mlp)
            metrics |= {name: last, f"{name}_best": best}
        return metrics


class StyleProbes(AdamProbes):
    """Accuracy of an MLP probe of each attribute that is asked for, and its mean over several."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        names = config.content.style_names if last else ()
        return [*(f"style_{name}" for name in names), *(["style_mean"] if len(names) > 1 else [])]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name in self.config.content.style_names:
            data = replace(
                vectors.probed(tested)["z"],
                bank_labels_N=self.images.bank_attributes[name],
                test_labels_M=tested.attributes[name],
                classes=self.images.dataset.attributes[name].classes,
            )
            metrics[f"style_{name}"] = self.accuracies(data, vectors.seeds, mlp=True).last
        return metrics if len(metrics) < 2 else {**metrics, "style_mean": np.mean([*metrics.values()], axis=0)}
