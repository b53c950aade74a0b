"""How well scores fitted to the vectors of one class separate it from the others, and the results that are kept.

Shapes: K members, N training vectors, M evaluated images, D dimensions of a vector.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics.evaluator import (
    PROJECTION,
    EvaluationImages,
    EvaluationSet,
    Floats,
    RepresentationEvaluator,
    Representations,
)
from trainables.metrics.fitted_scores import FittedScores
from trainables.metrics.meanings import VALIDATION
from trainables.metrics.scores import HELD_OUT, one_class_metrics

VECTORS = "vectors/"
"""Prefix of the names of kept arrays `[N, D]`: the vectors of the training images, by name."""
KEPT_BYTES = 32 * 2**20
"""Maximum bytes of kept vectors per name. If there are more vectors, the trial's seed draws as many as fit."""


def fitted_names(config: ImageTrial, method: type[ImageMethod]) -> list[str]:
    """Names of the fitted scores that a trial asks for: `SCORE_VECTOR`."""
    vectors = (*method.representations, *([PROJECTION] if method.projects(config.options) else []))
    return [f"{score}_{vector}" for vector in vectors for score in config.evaluation.fitted_scores]


def kept_vectors(vectors_ND: Tensor, seed: int) -> Tensor:
    """The training vectors on the CPU, or a random subset that fits into `KEPT_BYTES`, in their original order."""
    count = max(1, KEPT_BYTES // (vectors_ND.shape[1] * vectors_ND.element_size()))
    if count < len(vectors_ND):
        drawn_N = torch.randperm(len(vectors_ND), generator=seeded_generator("kept vectors", seed))[:count]
        vectors_ND = vectors_ND[drawn_N.sort().values.to(vectors_ND.device)]
    return vectors_ND.cpu()


class OneClassScores(RepresentationEvaluator):
    """How well scores fitted to the vectors of one class separate it from the others, at the end of training."""

    needs_bank = False
    one_class = True

    def __init__(self, images: EvaluationImages) -> None:
        super().__init__(images)
        self._fitted: tuple[Representations, dict[str, FittedScores]] | None = None
        self._lengths: dict[str, list[int]] = {}
        """Name of a vector -> the number of training vectors of each member of the stack."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return [f"auroc_{name}" for name in fitted_names(config, method)] if last else ()

    def forget(self) -> None:
        super().forget()
        self._fitted = None

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        scores: dict[str, Floats] = {}
        for vector, fitted in self._fitted_to(vectors).items():
            if vector == PROJECTION:
                x_KMD = self.images.projected(vectors.stack, self.images.prepared(tested.images))
            else:
                x_KMD = vectors.test(tested)[vector]
            scores |= {
                f"{name}_{vector}": values_KM.double().cpu().numpy() for name, values_KM in fitted(x_KMD).items()
            }
            if tested.prefix == VALIDATION:
                self._keep_held_out(vectors, vector, x_KMD, ~tested.outlier_KN[list(vectors.members)])
            self.images.raise_if_stopped()
        self.keep_scores(tested, scores)
        return one_class_metrics(scores, tested.outlier_KN[list(vectors.members)], {})

    def _keep_held_out(
        self, vectors: Representations, vector: str, x_KMD: Tensor, normal_KM: NDArray[np.bool_]
    ) -> None:
        """Keep the scores of held-out normal images of each member that keeps only some of its training vectors. They
        are computed as the member's saved model computes them, with scores fitted to the kept vectors."""
        names, standardize = self.config.evaluation.fitted_scores, self.config.evaluation.one_class_standardize
        for slot, (seed, own) in enumerate(zip(vectors.seeds, self.kept[-len(vectors.members) :], strict=True)):
            train_ND = own[f"{VECTORS}{vector}"]
            if len(train_ND) < self._lengths[vector][slot]:
                fitted = FittedScores(names, [train_ND.to(x_KMD.device)], [seed], standardize=standardize)
                held_out = fitted(x_KMD[slot : slot + 1, torch.from_numpy(normal_KM[slot])])
                own |= {f"{HELD_OUT}{name}_{vector}": values_1M[0].cpu() for name, values_1M in held_out.items()}

    def _fitted_to(self, vectors: Representations) -> dict[str, FittedScores]:
        """Name of each vector -> the scores fitted to it, cached for all sets of images."""
        if self._fitted is None or self._fitted[0] is not vectors:
            self._fitted = None  # frees the scores of the previous stack
            projected, evaluation = vectors.method.projects(self.config.options), self.config.evaluation
            training = self.images.training_vectors(vectors.stack, vectors.members, projected)
            names, standardize = evaluation.fitted_scores, evaluation.one_class_standardize
            scores = {
                vector: FittedScores(names, by_member, vectors.seeds, standardize=standardize)
                for vector, by_member in training.items()
            }
            self._fitted = vectors, scores
            self.kept += [
                {f"{VECTORS}{vector}": kept_vectors(by_member[slot], seed) for vector, by_member in training.items()}
                for slot, seed in enumerate(vectors.seeds)
            ]
            self._lengths = {vector: [*map(len, by_member)] for vector, by_member in training.items()}
        return self._fitted[1]
