"""Evaluators of representations as the VJE paper has them: k-NN, linear probes by SGD, variance of the posterior.

Shapes: K members, N images of the bank, M evaluated images, D dimensions.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.evaluation import knn, posterior, probes
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import seeded_generator
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import EvaluationSet
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations

TOP = 5
"""Probes also report their top-5 accuracy if there are more than 5 classes."""


class Neighbours(RepresentationEvaluator):
    """Accuracy of the k nearest neighbours by cosine, at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not config.evaluation.knn:
            return ()
        return [f"{family}_{vector}" for vector in method.representations for family in ("knn", "knn_weighted")]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name, bank_KND in vectors.bank().items():
            majority, weighted = self._accuracies(bank_KND, vectors.test(tested)[name], tested.labels)
            metrics |= {f"knn_{name}": majority, f"knn_weighted_{name}": weighted}
        return metrics

    def _accuracies(self, bank_KND: Tensor, test_KMD: Tensor, labels_M: Tensor) -> tuple[Floats, Floats]:
        """Of the majority vote and of the weighted one, `[K]` each."""
        evaluation, images = self.config.evaluation, self.images
        accuracies = []
        for bank_ND, test_MD in zip(bank_KND, test_KMD, strict=True):
            images.raise_if_stopped()
            k, temperature = evaluation.knn, evaluation.knn_temperature
            accuracies.append(
                knn.accuracies(bank_ND, images.bank_labels, test_MD, labels_M, images.classes, k, temperature)
            )
        majority, weighted = np.array(accuracies, dtype=np.float64).T
        return majority, weighted


class LinearProbes(RepresentationEvaluator):
    """Accuracy of linear probes trained by SGD, at the end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not config.evaluation.probe_epochs or not (last or config.embeddings.probe_curve):
            return ()
        return [f"probe{suffix}_{vector}" for vector in method.representations for _, suffix in probe_top_k(classes)]

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name, bank_KND in vectors.bank().items():
            metrics |= self._accuracies(name, bank_KND, vectors.test(tested)[name], tested.labels)
        return metrics

    def _accuracies(self, name: str, bank_KND: Tensor, test_KMD: Tensor, labels_M: Tensor) -> dict[str, Floats]:
        images, evaluation, tops = self.images, self.config.evaluation, probe_top_k(self.images.classes)
        batch_size = min(evaluation.probe_batch_size, len(images.bank_labels))

        def generator_of_epoch(epoch: int) -> torch.Generator:
            images.raise_if_stopped()
            return seeded_generator("probe", self.config.data.dataset, epoch)

        accuracies = probes.accuracies(
            bank_KND,
            images.bank_labels,
            test_KMD,
            labels_M,
            images.classes,
            epochs=evaluation.probe_epochs,
            lr=evaluation.probe_lr * batch_size / 256,
            batch_size=batch_size,
            generator_of_epoch=generator_of_epoch,
            standardize=evaluation.probe_standardize,
            top=[top for top, _ in tops],
        )
        return {f"probe{suffix}_{name}": accuracies[top] for top, suffix in tops}


class PosteriorSpread(RepresentationEvaluator):
    """Statistics of the posterior's variance, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return posterior.METRICS if method.variance else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        assert vectors.method.variance
        return posterior.statistics(vectors.test(tested)[vectors.method.variance])


def probe_top_k(classes: int) -> list[tuple[int, str]]:
    """Each k of which probes report the top-k accuracy, and the suffix of its metric's name."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]
