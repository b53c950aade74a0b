"""Barlow Twins: the views' cross-correlation matrix is pulled towards the identity (arXiv 2103.03230).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.moments import cross_correlation, off_diagonal, on_diagonal
from trainables.networks.heads import mlp
from trainables.validation import above, at_least, at_most, checked


@checked
class BarlowTwinsConfig:
    redundancy_weight: Annotated[float, at_least(0)] = 5e-3
    """Weight of the correlations between different dimensions (lambda in the paper). There are about P times as many of
    them as diagonal terms, so keep lambda times P constant when P changes; in the paper it is 0.005 x 8192 = 41."""
    loss_scale: Annotated[float, above(0)] = 1.0
    """Factor of the whole loss. The paper's Eq. 1 has no such factor, and its loss grows with P. The authors' code
    multiplies by 0.024 (P = 8192; LARS with learning rate 0.2), common CIFAR-10 code by 0.1 (P = 2048)."""
    projector_layers: Annotated[int, at_least(1), at_most(100)] = 3
    """Number of layers of the projector."""
    projector_width: Annotated[int, at_least(1)] = 2048
    """Width of the projector's layers, including the projection; 8192 in the paper."""


class BarlowTwins(ImageMethod):
    """Fusible: `redundancy_weight`, `loss_scale`. The loss uses batch statistics, so a batch is not split over devices.
    Unlike in the paper, the projector is a quarter as wide by default, the optimiser is SGD instead of LARS, and biases
    and norms have the same weight decay and learning rate as weights."""

    Config = BarlowTwinsConfig
    fusible = frozenset({"redundancy_weight", "loss_scale"})
    loss_parts = ("invariance", "redundancy")

    redundancy_weight: Tensor
    loss_scale: Tensor
    projector: nn.Sequential

    def __init__(self, config: BarlowTwinsConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        widths = [config.projector_width] * config.projector_layers
        self.projector = mlp(self.features, *widths, norm="batch", bias=False)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Eq. 1: squared differences between the diagonal and one, plus weighted squares of all other entries. The
        reported parts are neither weighted nor scaled."""
        first_BP, second_BP = (self.project(view_BCHW) for view_BCHW in batch["views"])
        correlation_PP = cross_correlation(first_BP, second_BP)
        parts = {"invariance": on_diagonal(correlation_PP), "redundancy": off_diagonal(correlation_PP)}
        return Losses(self.loss_scale * (parts["invariance"] + self.redundancy_weight * parts["redundancy"]), parts)
