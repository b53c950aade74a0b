"""VICReg: views agree, every dimension varies, no two dimensions covary (arXiv 2105.04906).

Variances and covariances have the divisor B - 1. The paper and its authors' code differ in two conventions. This
implementation averages the difference between views over dimensions, as the code does, and adds the hinges of both
views, as the paper does.

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.moments import covariance_penalty, invariance, variance_hinge
from trainables.networks.heads import mlp
from trainables.validation import at_least, at_most, checked

SMALLEST = 1e-4
"""Added to a variance before its square root is taken."""


@checked
class VICRegConfig:
    invariance_weight: Annotated[float, at_least(0)] = 25.0
    """Weight of the squared difference between views (lambda in the paper). The difference is averaged over dimensions,
    as in the authors' code. The paper's Eq. 5 sums it, so its weight of 25 corresponds to 25 P here."""
    variance_weight: Annotated[float, at_least(0)] = 25.0
    """Weight of the hinge on each dimension's standard deviation (mu in the paper). The hinges of both views are added,
    as in the paper's Eq. 6. The authors' code averages them, so its weight of 25 corresponds to 12.5 here."""
    covariance_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the covariances between dimensions (nu in the paper)."""
    projector_layers: Annotated[int, at_least(1), at_most(100)] = 3
    """Number of layers of the projector."""
    projector_width: Annotated[int, at_least(0)] = 4096
    """Width of the projector's layers, including the projection; 0 for no projector, so that the loss compares
    representations."""


class VICReg(ImageMethod):
    """Fusible: all three weights. The loss uses batch statistics, so a batch is not split over devices."""

    Config = VICRegConfig
    fusible = frozenset({"invariance_weight", "variance_weight", "covariance_weight"})
    loss_parts = ("invariance", "variance", "covariance")

    invariance_weight: Tensor
    variance_weight: Tensor
    covariance_weight: Tensor

    def __init__(self, config: VICRegConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        if config.projector_width:
            widths = [config.projector_width] * config.projector_layers
            self.projector = mlp(self.features, *widths, norm="batch", bias=False)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The weighted sum of three terms. Variance and covariance terms are summed over both views."""
        first_BP, second_BP = (self.project(view_BCHW) for view_BCHW in batch["views"])
        parts = {
            "invariance": invariance(first_BP, second_BP),
            "variance": variance_hinge(first_BP, SMALLEST) + variance_hinge(second_BP, SMALLEST),
            "covariance": covariance_penalty(first_BP) + covariance_penalty(second_BP),
        }
        total = self.invariance_weight * parts["invariance"]
        total = total + self.variance_weight * parts["variance"] + self.covariance_weight * parts["covariance"]
        return Losses(total, parts)
