"""Similarity of directions: to a target alone (BYOL, SimSiam), more than to negatives (SimCLR, MoCo), or to prototypes
whose assignments are balanced (SwAV).

Shapes: B images, D dimensions, M entries of a queue or prototypes. Every function returns one value per vector. Vectors
are scaled to unit length here, with norms floored at 1e-6, unless a function says otherwise; scores of prototypes are
cosines as a rule. Gradients flow into all arguments: a stop-gradient is the caller's. `tau > 0` and `epsilon > 0` are
floats or 0-dimensional tensors.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.linear_algebra import product


def negative_cosine(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`-cos(p, t)`, from -1 (one direction) to 1 (SimSiam Eq. 1)."""
    return -(_unit(prediction_BD) * _unit(target_BD)).sum(-1)


def unit_squared_distance(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`||p/|p| - t/|t|||^2 = 2 - 2 cos(p, t)`, from 0 (one direction) to 4 (BYOL Eq. 2)."""
    return (_unit(prediction_BD) - _unit(target_BD)).square().sum(-1)


def nt_xent(first_BD: Tensor, second_BD: Tensor, tau: float | Tensor, cosine: bool = True) -> Tensor:
    """SimCLR (Eq. 1 of its paper), `[2B]`, the first views before the second. The positive of a vector is the other
    view of its image; its negatives are the other 2B - 2 vectors. Without `cosine` vectors are compared by their dot
    product, and keep their lengths."""
    both = torch.cat([first_BD, second_BD])
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    other_view = torch.arange(len(both), device=both.device).roll(len(first_BD))
    logits = similarities(both, both, tau) if cosine else product(both / tau, both.mT)
    logits = logits.masked_fill(itself, -math.inf)
    return F.cross_entropy(logits, other_view, reduction="none")


def info_nce(query_BD: Tensor, key_BD: Tensor, queue_MD: Tensor, tau: float | Tensor) -> Tensor:
    """MoCo (Eq. 1 of its paper), `[B]`: the positive of a query is its key, its negatives are the whole queue."""
    positive_B = (_unit(query_BD) * _unit(key_BD)).sum(-1) / tau
    return info_nce_of(positive_B, similarities(query_BD, queue_MD, tau))


def info_nce_of(positive_B: Tensor, negative_BM: Tensor) -> Tensor:
    """InfoNCE, `[B]`, of similarities over tau with the positive and with the negatives of each query."""
    return torch.cat([positive_B[:, None], negative_BM], -1).logsumexp(-1) - positive_B


def similarities(x_BD: Tensor, y_MD: Tensor, tau: float | Tensor) -> Tensor:
    """Cosines over `tau`, `[B, M]`, in the inputs' own precision: with a small `tau`, bfloat16 is off by half a nat."""
    return product(_unit(x_BD) / tau, _unit(y_MD).mT)


def _unit(x_BD: Tensor) -> Tensor:
    return F.normalize(x_BD, dim=-1, eps=1e-6)


def sinkhorn(scores_BM: Tensor, epsilon: float | Tensor, iterations: int) -> Tensor:
    """Assignments `[B, M]`: `exp(scores / epsilon)` scaled, columns and rows in turn, towards equally used prototypes.
    Rows sum to one, columns to about B/M, the nearer the more iterations and the larger `epsilon` (SwAV Eqs. 3 to 5).
    Gradients flow through: a stop-gradient is the caller's. Raises ValueError unless `iterations >= 1`."""
    if iterations < 1:
        raise ValueError(f"`iterations >= 1` must hold, but got iterations={iterations}")
    log_assignment_BM = scores_BM / epsilon
    for _ in range(iterations):
        log_assignment_BM = log_assignment_BM.log_softmax(0).log_softmax(1)
    return log_assignment_BM.exp()


def swapped_prediction(scores_BM: Tensor, assignment_BM: Tensor, tau: float | Tensor) -> Tensor:
    """Cross-entropy `[B]` from an assignment to `softmax(scores / tau)` of the other view (SwAV Eq. 2)."""
    return -(assignment_BM * (scores_BM / tau).log_softmax(-1)).sum(-1)
