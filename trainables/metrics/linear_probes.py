"""Linear probes on frozen features: logistic regressions of all members at once (VJE, Tables 1 and 2).

Shapes: K members, N bank images, M test images, D features, C classes, B images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics.evaluator import (
    PROJECTION,
    EvaluationSet,
    Floats,
    ProbeData,
    RepresentationEvaluator,
    Representations,
    all_finite,
)
from trainables.validation import above, at_least, between, checked, whole

TOP = 5
"""Probes also report their top-5 accuracy if there are more than 5 classes."""
MOMENTUM = 0.9
CONSTANT = 1e-6
"""Largest standard deviation, relative to the mean, of a feature that is constant except for rounding in float32."""


@checked
class Schedule:
    """Epochs, learning rate and batches of the probes of all members."""

    epochs: Annotated[int, at_least(1)]
    lr: Annotated[float, above(0)]
    batch_size: Annotated[int, at_least(1)]
    """An epoch consists of whole batches of so many images, or of all if that is fewer."""
    generator_of_epoch: Callable[[int], torch.Generator]
    """Draws the order of the images in an epoch, counted from 0, which all members share."""


class Standardisation(NamedTuple):
    """Mean and standard deviation of each feature over a member's bank images, used to standardise features."""

    mean_K1D: Tensor
    std_K1D: Tensor
    """1 for a constant feature, so that its rounding errors do not become a signal."""

    @classmethod
    def of(cls, bank_KND: Tensor) -> Standardisation:
        """Compute both in float32, with the biased standard deviation (divided by N), like scikit-learn's
        StandardScaler."""
        # Computed for each member separately, so that its statistics are equal to the last bit in any stack.
        moments = [torch.var_mean(bank_ND.float(), 0, correction=0, keepdim=True) for bank_ND in bank_KND]
        mean_K1D, std_K1D = torch.stack([mean for _, mean in moments]), torch.stack([var.sqrt() for var, _ in moments])
        return cls(mean_K1D, torch.where(std_K1D <= CONSTANT * mean_K1D.abs(), 1.0, std_K1D))


@torch.no_grad()
def accuracies(
    data: ProbeData, schedule: Schedule, *, standardize: bool = False, top: Sequence[int] = (1,)
) -> dict[int, Floats]:
    """Train probes with `fit` and return their top-t accuracy on the test images, `[K]`, for each `t` of `top`.

    With `standardize` all features are first standardised by the mean and standard deviation of the bank's features. Of
    classes with equal logits the lowest ranks first. NaN for a member with a feature or logit that is not finite.
    Raises ValueError unless every `t` is in 1..classes.
    """
    for t in top:
        between(1, data.classes).check("top", t)
    standardisation = Standardisation.of(data.bank_KND) if standardize else None
    weight_KCD, bias_KC1 = fit(data.bank_KND, data.bank_labels_N, data.classes, schedule, standardisation)
    labels_M = data.test_labels_M.to(data.test_KMD.device)
    shares = []
    for member, (bank_ND, test_MD) in enumerate(zip(data.bank_KND, data.test_KMD, strict=True)):
        x_MD = test_MD.float()
        if standardisation:
            x_MD = (x_MD - standardisation.mean_K1D[member]) / standardisation.std_K1D[member]
        logits_MC = torch.addmm(bias_KC1[member].T, x_MD, weight_KCD[member].T)
        shares.append(shares_of_top(logits_MC, labels_M, top) if all_finite(bank_ND) else [math.nan] * len(top))
    shares_Kt = np.array(shares)
    return {t: shares_Kt[:, index] for index, t in enumerate(top)}


