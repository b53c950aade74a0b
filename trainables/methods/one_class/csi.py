"""CSI: SimCLR with an image's own rotations as extra negatives, which a second head predicts (Tack et al. 2020).

Shapes: S = 4 rotations, B images, D dimensions of a representation, P of a projection, M training images in the bank.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.data.augmentation import resized_crop
from trainables.data.transformations import TURNS, transformations, transformed
from trainables.losses.one_class import log_probability
from trainables.losses.similarity import nt_xent, similarities
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.networks.heads import RunningMean
from trainables.validation import above, added, at_least, checked

ROTATIONS = transformations(shifts=False, flips=False)
CROP = 0.54
"""Area of a scored crop, as a share of the image."""
SMALLEST = 1e-2
"""Minimum of the mean over training images by which a score is divided."""


@checked
class CSIConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.5
    """Temperature."""
    shift_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the rotation's cross-entropy."""
    bank: Annotated[int, at_least(1)] = 1024
    """Number M of most recent training images with which the contrastive score compares an image."""
    score_crops: Annotated[int, at_least(0)] = added(0)
    """Number of square crops over which an image's scores are averaged, each at a random position with 0.54 of the
    area; 0 scores the whole image. The paper uses 10, also for its training images."""


class CSI(ProjectedMethod):
    """Fusible: `tau`, `shift_weight`. The paper calls rotations shifting transformations.

    Scores need projections of training images and mean scores over training images. The method collects both during
    training: the projections of the last views, and running means. The authors compute them after training, from
    crops."""

    Config = CSIConfig
    fusible = frozenset({"tau", "shift_weight"})
    capabilities = frozenset({"embed", "score"})
    projector_norm = None
    loss_parts = ("contrastive", "shift")
    scores = ("csi", "contrastive", "shift")

    tau: Tensor
    shift_weight: Tensor
    bank_SMP: Tensor

    def __init__(self, config: CSIConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.classifier = nn.Linear(self.features, TURNS)
        self.register_buffer("bank_SMP", torch.zeros(TURNS, config.bank, self.projection))
        self.mean_norm_S = RunningMean((TURNS,), initial=1)
        self.mean_logit_S = RunningMean((TURNS,), initial=1)

    @classmethod
    def encoded_count(cls, config: CSIConfig) -> int:
        return cls.view_count(config) * TURNS

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """NT-Xent of the rotated views, each counted as a separate image, plus the cross-entropy of the rotation. All
        copies of both views are encoded in one pass."""
        first_BCHW, second_BCHW = batch["views"]
        p_SNP, logits_SNS = self._rotated(torch.cat([first_BCHW, second_BCHW]))
        first_SBP, second_SBP = p_SNP.chunk(2, dim=1)
        parts = {
            "contrastive": nt_xent(first_SBP.flatten(0, 1), second_SBP.flatten(0, 1), self.tau).mean(),
            "shift": -log_probability(logits_SNS).mean(),
        }
        self._remember(p_SNP.detach(), logits_SNS.detach(), len(first_BCHW))
        return Losses(parts["contrastive"] + self.shift_weight * parts["shift"], parts)

    def score_noise(self, batch: int) -> Noises:
        crops = self.config.score_crops
        return {"places": Noise((crops, 2, batch), batch_dim=2, kind="uniform")} if crops else {}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Scores of the image, or their means over its crops."""
        if not self.config.score_crops:
            return self._scores(images_BCHW)
        crops = [self._scores(_cropped(images_BCHW, place_2B)) for place_2B in noise["places"]]
        return {name: torch.stack([scores[name] for scores in crops]).mean(0) for name in self.scores}

    def _scores(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """For each rotation: the largest cosine to a training image times the length of the projection, relative to the
        mean length over training images; and the logit of the rotation, relative to its mean. Both are negated and
        averaged over rotations; `csi` is their sum."""
        p_SBP, logits_SBS = self._rotated(images_BCHW)
        cosine_SB = torch.stack(
            [similarities(p_BP, bank_MP, 1.0).amax(-1) for p_BP, bank_MP in zip(p_SBP, self.bank_SMP, strict=True)]
        )
        scaled = {
            "contrastive": cosine_SB * p_SBP.norm(dim=-1) / self.mean_norm_S.mean.clamp_min(SMALLEST)[:, None],
            "shift": _own(logits_SBS) / self.mean_logit_S.mean.clamp_min(SMALLEST)[:, None],
        }
        scores = {name: -each_SB.mean(0) for name, each_SB in scaled.items()}
        return {"csi": scores["contrastive"] + scores["shift"], **scores}

    def _rotated(self, images_NCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Projections and logits of the rotation, `[S, N, ...]`, of all rotations of the images."""
        copies_SNCHW = transformed(images_NCHW, ROTATIONS)
        z_RD = self(copies_SNCHW.flatten(0, 1))
        rows = (self.projector(z_RD).float(), self.classifier(z_RD).float())
        p_SNP, logits_SNS = (each_RX.unflatten(0, copies_SNCHW.shape[:2]) for each_RX in rows)
        return p_SNP, logits_SNS

    def _remember(self, p_SNP: Tensor, logits_SNS: Tensor, images: int) -> None:
        """Replace the oldest entries of the bank by the first view of each image, and update the means."""
        new_SBP = F.normalize(p_SNP[:, :images], dim=-1)
        self.bank_SMP.copy_(torch.cat([new_SBP, self.bank_SMP], dim=1)[:, : self.config.bank])
        self.mean_norm_S.update(p_SNP.norm(dim=-1).mean(1))
        self.mean_logit_S.update(_own(logits_SNS).mean(1))


def _cropped(images_BCHW: Tensor, place_2B: Tensor) -> Tensor:
    """A crop of each image, enlarged to the image's size. `place` is the position of its upper left corner, as shares
    in [0, 1) of all positions."""
    sides = images_BCHW.shape[-2:]
    kept = [round(math.sqrt(CROP) * side) for side in sides]
    top_B, left_B = (
        (each_B * (side - own + 1)).floor() for each_B, side, own in zip(place_2B, sides, kept, strict=True)
    )
    height_B, width_B = (torch.full_like(top_B, own) for own in kept)
    return resized_crop(images_BCHW, top_B, left_B, height_B, width_B)


def _own(logits_SNS: Tensor) -> Tensor:
    """The logit of each rotation for the images rotated by it, `[S, N]`."""
    return logits_SNS.diagonal(dim1=0, dim2=-1).mT
