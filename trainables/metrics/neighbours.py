"""k nearest neighbours on frozen features: by cosine (VJE, Table 2), and by distance for each k (SimVAE, Table 1).

Shapes: N bank images, M test images, D features, B test images at a time.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.metrics.evaluator import EvaluationSet, Floats, RepresentationEvaluator, Representations, all_finite
from trainables.metrics.scores import auroc
from trainables.validation import positive, whole

CHUNK_BYTES = 128 * 2**20
"""Maximum bytes of similarities or distances in memory at a time. Those of one test image are always computed at
once."""


class NeighbourAccuracies(NamedTuple):
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
) -> NeighbourAccuracies:
    """Accuracy of a vote among the `k` bank images with the largest cosine similarity, in float32 on the features'
    device.

    Labels are in 0..classes-1. Ties go to the class with the lowest index. A zero feature has similarity 0 to all
    others. With `temperature = inf` both votes are equal. NaN if a feature is not finite. Raises ValueError unless `1
    <= k <= N` and `temperature > 0`.
    """
    correct_2M = correct(bank_ND, bank_labels_N, test_MD, test_labels_M, classes, k, temperature)
    if correct_2M is None:
        return NeighbourAccuracies(math.nan, math.nan)
    return NeighbourAccuracies(*_shares(correct_2M))


@torch.no_grad()
def correct(
    bank_ND: Tensor,
    bank_labels_N: Tensor,
    test_MD: Tensor,
    test_labels_M: Tensor,
    classes: int,
    k: int,
    temperature: float,
) -> Tensor | None:
    """Whether the class of each test image wins the majority vote and the weighted vote, `[2, M]`. Takes the arguments
    of `accuracies`; None if a feature is not finite."""
    _check("k", k, bank_ND)
    positive("temperature", temperature, infinite=True)
    if not (all_finite(bank_ND) and all_finite(test_MD)):
        return None
    bank_DN, test_MD = unit(bank_ND.float()).T, unit(test_MD.float())
    bank_labels_N, test_labels_M = bank_labels_N.to(test_MD.device), test_labels_M.to(test_MD.device)
    parts = _parts(test_MD, len(bank_ND))
    similarity_BN = test_MD.new_empty(-(-len(test_MD) // parts), len(bank_ND))
    correct_2B = []
    for test_BD, labels_B in zip(test_MD.tensor_split(parts), test_labels_M.tensor_split(parts), strict=True):
        near_BN = torch.mm(test_BD, bank_DN, out=similarity_BN[: len(test_BD)])
        near_Bk, neighbours_Bk = near_BN.topk(k)
        weights_Bk = ((near_Bk - near_Bk[:, :1]) / temperature).exp()
        both_votes = (torch.ones_like(weights_Bk), weights_Bk)
        elected_2B = [_elect(bank_labels_N[neighbours_Bk], votes_Bk, classes) for votes_Bk in both_votes]
        correct_2B.append(torch.stack(elected_2B) == labels_B)
    return torch.cat(correct_2B, dim=1)


@torch.no_grad()
def accuracies_by_k(
    bank_ND: Tensor, bank_labels_N: Tensor, test_MD: Tensor, test_labels_M: Tensor, classes: int, most: int
) -> Floats:
    """Accuracy `[most]` of a vote among the k bank images nearest by Euclidean distance, for k = 1, ..., `most`.

    Each neighbour has one vote. Labels are in 0..classes-1. Ties go to the class with the lowest index. Distances are
    computed in float64 on the features' device. All NaN if a feature is not finite. Raises ValueError unless `1 <= most
    <= N`.
    """
    _check("most", most, bank_ND)
    if not (all_finite(bank_ND) and all_finite(test_MD)):
        return np.full(most, math.nan)
    centre_D = bank_ND.mean(0, dtype=torch.float64)  # features near 0 have smaller rounding errors
    bank_DN, test_MD = (bank_ND.double() - centre_D).T, test_MD.double() - centre_D
    bank_labels_N, test_labels_M = bank_labels_N.to(test_MD.device), test_labels_M.to(test_MD.device)
    norm_N = bank_DN.square().sum(0)
    parts = _parts(test_MD, len(bank_ND))
    correct_k = torch.zeros(most, dtype=torch.long, device=test_MD.device)
    for test_BD, labels_B in zip(test_MD.tensor_split(parts), test_labels_M.tensor_split(parts), strict=True):
        # The squared distances minus the squared norm of the test image, which does not change the order.
        neighbours_Bk = torch.addmm(norm_N, test_BD, bank_DN, alpha=-2).topk(most, largest=False).indices
        votes_Bk = torch.ones_like(neighbours_Bk)
        correct_k += torch.stack(
            [
                (_elect(bank_labels_N[neighbours_Bk[:, :k]], votes_Bk[:, :k], classes) == labels_B).sum()
                for k in range(1, most + 1)
            ]
        )
    shares: Floats = (correct_k.double() / len(test_MD)).cpu().numpy()
    return shares


def _check(name: str, k: int, bank_ND: Tensor) -> None:
    """Raises ValueError unless `1 <= k <= N`."""
    whole(name, k, 1)
    if k > len(bank_ND):
        raise ValueError(f"{name} must not exceed the {len(bank_ND)} images of the bank, but got {name}={k}")


def _parts(test_MD: Tensor, images: int) -> int:
    """Number of parts into which the test images are split, so that their similarities to `images` other images fit in
    `CHUNK_BYTES`. The parts have equal sizes: a last part with a single image would use another matrix product, which
    rounds differently."""
    rows = max(1, CHUNK_BYTES // (images * test_MD.element_size()))
    return max(1, -(-len(test_MD) // rows))


def _elect(labels_Bk: Tensor, votes_Bk: Tensor, classes: int) -> Tensor:
    """The class with the most votes, `[B]`."""
    return votes_Bk.new_zeros(len(labels_Bk), classes).scatter_add_(1, labels_Bk, votes_Bk).argmax(1)


def unit(x: Tensor) -> Tensor:
    """Scale vectors `[..., D]` to norm 1; zero vectors stay zero. Vectors are first divided by their largest value, so
    that no square overflows or underflows."""
    tiny = torch.finfo(x.dtype).tiny
    low, high = x.aminmax(dim=-1, keepdim=True)
    scaled = x / torch.maximum(-low, high).clamp_min(tiny)
    return scaled.div_(torch.linalg.vector_norm(scaled, dim=-1, keepdim=True).clamp_min(tiny))


class Neighbours(RepresentationEvaluator):
    """Accuracy of the k nearest neighbours by cosine, and how well the posterior's entropy predicts the errors of k-NN
    on z, at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not config.evaluation.knn:
            return ()
        names = [f"{family}_{vector}" for vector in method.representations for family in ("knn", "knn_weighted")]
        return [*names, "error_auroc"] if method.variance else names

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        predicted: dict[str, Floats] = {}
        for name, bank_KND in vectors.bank().items():
            correct_K = self._correct(bank_KND, vectors.test(tested)[name], tested.labels)
            shares = [(math.nan, math.nan) if each is None else _shares(each) for each in correct_K]
            majority, weighted = np.array(shares, dtype=np.float64).T
            metrics |= {f"knn_{name}": majority, f"knn_weighted_{name}": weighted}
            if name == "z" and vectors.method.variance:
                var_KMD = vectors.test(tested)[vectors.method.variance]
                predicted["error_auroc"] = np.array([*map(error_auroc, var_KMD, correct_K)])
        return {**metrics, **predicted}

    def _correct(self, bank_KND: Tensor, test_KMD: Tensor, labels_M: Tensor) -> list[Tensor | None]:
        """The result of `correct` for each member."""
        evaluation, images = self.config.evaluation, self.images
        by_member = []
        for bank_ND, test_MD in zip(bank_KND, test_KMD, strict=True):
            images.raise_if_stopped()
            k, temperature = evaluation.knn, evaluation.knn_temperature
            by_member.append(correct(bank_ND, images.bank_labels, test_MD, labels_M, images.classes, k, temperature))
        return by_member


def error_auroc(var_MD: Tensor, correct_2M: Tensor | None) -> float:
    """Probability that the entropy of `N(., diag var)` is larger for an image that the majority vote misclassifies than
    for a correctly classified one. NaN if a variance or a feature is not finite, or if all images are correct or all
    are wrong."""
    if correct_2M is None:
        return math.nan
    entropy_M = var_MD.double().log().sum(-1).cpu().numpy()
    return float(auroc(entropy_M[None], ~correct_2M[:1].cpu().numpy())[0])


def _shares(correct_2M: Tensor) -> tuple[float, float]:
    majority, weighted = (correct_2M.sum(1).double() / correct_2M.shape[1]).tolist()
    return majority, weighted


class EuclideanNeighbours(RepresentationEvaluator):
    """Accuracy of the k nearest neighbours by Euclidean distance, for each k and the best."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        most = config.content.content_knn if last else 0
        return [*(f"knn_{k}" for k in range(1, most + 1)), "knn_best"] if most else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images, most = self.images, self.config.content.content_knn
        by_member = []
        for bank_ND, test_MD in zip(vectors.bank()["z"], vectors.test(tested)["z"], strict=True):
            images.raise_if_stopped()
            by_member.append(accuracies_by_k(bank_ND, images.bank_labels, test_MD, tested.labels, images.classes, most))
        accuracy_Kk = np.array(by_member)
        return {f"knn_{k}": accuracy_Kk[:, k - 1] for k in range(1, most + 1)} | {"knn_best": accuracy_Kk.max(axis=1)}
