"""Small networks on top of an encoder."""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

SMALLEST_VARIANCE = 1e-6
"""The floor that is added to a posterior's variance (VJE, section 1)."""


class GaussianHead(nn.Module):
    """A diagonal Gaussian posterior over a representation: bottleneck MLP, then heads for `mu` and `var` (VJE).

    Three layers Linear, LayerNorm, ReLU of one `width`; no BatchNorm, so a posterior does not depend on its batch.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        widths = (features, width, width, width)
        self.trunk = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(narrow, wide), nn.LayerNorm(wide), nn.ReLU())
                for narrow, wide in itertools.pairwise(widths)
            )
        )
        self.mu = nn.Linear(width, features)
        self.raw_var = nn.Linear(width, features)

    def forward(self, z_BD: Tensor) -> tuple[Tensor, Tensor]:
        """`(mu_BD, var_BD)` in float32 whatever the precision of the layers; `var >= 1e-6`."""
        hidden = self.trunk(z_BD)
        return self.mu(hidden).float(), F.softplus(self.raw_var(hidden).float()) + SMALLEST_VARIANCE
