"""Rotation prediction: a network learns how an image was shifted and rotated; images on which it is unsure are
anomalies (Golan and El-Yaniv 2018, Hendrycks et al. 2019).

Shapes: T transformations, B images, M classes of a head, D dimensions.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.one_class import log_probability
from trainables.methods.one_class.transformed import TransformedConfig, TransformedMethod

HEADS = {"turns": 4, "rows": 3, "columns": 3}
"""Name of a head -> number of its classes: rotations, shifts along the columns and along the rows."""


class Rotation(TransformedMethod):
    """One linear layer holds all heads. With `translation=0` there is only the head for four rotations, the classifier
    of Gidaris et al. (2018); otherwise two more heads predict three shifts along each axis."""

    Config = TransformedConfig
    per_example = True
    loss_parts = ("turns", "rows", "columns")
    scores = ("probability", "log_probability")

    def __init__(self, config: TransformedConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.heads = self.parts_of(config)
        self.classifier = nn.Linear(self.features, sum(HEADS[head] for head in self.heads))

    @classmethod
    def parts_of(cls, options: TransformedConfig) -> tuple[str, ...]:
        return cls.loss_parts if options.translation else ("turns",)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The cross-entropy, averaged over copies, images and heads."""
        (view_BCHW,) = batch["views"]
        parts = {head: -each_TB.mean() for head, each_TB in self._log_probabilities(self.copies(view_BCHW)).items()}
        return Losses(torch.stack([*parts.values()]).mean(), parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        log_p = self._log_probabilities(self.copies_in_turn(images_BCHW))
        log_p_HTB = torch.stack([*log_p.values()])
        return {"probability": -log_p_HTB.exp().mean((0, 1)), "log_probability": -log_p_HTB.mean((0, 1))}

    def _log_probabilities(self, z_TBD: Tensor) -> dict[str, Tensor]:
        """Log probability of the true class of each head, `[T, B]`."""
        logits = self.classifier(z_TBD).float().split([HEADS[head] for head in self.heads], -1)
        log_p = {}
        for head, logits_TBM in zip(self.heads, logits, strict=True):
            labels = [getattr(each, head) % HEADS[head] for each in self.transformations]  # -1 is the last class
            log_p[head] = log_probability(logits_TBM, torch.tensor(labels, device=z_TBD.device))
        return log_p
