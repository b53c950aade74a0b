"""k nearest neighbours on frozen features (VJE, section 4).

Shapes: N bank images, M test images, D features, B test images at a time.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.evaluation.probes import all_finite
from trainables.validation import positive, whole

CHUNK_BYTES = 128 * 2**20
"""Maximum bytes of the similarities in memory at a time. The similarities of one test image are always computed."""


class Accuracies(NamedTuple):
    """Shares in [0, 1] of the test images whose class wins the vote."""

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
    """Accuracy of a vote among the `k` bank images with the largest cosine similarity, in float32 on the features'
    device.

    Labels are in 0..classes-1. Of classes with equally many votes the lowest wins. A zero feature has similarity 0 to
    all others. With `temperature = inf` both votes are the same. NaN if a feature is not finite. Raises ValueError
    unless `1 <= k <= N` and `temperature > 0`.
    """
    whole("k", k, 1)
    positive("temperature", temperature, infinite=True)
    if k > len(bank_ND):
        raise ValueError(f"k must not exceed the {len(bank_ND)} images of the bank, but got k={k}")
    if not (all_finite(bank_ND) and all_finite(test_MD)):
        return Accuracies(math.nan, math.nan)
    bank_DN, test_MD = _unit(bank_ND).T, _unit(test_MD)
    bank_labels_N, test_labels_M = bank_labels_N.to(test_MD.device), test_labels_M.to(test_MD.device)
    rows = max(1, CHUNK_BYTES // (len(bank_ND) * test_MD.element_size()))
    # Parts of equal size: a last part of a single image would use another matrix product, which rounds differently.
    parts = max(1, -(-len(test_MD) // rows))
    similarity_BN = test_MD.new_empty(-(-len(test_MD) // parts), len(bank_ND))
    correct_2 = torch.zeros(2, dtype=torch.long, device=test_MD.device)
    for test_BD, labels_B in zip(test_MD.tensor_split(parts), test_labels_M.tensor_split(parts), strict=True):
        near_BN = torch.mm(test_BD, bank_DN, out=similarity_BN[: len(test_BD)])
        near_Bk, neighbours_Bk = near_BN.topk(k)
        weights_Bk = ((near_Bk - near_Bk[:, :1]) / temperature).exp()
        both_votes = (torch.ones_like(weights_Bk), weights_Bk)
        correct_2 += torch.stack(
            [(_elect(bank_labels_N[neighbours_Bk], votes_Bk, classes) == labels_B).sum() for votes_Bk in both_votes]
        )
    majority, weighted = (correct_2.double() / len(test_MD)).tolist()
    return Accuracies(majority, weighted)


def _elect(labels_Bk: Tensor, votes_Bk: Tensor, classes: int) -> Tensor:
    """The class with the most votes, `[B]`."""
    return votes_Bk.new_zeros(len(labels_Bk), classes).scatter_add_(1, labels_Bk, votes_Bk).argmax(1)


def _unit(x_ND: Tensor) -> Tensor:
    """Scale each row to norm 1; zero rows stay zero. Rows are first divided by their largest value, so that no square
    overflows or underflows."""
    x_ND = x_ND.float()
    tiny = torch.finfo(x_ND.dtype).tiny
    low_N1, high_N1 = x_ND.aminmax(dim=1, keepdim=True)
    scaled_ND = x_ND / torch.maximum(-low_N1, high_N1).clamp_min(tiny)
    return scaled_ND.div_(torch.linalg.vector_norm(scaled_ND, dim=1, keepdim=True).clamp_min(tiny))
