"""How well the joint Gaussian of two views' embeddings predicts one embedding from the other on test images, and how
well its uncertainty is calibrated (GJE Eq. 10; GMJE Eq. 104 with one component).

Embeddings are projections of unit length, in float64. Shapes: N images, P dimensions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.losses.linear_algebra import cholesky, log_det, mahalanobis
from trainables.losses.mixtures import conditional
from trainables.metrics.evaluator import EvaluationSet, Floats, RepresentationEvaluator, Representations

JITTER = 1e-4
"""Added to the diagonal of the joint moment, as in GJE."""
PROBABILITY = 0.9
"""Probability of the ellipsoid whose coverage is reported."""
ONE_POINT = 1e-12
"""Largest variance of targets that are equal except for rounding."""


class Prediction(NamedTuple):
    """Prediction quality, averaged over images."""

    error: float
    """Squared distance from the target divided by the variance of the targets; NaN if all targets coincide."""
    log_density: float
    """Log density of the target, in nats."""
    coverage: float
    """Share of targets in the 90 % ellipsoid of the predicted Gaussian."""


NAMES = tuple(f"predicted_{name}" for name in Prediction._fields)


def joint_moment(context_NP: Tensor, target_NP: Tensor) -> Tensor:
    """Joint second moment `[2P, 2P]` of contexts and targets about the origin, with the jitter."""
    joint_NE = torch.cat([context_NP, target_NP], dim=-1)
    identity_EE = torch.eye(joint_NE.shape[-1], dtype=joint_NE.dtype, device=joint_NE.device)
    return joint_NE.mT @ joint_NE / len(joint_NE) + JITTER * identity_EE


def predict(moment_EE: Tensor, context_NP: Tensor, target_NP: Tensor) -> Prediction:
    """Compare targets with their prediction from the contexts under a zero-mean Gaussian with this moment."""
    size = target_NP.shape[-1]
    gaussian = conditional(context_NP, moment_EE.new_zeros(1), moment_EE.new_zeros(1, 2 * size), moment_EE[None])
    error_NP, factor_PP = target_NP - gaussian.means_BMT[:, 0], cholesky(gaussian.covariances_MTT[0])
    squared_N = mahalanobis(error_NP, factor_PP)
    log_density_N = -(squared_N + log_det(factor_PP) + size * math.log(2 * math.pi)) / 2
    # The squared distance is chi-squared with P degrees of freedom.
    inside_N = torch.special.gammainc(torch.full_like(squared_N, size / 2), squared_N / 2) <= PROBABILITY
    variance = (target_NP - target_NP.mean(0)).square().sum(-1).mean().item()
    error = error_NP.square().sum(-1).mean().item() / variance if variance > ONE_POINT else math.nan
    coverage = inside_N.double().mean().item() if math.isfinite(error) else math.nan
    return Prediction(error, log_density_N.mean().item(), coverage)


class TargetPrediction(RepresentationEvaluator):
    """Takes the moment of two views of the training images and predicts views of evaluated images."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return NAMES if last and config.embeddings.prediction else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images = self.images
        bank, test = (
            [
                F.normalize(images.projected(vectors.stack, images.views(of, index)).double(), dim=-1)
                for index in range(2)
            ]
            for of in (images.bank_images, tested.images)
        )
        by_member = [
            predict(joint_moment(*known), *unknown)
            for known, unknown in zip(zip(*bank, strict=True), zip(*test, strict=True), strict=True)
        ]
        return dict(zip(NAMES, np.array(by_member).T, strict=True))
