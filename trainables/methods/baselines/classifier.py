"""Classifier: a linear layer on the encoder predicts the labels, with label smoothing and mixup (arXiv 1710.09412).

Shapes: B images, D features, L classes.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.losses.classification import random_partners, smoothed_cross_entropy, symmetric_beta
from trainables.validation import at_least, below, checked


@checked
class ClassifierConfig:
    smoothing: Annotated[float, at_least(0), below(1)] = 0.0
    """Share of each target that is spread over all classes."""
    mixup: Annotated[float, at_least(0)] = 0.0
    """Parameter alpha of the Beta(alpha, alpha) distribution of mixing weights: each batch draws one weight and mixes
    its images with other images of the batch. 0 disables mixup."""


class Classifier(ImageMethod):
    """Fusible: both hyperparameters. A batch is not split over devices, because mixup combines its images."""

    Config = ClassifierConfig
    fusible = frozenset({"smoothing", "mixup"})
    capabilities = frozenset({"embed", "classify"})
    reads = frozenset({"views", "labels"})

    smoothing: Tensor
    mixup: Tensor

    def __init__(self, config: ClassifierConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.head = nn.Linear(self.features, self.classes)

    @classmethod
    def view_count(cls, config: ClassifierConfig) -> int:
        return 1

    def noise(self, batch: int) -> Noises:
        return {"weight": Noise((2,), kind="uniform"), "partners": Noise((batch,), 0, kind="uniform")}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        (view_BCHW,), labels_B = batch["views"], batch["labels"]
        weight, partners_B = symmetric_beta(self.mixup, noise["weight"]), random_partners(noise["partners"])
        logits_BL = self.classify(weight * view_BCHW + (1 - weight) * view_BCHW[partners_B])
        own_B, other_B = (
            smoothed_cross_entropy(logits_BL, y_B, self.smoothing) for y_B in (labels_B, labels_B[partners_B])
        )
        return Losses((weight * own_B + (1 - weight) * other_B).mean(), {})

    def classify(self, images_BCHW: Tensor) -> Tensor:
        return self.head(self(images_BCHW)).float()
