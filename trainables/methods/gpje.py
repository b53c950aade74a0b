"""GPJE: a Gaussian process over the embeddings of one view explains those of the other (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, R random features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.kernels import (
    DualTerms,
    dual_terms,
    feature_dual_terms,
    gaussian_process_nll,
    random_features,
    rbf_kernel,
)
from trainables.networks.averaging import MovingAverage
from trainables.networks.heads import mlp
from trainables.validation import between, positive, whole


@dataclass(frozen=True)
class GPJEConfig:
    length: float = 0.7
    """Length scale of the kernel, above 0; contexts lie on the unit sphere."""
    epsilon: float = 0.3
    """Variance of the noise, added to the diagonal of the kernel, above 0."""
    ema: float = 0.95
    """Decay of the target network's moving average, in [0, 1]: the share of its value that a weight keeps per step."""
    random_features: int = 0
    """Number R of random features that replace the kernel at a cost of `B R^2` instead of `B^3`; 0 for the kernel
    itself."""
    projector_width: int = 512
    """Hidden units of the two-layer projector."""
    projection: int = 128
    """Dimensions P of the projection."""

    def __post_init__(self) -> None:
        positive("length", self.length)
        positive("epsilon", self.epsilon)
        between("ema", self.ema, 0, 1)
        whole("random_features", self.random_features, 0)
        whole("projector_width", self.projector_width, 1)
        whole("projection", self.projection, 1)


class GPJE(ImageMethod):
    """Fusible: `length`, `epsilon`, `ema`. The context is the first view, the target the second, both of unit length.
    Without the target network, which has no gradient, targets would vanish."""

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
        self.projector = mlp(self.features, config.projector_width, config.projection, norm="batch")
        self.target = MovingAverage(nn.Sequential(self.encoder, self.projector))
        if config.random_features:
            self.register_buffer("frequencies_PR", torch.randn(config.projection, config.random_features))
            self.register_buffer("phases_R", 2 * math.pi * torch.rand(config.random_features))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of the targets, and its two terms, all over B * P; no gradient reaches the target."""
        context_images_BCHW, target_images_BCHW = batch["views"]
        context_BP = F.normalize(self.projector(self(context_images_BCHW)).float(), dim=-1)
        target_BP = F.normalize(self.target(target_images_BCHW).float(), dim=-1)
        terms, numbers = self._terms(context_BP, target_BP), target_BP.numel()
        parts = {"quadratic": terms.quadratic / numbers, "log_det": terms.log_det / len(target_BP)}
        return Losses(gaussian_process_nll(terms, self.config.projection) / numbers, parts)

    def _terms(self, context_BP: Tensor, target_BP: Tensor) -> DualTerms:
        if not self.config.random_features:
            return dual_terms(target_BP, rbf_kernel(context_BP, context_BP, self.length), self.epsilon)
        features_BR = random_features(context_BP, self.frequencies_PR, self.phases_R, self.length)
        return feature_dual_terms(target_BP, features_BR, self.epsilon)

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.target.update(nn.Sequential(self.encoder, self.projector), self.ema)
