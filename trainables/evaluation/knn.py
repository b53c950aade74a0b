"""k nearest neighbours on frozen features (VJE, section 4).

Shapes: N bank images, M test images, D features, B test images at a time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.validation import positive, whole

CHUNK_BYTES = 128 * 2**20
"""The most that the similarities held at a time may take (never less than one test image's)."""


class Accuracies(NamedTuple):
    """Shares in [0, 1] of the test images whose class is the one voted for."""

    majority: float
    """Each neighbour has one vote."""

    weighted: float
    """A neighbour's vote is `exp(similarity / temperature)`."""


@torch.no_grad()
def accuracies(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    test_MD: Tensor,
    test_labels_M: Tensor,
    classes: int,
    k: int,
    temperature: float,
) -> Accuracies:
    """Accuracy of the vote of the `k` bank images of largest cosine similarity, on the features' device in float32.

    Labels are 0..classes-1; of classes with equally many votes the lowest wins. A zero feature has similarity 0 to
    all. `temperature = inf` makes both votes the same. NaN where a feature is not finite. ValueError unless
    `1 <= k <= N` and `temperature > 0`.
    """
    whole("k", k, 1)
    positive("temperature", temperature, infinite=True)
    if k > len(bank_ND):
        raise ValueError(f"k must not exceed the {len(bank_ND)} images of the bank, but got k={k}")
    if not (_finite(bank_ND) and _finite(test_MD)):
        return Accuracies(math.nan, math.nan)
    bank_DN, test_MD = _unit(bank_ND).T, _unit(test_MD)
    bank_labels_N, test_labels_M = bank_labels_N.to(test_MD.device), test_labels_M.to(test_MD.device)
    rows = max(1, CHUNK_BYTES // (len(bank_ND) * test_MD.element_size()))
    # Equal parts: a last one of a single image would be a product of another kind, which rounds otherwise.
    parts = max(1, -(-len(test_MD) // rows))
    similarity_BN = test_MD.new_empty(-(-len(test_MD) // parts), len(bank_ND))
    right_2 = torch.zeros(2, dtype=torch.long, device=test_MD.device)
    for test_BD, labels_B in zip(test_MD.tensor_split(parts), test_labels_M.tensor_split(parts), strict=True):
        near_BN = torch.mm(test_BD, bank_DN, out=similarity_BN[: len(test_BD)])
        near_Bk, neighbours_Bk = near_BN.topk(k)
        weights_Bk = ((near_Bk - near_Bk[:, :1]) / temperature).exp()
        voted = (torch.ones_like(weights_Bk), weights_Bk)
        right_2 += torch.stack(
            [(_elect(bank_labels_N[neighbours_Bk], votes_Bk, classes) == labels_B).sum() for votes_Bk in voted]
        )
    majority, weighted = (right_2.double() / len(test_MD)).tolist()
    return Accuracies(majority, weighted)


def _elect(labels_Bk: Tensor, votes_Bk: Tensor, classes: int) -> Tensor:
    """The class of most votes, `[B]`."""
    return votes_Bk.new_zeros(len(labels_Bk), classes).scatter_add_(1, labels_Bk, votes_Bk).argmax(1)


def _finite(x_ND: Tensor) -> bool:
    """Without a copy of `x_ND`."""
    return bool(torch.stack(torch.aminmax(x_ND)).isfinite().all())


def _unit(x_ND: Tensor) -> Tensor:
    """Rows of norm 1, and zeros where a row is zero; scaled first, so that no square overflows or vanishes."""
    x_ND = x_ND.float()
    tiny = torch.finfo(x_ND.dtype).tiny
    low_N1, high_N1 = x_ND.aminmax(dim=1, keepdim=True)
    scaled_ND = x_ND / torch.maximum(-low_N1, high_N1).clamp_min(tiny)
    return scaled_ND.div_(torch.linalg.vector_norm(scaled_ND, dim=1, keepdim=True).clamp_min(tiny))
