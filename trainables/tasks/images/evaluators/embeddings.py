"""Evaluators of joint embeddings (GMJE): a probe on a few labels, and where embeddings lie on the unit sphere.

Shapes: K members, N images of the bank, M evaluated images, P dimensions of an embedding.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.evaluation import few_label_probes, geometry
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import seeded_generator
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import EvaluationSet
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations


class FewLabelProbes(RepresentationEvaluator):
    """Accuracy of linear probes on z that see a few labels of each class, at the end or at every report."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        labels = config.embeddings.few_labels
        return [f"probe_{labels}"] if labels and (last or config.embeddings.probe_curve) else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        images, embeddings = self.images, self.config.embeddings
        draws = [
            few_label_probes.draw_labelled(
                images.bank_labels,
                embeddings.few_labels,
                seeded_generator("few labels", self.config.data.dataset, index),
            )
            for index in range(embeddings.few_label_draws)
        ]
        accuracies = few_label_probes.accuracies(
            vectors.bank()["z"],
            images.bank_labels,
            vectors.test(tested)["z"],
            tested.labels,
            images.classes,
            draws,
            images.raise_if_stopped,
        )
        return {f"probe_{embeddings.few_labels}": accuracies}


class EmbeddingGeometry(RepresentationEvaluator):
    """Geometry of the embeddings of evaluated images, and of two views of each, at every report."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        asked = config.embeddings.geometry != "none"
        return ("effective_rank", "cosine", "volume", "trace", "norm") if asked else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        plain_KMP = self._embedded(vectors, self.images.prepared(tested.images))
        first_KMP, second_KMP = (self._embedded(vectors, self.images.views(tested.images, index)) for index in range(2))
        eigenvalues_KP = geometry.spectrum(plain_KMP)
        return {
            "effective_rank": geometry.effective_rank(eigenvalues_KP),
            "cosine": geometry.cosine(first_KMP, second_KMP),
            "volume": geometry.volume(eigenvalues_KP),
            "trace": geometry.trace(eigenvalues_KP),
            "norm": plain_KMP.double().norm(dim=-1).mean(-1).cpu().numpy(),
        }

    def _embedded(self, vectors: Representations, batches: Iterator[Tensor]) -> Tensor:
        """Embeddings `[K, M, P]` of prepared images."""
        if self.config.embeddings.geometry == "projection":
            return torch.cat([vectors.stack.evaluate("project", batch_BCHW) for batch_BCHW in batches], dim=1)
        return torch.cat([vectors.stack.evaluate("embed", batch_BCHW)["z"] for batch_BCHW in batches], dim=1)
