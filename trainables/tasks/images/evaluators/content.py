"""Evaluators of representations as the SimVAE paper has them (section 8), at the end of training.

They read the representation z only. Shapes: K members, N images of the bank, M evaluated images, D dimensions.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.evaluation import adam_probes, knn
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import numpy_seed, seeded_generator
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import EvaluationSet
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations

CLUSTER_METRICS = tuple(f"{name}{suffix}" for suffix in ("", "_batch64") for name in ("gmm_accuracy", "nmi", "ari"))

STARTS = 3
"""Probes of each kind that a member has, each from weights of its own. A metric is the mean over them. In
`simvae_content --preset digits` the linear and the MLP probes take 4 % of the time of a trial of SimVAE, 8 % of the VAE
and 9 % of SimCLR, 1.1 to 1.4 times as long as with one start."""


class AdamProbes(RepresentationEvaluator):
    """What the linear probe and the MLP probe have in common with the probes of styles: their training."""

    def accuracies(
        self,
        vectors: Representations,
        tested: EvaluationSet,
        labels_N: Tensor,
        labels_M: Tensor,
        classes: int,
        mlp: bool,
    ) -> adam_probes.Accuracies:
        """Accuracies `[K]` of probes that tell these labels from z, after the last epoch and in the best one."""
        content, images = self.config.content, self.images
        bank_KND, test_KMD = vectors.bank()["z"], vectors.test(tested)["z"]

        def generator_of_epoch(epoch: int) -> torch.Generator:
            images.raise_if_stopped()
            return seeded_generator("content probe", self.config.data.dataset, epoch)

        return adam_probes.accuracies(
            bank_KND,
            labels_N,
            test_KMD,
            labels_M,
            classes,
            hidden=(content.content_probe_width or bank_KND.shape[-1],) if mlp else (),
            epochs=content.content_probe_epochs,
            lr=content.content_probe_lr,
            batch_size=content.content_probe_batch_size,
            initial_generators=[
                seeded_generator("content probe weights", self.config.data.dataset, seed) for seed in vectors.seeds
            ],
            generator_of_epoch=generator_of_epoch,
            starts=STARTS,
        )


class ContentProbes(AdamProbes):
    """Accuracy of a linear probe and an MLP probe of the class."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if not (last and config.content.content_probe_epochs):
            return ()
        return "probe_linear", "probe_linear_best", "probe_mlp", "probe_mlp_best"

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name, mlp in (("probe_linear", False), ("probe_mlp", True)):
            last, best = self.accuracies(
                vectors, tested, self.images.bank_labels, tested.labels, self.images.classes, mlp
            )
            metrics |= {name: last, f"{name}_best": best}
        return metrics


class StyleProbes(AdamProbes):
    """Accuracy of an MLP probe of each attribute that is asked for."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return [f"style_{name}" for name in config.content.style_names] if last else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        metrics: dict[str, Floats] = {}
        for name in self.config.content.style_names:
            labels_N, labels_M = self.images.bank_attributes[name], tested.attributes[name]
            classes = self.images.dataset.attributes[name].classes
            metrics[f"style_{name}"] = self.accuracies(vectors, tested, labels_N, labels_M, classes, mlp=True).last
        return metrics


class EuclideanNeighbours(RepresentationEvaluator):
    """Accuracy of the k nearest neighbours by Euclidean distance, for each k and the best."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        most = config.content.content_knn if last else 0
        return [*(f"knn_{k}" for k in range(1, most + 1)), "knn_best"] if most else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images, most = self.images, self.config.content.content_knn
        accuracies = []
        for bank_ND, test_MD in zip(vectors.bank()["z"], vectors.test(tested)["z"], strict=True):
            images.raise_if_stopped()
            accuracies.append(
                knn.accuracies_by_k(bank_ND, images.bank_labels, test_MD, tested.labels, images.classes, most)
            )
        accuracy_Kk = np.array(accuracies)
        return {f"knn_{k}": accuracy_Kk[:, k - 1] for k in range(1, most + 1)} | {"knn_best": accuracy_Kk.max(axis=1)}


class MixtureClusters(RepresentationEvaluator):
    """How well the clusters of a Gaussian mixture agree with the classes."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return CLUSTER_METRICS if last and config.content.gmm_n_init else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        from trainables.evaluation import clustering  # here: importing scikit-learn would delay every worker

        by_member, classes = [], len(self.images.bank_labels.unique())  # without those that are held out
        for bank_ND, test_MD, seed in zip(vectors.bank()["z"], vectors.test(tested)["z"], vectors.seeds, strict=True):
            self.images.raise_if_stopped()
            by_member.append(
                clustering.evaluate(
                    bank_ND,
                    test_MD,
                    tested.labels,
                    classes,
                    n_init=self.config.content.gmm_n_init,
                    random_state=numpy_seed("clusters", self.config.data.dataset, seed),
                )
            )
        return {name: np.array([scores[name] for scores in by_member]) for name in CLUSTER_METRICS}
