"""GOAD: image copies under each of 72 transformations cluster around a centre; images whose copies are nearer to a
wrong centre are anomalies (Bergman and Hoshen 2020).

Shapes: T transformations, B images, D dimensions.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.linear_algebra import squared_distances
from trainables.losses.one_class import log_probability, triplet_centre
from trainables.methods.one_class.transformed import TransformedConfig, TransformedMethod
from trainables.networks.heads import RunningMean
from trainables.validation import at_least, checked


@checked
class GOADConfig(TransformedConfig):
    triplet_weight: Annotated[float, at_least(0)] = 0.1
    """Weight of the triplet-centre loss."""
    margin: Annotated[float, at_least(0)] = 0.1
    """Margin, in squared distance, by which a copy must be nearer to its own centre than to any other."""
    norm_weight: Annotated[float, at_least(0)] = 10.0
    """Weight of the mean squared entry of the representations."""


class GOAD(TransformedMethod):
    """Fusible: all keys except `translation`. The centres in the loss are batch means; the centres in the score are
    running means of them, whereas the authors take the mean over the last epoch."""

    Config = GOADConfig
    fusible = frozenset({"triplet_weight", "margin", "norm_weight"})
    flips = True
    loss_parts = ("cross_entropy", "triplet", "norm")
    scores = ("log_probability",)

    triplet_weight: Tensor
    margin: Tensor
    norm_weight: Tensor

    def __init__(self, config: GOADConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.classifier = nn.Linear(self.features, len(self.transformations))
        self.centre_TD = RunningMean((len(self.transformations), self.features))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The cross-entropy of the transformation, the triplet-centre loss and the mean square, each averaged over
        copies and images."""
        (view_BCHW,) = batch["views"]
        z_TBD = self.copies(view_BCHW)
        self.centre_TD.update(z_TBD.detach().mean(1))
        logits_TBT = self.classifier(z_TBD).float()
        parts = {
            "cross_entropy": -log_probability(logits_TBT).mean(),
            "triplet": triplet_centre(z_TBD, self.margin).mean(),
            "norm": z_TBD.square().mean(),
        }
        total = parts["cross_entropy"] + self.triplet_weight * parts["triplet"] + self.norm_weight * parts["norm"]
        return Losses(total, parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The probability of a transformation is the softmax of the negative squared distances from the centres."""
        z_TBD = self.copies_in_turn(images_BCHW)
        log_p_TB = log_probability(-squared_distances(z_TBD, self.centre_TD.mean))
        return {"log_probability": -log_p_TB.mean(0)}
