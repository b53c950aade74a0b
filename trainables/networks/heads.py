"""Small networks on top of an encoder: projectors, predictors, posteriors."""

from __future__ import annotations

import itertools
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

SMALLEST_VARIANCE = 1e-6
"""The floor that is added to a posterior's variance (VJE, section 1)."""


def mlp(*widths: int, norm: Literal["batch", "layer"] | None, last: bool = False, bias: bool = True) -> nn.Sequential:
    """Linear layers from `widths[0]` to `widths[-1]`, after each but the last a norm and ReLU.

    `last` adds a norm without weights of its own there, too. A layer before a BatchNorm has no bias, as that undoes it;
    nor has the last one without `bias`, for losses that do not see it.
    """
    layers: list[nn.Module] = []
    for narrow, wide in itertools.pairwise(widths[:-1]):
        layers += [nn.Linear(narrow, wide, bias=norm != "batch"), *_normalised(norm, wide, weights=True), nn.ReLU()]
    final = norm if last else None
    layers += [nn.Linear(widths[-2], widths[-1], bias=bias and final != "batch")]
    layers += _normalised(final, widths[-1], weights=False)
    return nn.Sequential(*layers)


def _normalised(norm: Literal["batch", "layer"] | None, width: int, weights: bool) -> list[nn.Module]:
    if norm == "batch":
        return [nn.BatchNorm1d(width, affine=weights)]
    return [nn.LayerNorm(width, elementwise_affine=weights)] if norm == "layer" else []


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