@torch.no_grad()
def fit(
    bank_KND: Tensor,
    bank_labels_N: Tensor,
    classes: int,
    schedule: Schedule,
    standardisation: Standardisation | None = None,
) -> tuple[Tensor, Tensor]:
    """Train K softmax regressions and return their weights `[K, C, D]` and biases `[K, C, 1]`.

    They start at zero and are trained in float32 on the bank's device, by SGD with momentum 0.9 on the cross-entropy
    without weight decay. The learning rate falls from the schedule's to 0 on half a cosine. Members do not affect each
    other. With a `standardisation` the weights are for standardised features. Raises ValueError unless `classes >= 1`.
    """
    whole("classes", classes, 1)
    members, images, features = bank_KND.shape
    epochs, size = schedule.epochs, min(schedule.batch_size, images)
    steps = images // size
    # Weights and biases share one tensor, so that one kernel updates both. Classes come before images and features:
    # with few classes this makes the products and the softmax 3 to 10 times faster on a CPU.
    both = torch.zeros(members, classes * (features + 1), device=bank_KND.device)
    velocity = torch.zeros_like(both)
    (weight_KCD, bias_KC1), (weight_velocity_KCD, bias_velocity_KC1) = (
        (flat[:, : classes * features].view(members, classes, features), flat[:, classes * features :, None])
        for flat in (both, velocity)
    )
    # Each batch is gathered into the same buffer: it stays in the cache, and the bank is never copied as a whole.
    gathered_KBD = bank_KND.new_empty(members, size, features)
    error_KCB = both.new_empty(members, classes, size)
    ones_K1B, ones_KB1 = both.new_ones(members, 1, size), both.new_ones(members, size, 1)
    for epoch in range(epochs):
        generator = schedule.generator_of_epoch(epoch)
        order_N = torch.randperm(images, generator=generator, device=generator.device)
        labels_N = bank_labels_N[order_N.to(bank_labels_N.device)].to(bank_KND.device)
        order_N = order_N.to(bank_KND.device)
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            x_KBD = torch.index_select(bank_KND, 1, order_N[batch], out=gathered_KBD).float()
            if standardisation:  # in place: a standardised copy of the bank could be too large for the memory
                x_KBD.sub_(standardisation.mean_K1D).div_(standardisation.std_K1D)
            torch.baddbmm(bias_KC1, weight_KCD, x_KBD.mT, out=error_KCB)
            torch.softmax(error_KCB, 1, out=error_KCB)
            error_KCB.scatter_add_(1, labels_N[batch].expand(members, 1, size), -ones_K1B)
            weight_velocity_KCD.baddbmm_(error_KCB, x_KBD, beta=MOMENTUM, alpha=1 / size)
            bias_velocity_KC1.baddbmm_(error_KCB, ones_KB1, beta=MOMENTUM, alpha=1 / size)
            share = 0.5 * (1 + math.cos(math.pi * (epoch * steps + step) / (epochs * steps)))
            both.add_(velocity, alpha=-schedule.lr * share)
    return weight_KCD, bias_KC1


def shares_of_top(logits_MC: Tensor, labels_M: Tensor, top: Sequence[int]) -> list[float]:
    """How often the label is among the `t` classes with the largest logits, for each `t` of `top`. NaN if a logit is
    not finite."""
    if not all_finite(logits_MC):
        return [math.nan] * len(top)
    own_M1 = logits_MC.gather(1, labels_M[:, None])
    lower_MC = torch.arange(logits_MC.shape[1], device=logits_MC.device) < labels_M[:, None]
    rank_M = ((logits_MC > own_M1) | ((logits_MC == own_M1) & lower_MC)).sum(1)
    return [(rank_M < t).double().mean().item() for t in top]


class LinearProbes(RepresentationEvaluator):
    """Accuracy of linear probes trained by SGD, at the end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not config.evaluation.probe_epochs or not (last or config.embeddings.probe_curve):
            return ()
        vectors = (*method.representations, *([PROJECTION] if config.embeddings.compare_projection else []))
        return [f"probe{suffix}_{vector}" for vector in vectors for _, suffix in probe_top_k(classes)]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name, data in vectors.probed(tested).items():
            metrics |= self._accuracies(name, data)
        return metrics

    def _accuracies(self, name: str, data: ProbeData) -> dict[str, Floats]:
        evaluation, tops = self.config.evaluation, probe_top_k(data.classes)
        batch_size = min(evaluation.probe_batch_size, len(data.bank_labels_N))

        def generator_of_epoch(epoch: int) -> torch.Generator:
            self.images.raise_if_stopped()
            return seeded_generator("probe", self.config.data.dataset, epoch)

        lr = evaluation.probe_lr * batch_size / 256
        schedule = Schedule(evaluation.probe_epochs, lr, batch_size, generator_of_epoch)
        top = [top for top, _ in tops]
        shares = accuracies(data, schedule, standardize=evaluation.probe_standardize, top=top)
        return {f"probe{suffix}_{name}": shares[top] for top, suffix in tops}


def probe_top_k(classes: int) -> list[tuple[int, str]]:
    """Each k of which probes report the top-k accuracy, and the suffix of its metric's name."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]
