"""Similarity of directions: to a target (BYOL, SimSiam), to a positive relative to negatives (SimCLR, MoCo), or to
prototypes with balanced assignments (SwAV).

Shapes: B images, D dimensions, M entries of a queue or prototypes. Every function returns one value per vector. Unless
stated otherwise, functions scale vectors to unit length, with norms floored at 1e-6. Scores of prototypes are usually
cosines. Gradients flow into all arguments; callers stop them where needed. `tau > 0` and `epsilon > 0` are floats or
0-dimensional tensors.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.losses.linear_algebra import product


def negative_cosine(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`-cos(p, t)`, from -1 (same direction) to 1 (SimSiam Eq. 1)."""
    return -(_unit(prediction_BD) * _unit(target_BD)).sum(-1)


def unit_squared_distance(prediction_BD: Tensor, target_BD: Tensor) -> Tensor:
    """`||p/|p| - t/|t|||^2 = 2 - 2 cos(p, t)`, from 0 (same direction) to 4 (BYOL Eq. 2)."""
    return (_unit(prediction_BD) - _unit(target_BD)).square().sum(-1)


def nt_xent(first_BD: Tensor, second_BD: Tensor, tau: float | Tensor, cosine: bool = True) -> Tensor:
    """SimCLR (Eq. 1 of its paper), `[2B]`, first views before second views. The positive of a vector is the other view
    of its image; its negatives are the other 2B - 2 vectors. With `cosine=False` vectors keep their lengths and are
    compared by their dot product."""
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
    """InfoNCE, `[B]`, from each query's similarities to its positive and negatives, divided by tau."""
    return torch.cat([positive_B[:, None], negative_BM], -1).logsumexp(-1) - positive_B


def similarities(x_BD: Tensor, y_MD: Tensor, tau: float | Tensor) -> Tensor:
    """Cosines divided by `tau`, `[B, M]`, in the inputs' own precision, because with a small `tau` bfloat16 is off by
    half a nat."""
    return product(_unit(x_BD) / tau, _unit(y_MD).mT)


def _unit(x_BD: Tensor) -> Tensor:
    return F.normalize(x_BD, dim=-1, eps=1e-6)


def sinkhorn(scores_BM: Tensor, epsilon: float | Tensor, iterations: int) -> Tensor:
    """Assignments `[B, M]`: `exp(scores / epsilon)` with columns and rows scaled alternately towards equally used
    prototypes. Rows sum to 1, columns to about B/M, which is more accurate with more iterations and larger `epsilon`
    (SwAV Eqs. 3 to 5). Gradients flow through; callers stop them where needed. Raises ValueError unless `iterations >=
    1`."""
    if iterations < 1:
        raise ValueError(f"`iterations >= 1` must hold, but got iterations={iterations}")
    log_assignment_BM = scores_BM / epsilon
    for _ in range(iterations):
        log_assignment_BM = log_assignment_BM.log_softmax(0).log_softmax(1)
    return log_assignment_BM.exp()


def swapped_prediction(scores_BM: Tensor, assignment_BM: Tensor, tau: float | Tensor) -> Tensor:
    """Cross-entropy `[B]` from an assignment to `softmax(scores / tau)` of the other view (SwAV Eq. 2)."""
    return -(assignment_BM * (scores_BM / tau).log_softmax(-1)).sum(-1)
