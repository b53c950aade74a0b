"""Agreement of directions between a prediction and its target, without negatives (BYOL, SimSiam).

Shapes: B images, D dimensions. Every function returns one value per image, `[B]`. Vectors are scaled to unit length
here, with norms floored at 1e-6. Gradients flow into both arguments: a stop-gradient is the caller's.
For vectors above the floor, `unit_squared_distance = 2 + 2 negative_cosine`: one minimum, gradients twice as large.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def negative_cosine(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`-cos(p, t)`, from -1 (one direction) to 1 (SimSiam Eq. 1)."""
    return -(_unit(prediction_BD) * _unit(target_BD)).sum(-1)


def unit_squared_distance(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`||p/|p| - t/|t|||^2 = 2 - 2 cos(p, t)`, from 0 (one direction) to 4 (BYOL Eq. 2)."""
    return (_unit(prediction_BD) - _unit(target_BD)).square().sum(-1)


def _unit(x_BD: Tensor) -> Tensor:
    return F.normalize(x_BD, dim=-1, eps=1e-6)
