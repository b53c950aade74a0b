"""Linear probes on a few labels of each class (GMJE): they tell representations apart on which all labels reach the
same.

Shapes: K members, N bank images, M test images, D features, C classes, S draws of L labelled images each.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
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
from trainables.metrics.linear_probes import Standardisation

MAX_STEPS, CHECKED_EVERY = 5000, 25
TOLERANCE = 1e-4
"""Largest gradient of any weight at which the descent ends, relative to that at the start."""


def draw_labelled(labels_N: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Indices `[L]` of `per_class` images of each class that occurs, by class. Raises ValueError if a class has
    fewer."""
    order_N = torch.randperm(len(labels_N), generator=generator)
    shuffled_N = labels_N.cpu()[order_N]
    drawn = [order_N[shuffled_N == label][:per_class] for label in shuffled_N.unique()]
    fewest = min(map(len, drawn))
    if fewest < per_class:
        raise ValueError(f"each class must have {per_class} labelled images, but one has {fewest}")
    return torch.cat(drawn)


@torch.no_grad()
def accuracies(data: ProbeData, draws: Sequence[Tensor], raise_if_stopped: Callable[[], None] = lambda: None) -> Floats:
    """Accuracy `[K]` on the test images, the mean over probes that are fitted to each draw of labelled images alone.

    Features are standardised over the whole bank, whose labels that takes none of. NaN for a member with a feature that
    is not finite.
    """
    standardisation, labels_M = Standardisation.of(data.bank_KND), data.test_labels_M.to(data.test_KMD.device)
    drawn_SL = torch.stack([*draws]).to(data.bank_KND.device)
    labels_SL = data.bank_labels_N.to(data.bank_KND.device)[drawn_SL]
    shares = []
    for member, (bank_ND, test_MD) in enumerate(zip(data.bank_KND, data.test_KMD, strict=True)):
        raise_if_stopped()
        if not (all_finite(bank_ND) and all_finite(test_MD)):
            shares.append(math.nan)
            continue
        mean_1D, std_1D = standardisation.mean_K1D[member], standardisation.std_K1D[member]
        weight_SCD = fit(_with_constant((bank_ND[drawn_SL].float() - mean_1D) / std_1D), labels_SL, data.classes)
        logits_SMC = _with_constant((test_MD.float() - mean_1D) / std_1D) @ weight_SCD.mT
        shares.append((logits_SMC.argmax(-1) == labels_M).double().mean().item())
    return np.array(shares)


def fit(x_SLD: Tensor, labels_SL: Tensor, classes: int) -> Tensor:
    """Weights `[S, C, D]` that minimise the cross-entropy summed over L images plus half their squared norm, like
    scikit-learn's LogisticRegression (C=1) without intercept: by accelerated descent, whose step and momentum follow
    from the largest curvature."""
    target_SLC = F.one_hot(labels_SL, classes).to(x_SLD.dtype)
    curvature_S11 = 1 + torch.linalg.matrix_norm(x_SLD @ x_SLD.mT, 2)[:, None, None] / 2
    root_S11 = curvature_S11.sqrt()
    momentum_S11 = (root_S11 - 1) / (root_S11 + 1)
    weight_SCD = ahead_SCD = x_SLD.new_zeros(len(x_SLD), classes, x_SLD.shape[-1])
    start = math.inf
    for step in range(MAX_STEPS):
        error_SLC = (x_SLD @ ahead_SCD.mT).softmax(-1) - target_SLC
        gradient_SCD = error_SLC.mT @ x_SLD + ahead_SCD
        if step % CHECKED_EVERY == 0:
            largest = gradient_SCD.abs().max().item()
            start = largest if step == 0 else start
            if largest <= TOLERANCE * start:
                break
        before_SCD, weight_SCD = weight_SCD, ahead_SCD - gradient_SCD / curvature_S11
        ahead_SCD = weight_SCD + momentum_S11 * (weight_SCD - before_SCD)
    return weight_SCD


def _with_constant(x: Tensor) -> Tensor:
    """The features and a constant 1, whose weight is the intercept."""
    return torch.cat([x, x.new_ones(*x.shape[:-1], 1)], dim=-1)


class FewLabelProbes(RepresentationEvaluator):
    """Accuracy of linear probes on z, and on the projection if the trial asks for it, that see a few labels of each
    class, at the end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        labels = config.embeddings.few_labels
        if not labels or not (last or config.embeddings.probe_curve):
            return ()
        return [f"probe_{labels}", *([f"probe_{labels}_{PROJECTION}"] if config.embeddings.compare_projection else [])]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images, embeddings = self.images, self.config.embeddings
        draws = [
            draw_labelled(
                images.bank_labels,
                embeddings.few_labels,
                seeded_generator("few labels", self.config.data.dataset, index),
            )
            for index in range(embeddings.few_label_draws)
        ]
        suffixes = {"z": "", PROJECTION: f"_{PROJECTION}"}
        return {
            f"probe_{embeddings.few_labels}{suffixes[name]}": accuracies(data, draws, images.raise_if_stopped)
            for name, data in vectors.probed(tested).items()
            if name in suffixes
        }
