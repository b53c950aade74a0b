"""Deep SVDD: draws images of one class to a centre; images far from it are anomalies (Ruff et al. 2018).

A constant encoder at the centre has zero loss. Three measures exclude it: an encoder without biases and without
BatchNorm weights (`encoder=lenet`), a centre that is not learned, and a centre without entries near 0.

Shapes: B images of C channels, H by W pixels; D dimensions of a representation.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.one_class import (
    bounded_centre,
    quantile,
    relative_variance,
    soft_boundary,
    squared_distance,
    squared_error,
)
from trainables.validation import added, at_least, between, checked, one_of

OBJECTIVES = ("one_class", "soft_boundary")


@checked
class DeepSVDDConfig:
    objective: Annotated[str, one_of(*OBJECTIVES)] = "one_class"
    """`one_class`: the mean squared distance from the centre. `soft_boundary`: the squared radius of a sphere around
    the centre, plus the mean excess of squared distances beyond it, divided by nu."""
    nu: Annotated[float, between(0, 1, above=True)] = 0.1
    """Share of training images that may lie outside the sphere. For `soft_boundary` only."""
    radius_epochs: Annotated[int, at_least(0)] = 10
    """Epochs (not counting `pretrain_epochs`) in which the radius is 0. From then on it is the 1 - nu quantile of the
    previous batch's distances."""
    centre_margin: Annotated[float, at_least(0)] = added(0.1)
    """Entries of the centre with a smaller absolute value are set to this value with their sign. PANDA, whose encoder
    is pretrained, uses 0: its centre is the mean itself."""
    pretrain_epochs: Annotated[int, at_least(0)] = 0
    """Number of the first `epochs` in which encoder and decoder are trained as an autoencoder; 0 skips this and builds
    no decoder. The optimiser and its schedule restart afterwards."""


class DeepSVDD(ImageMethod):
    """Fusible: `nu`. The centre is the mean representation of the training images without augmentation, computed after
    `pretrain_epochs` and then fixed."""

    Config = DeepSVDDConfig
    fusible = frozenset({"nu"})
    capabilities = frozenset({"embed", "score"})
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("reconstruction", "radius", "z_variance")
    measures = frozenset({"radius", "z_variance"})
    scores = ("distance",)
    score_means = MappingProxyType({"distance_mean": "distance"})

    nu: Tensor
    sum_D: Tensor
    """Sum of the representations of the observed images."""
    observed: Tensor
    radius: Tensor

    def __init__(self, config: DeepSVDDConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        if config.pretrain_epochs:
            self.decoder = networks.build_decoder(self.features, self.image_shape)
        self.register_buffer("sum_D", torch.zeros(self.features))
        self.register_buffer("observed", torch.zeros(()))
        self.register_buffer("radius", torch.zeros(()))

    @classmethod
    def view_count(cls, config: DeepSVDDConfig) -> int:
        return 1

    @classmethod
    def has_decoder(cls, config: DeepSVDDConfig) -> bool:
        return config.pretrain_epochs > 0

    @classmethod
    def phases(cls, options: DeepSVDDConfig) -> tuple[int, ...]:
        return (options.pretrain_epochs,)

    @classmethod
    def parts_of(cls, options: DeepSVDDConfig) -> tuple[str, ...]:
        left_out = set() if options.pretrain_epochs else {"reconstruction"}
        left_out |= set() if options.objective == "soft_boundary" else {"radius"}
        return tuple(part for part in cls.loss_parts if part not in left_out)

    def observe(self, batch: Batch) -> None:
        z_BD = self(batch["plain"][0])
        self.sum_D.add_(z_BD.sum(0))
        self.observed.add_(len(z_BD))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The loss of the autoencoder in the first `pretrain_epochs`, then the objective."""
        z_BD, parts = self(batch["views"][0]), {}
        if self.epoch < self.config.pretrain_epochs:
            total = parts["reconstruction"] = squared_error(batch["view_pixels"][0], self.decoder(z_BD)).mean()
        else:
            distance_B = squared_distance(z_BD, self.centre)
            total = distance_B.mean()
            if self.config.objective == "soft_boundary":
                total, parts["radius"] = soft_boundary(distance_B, self.radius.clone(), self.nu), self.radius.clone()
                self._set_radius(distance_B.detach())
        return Losses(total, {**parts, "z_variance": relative_variance(z_BD.detach())})

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The squared distance from the centre."""
        return {"distance": squared_distance(self(images_BCHW), self.centre)}

    @property
    def centre(self) -> Tensor:
        """The centre `[D]` of the observed images."""
        return bounded_centre(self.sum_D / self.observed.clamp_min(1), self.config.centre_margin)

    def _set_radius(self, distance_B: Tensor) -> None:
        if self.epoch >= self.config.pretrain_epochs + self.config.radius_epochs:
            self.radius.copy_(quantile(distance_B, 1 - self.nu).sqrt())
