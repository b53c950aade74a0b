"""GPJE: a Gaussian process over one view's embeddings explains the other view's embeddings (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, R random features.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.kernels import (
    DualTerms,
    dual_terms,
    feature_dual_terms,
    gaussian_process_nll,
    random_features,
    rbf_kernel,
)
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.networks.heads import MovingAverage
from trainables.validation import above, at_least, between, checked

SMALLEST = 1e-5
"""Added to the variance of each target dimension, which may be constant."""


@checked
class GPJEConfig(ProjectedConfig):
    length: Annotated[float, above(0)] = 0.7
    """Length scale of the kernel. If it exceeds distances on the unit sphere, all contexts are similar under the
    kernel, and nothing keeps them apart."""
    epsilon: Annotated[float, above(0)] = 0.3
    """Variance of the noise, which is added to the diagonal of the kernel."""
    ema: Annotated[float, between(0, 1)] = 0.95
    """Decay of the target network's moving average: the share of its value that a weight keeps per step."""
    symmetric: bool = False
    """Whether targets come from the online network, with gradients that make them vanish, instead of from a target
    network."""
    unit_length: bool = True
    """Whether contexts and targets are scaled to unit length."""
    standardise: bool = True
    """Whether each dimension of the target network's output is standardised to mean 0 and variance 1 over the batch
    instead of scaling targets to unit length. The kernel expects this variance; that of unit vectors is below
    `epsilon`, so noise explains them and all contexts coincide. With `symmetric` targets are never standardised."""
    random_features: Annotated[int, at_least(0)] = 0
    """Number R of random features that replace the kernel, at a cost of `B R^2` instead of `B^3`; 0 for the exact
    kernel."""


class GPJE(ProjectedMethod):
    """Fusible: `length`, `epsilon`, `ema`. The context is the first view, the target the second. The target network has
    no gradient. Otherwise the quadratic term would make targets vanish, and then the log-determinant would make all
    contexts coincide.
    """

    Config = GPJEConfig
    fusible = frozenset({"length", "epsilon", "ema"})
    loss_parts = ("quadratic", "log_det")

    length: Tensor
    epsilon: Tensor
    ema: Tensor
    frequencies_PR: Tensor
    phases_R: Tensor

    def __init__(self, config: GPJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        if not config.symmetric:
            self.target = MovingAverage(nn.Sequential(self.encoder, self.projector))
        if config.random_features:
            self.register_buffer("frequencies_PR", torch.randn(self.projection, config.random_features))
            self.register_buffer("phases_R", 2 * math.pi * torch.rand(config.random_features))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of the targets and its two terms, all divided by B * P; no gradient reaches the
        target network."""
        context_images_BCHW, target_images_BCHW = batch["views"]
        context_BP = self._scaled(self.project(context_images_BCHW))
        if self.config.symmetric:
            target_BP = self._scaled(self.project(target_images_BCHW))
        else:
            target_BP = self.target(target_images_BCHW).float()
            target_BP = standardised(target_BP) if self.config.standardise else self._scaled(target_BP)
        terms, numbers = self._terms(context_BP, target_BP), target_BP.numel()
        parts = {"quadratic": terms.quadratic / numbers, "log_det": terms.log_det / len(target_BP)}
        return Losses(gaussian_process_nll(terms, self.projection) / numbers, parts)

    def _terms(self, context_BP: Tensor, target_BP: Tensor) -> DualTerms:
        if not self.config.random_features:
            return dual_terms(target_BP, rbf_kernel(context_BP, context_BP, self.length), self.epsilon)
        features_BR = random_features(context_BP, self.frequencies_PR, self.phases_R, self.length)
        return feature_dual_terms(target_BP, features_BR, self.epsilon)

    def _scaled(self, z_BP: Tensor) -> Tensor:
        return F.normalize(z_BP.float(), dim=-1) if self.config.unit_length else z_BP.float()

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        if self.config.symmetric:
            return
        self.target.update(nn.Sequential(self.encoder, self.projector), self.ema)


def standardised(z_BP: Tensor) -> Tensor:
    """Standardise each dimension to mean 0 and variance 1 over the batch; constant dimensions become 0."""
    variance_P, mean_P = torch.var_mean(z_BP, dim=0, correction=0)
    return (z_BP - mean_P) / (variance_P + SMALLEST).sqrt()
