"""GEOM: a network classifies 72 mirrorings, shifts and rotations of an image; images on which it fails are anomalies
(Golan and El-Yaniv 2018).

Shapes: T transformations, B images, D dimensions.
"""

import math
from collections.abc import Mapping

from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.one_class import fitted_dirichlet, log_probability
from trainables.methods.one_class.transformed import TransformedConfig, TransformedMethod
from trainables.networks.heads import RunningMean


class GEOM(TransformedMethod):
    """The Dirichlet densities of an image's predicted probabilities are fitted to a running mean of log probabilities
    during training; the authors fit them with the trained network. `translation=0` leaves 8 transformations."""

    Config = TransformedConfig
    flips = True
    scores = ("log_probability", "dirichlet")

    def __init__(self, config: TransformedConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        count = len(self.transformations)
        self.classifier = nn.Linear(self.features, count)
        self.mean_log_p_TT = RunningMean((count, count), initial=-math.log(count) - 1)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The cross-entropy of the transformation, averaged over copies and images."""
        (view_BCHW,) = batch["views"]
        logits_TBT = self.classifier(self.copies(view_BCHW)).float()
        self.mean_log_p_TT.update(logits_TBT.detach().log_softmax(-1).mean(1))
        return Losses(-log_probability(logits_TBT).mean(), {})

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        logits_TBT = self.classifier(self.copies_in_turn(images_BCHW)).float()
        alpha_TT = fitted_dirichlet(self.mean_log_p_TT.mean)
        density_TB = ((alpha_TT - 1)[:, None] * logits_TBT.log_softmax(-1)).sum(-1)
        return {
            "log_probability": -log_probability(logits_TBT).mean(0),
            "dirichlet": -density_TB.mean(0),
        }
