"""PatchCore: distances of patch features from a memory bank of normal patches (Roth et al. 2022, arXiv 2106.08265).

The encoder is not trained: it has the weights of a file (`encoder=torchvision:NAME weights=FILE`), or random ones.

Shapes: B images of C channels, H by W pixels, with R rows and S columns of patches, P = R * S; N patches of D features;
M entries of the bank; K neighbours.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.losses.patches import greedy_coreset, nearest_distances, neighbourhood_weight
from trainables.networks.feature_maps import feature_maps, map_shapes, mid_level
from trainables.networks.heads import frozen_as_buffers
from trainables.validation import at_least, checked, choices

IMAGES = 16
"""Images whose patches are computed at a time."""
PATCHES = 50_000
"""Maximum number of training patches from which the bank is chosen; of more, the trial's seed draws this many. Memory
and time of the choice grow with their number."""
PROJECTED = 64
"""Dimensions of the random projection in which the bank is chosen."""
NEIGHBOURHOOD = 3
"""Side of the square of positions over which a feature is averaged."""


@checked
class PatchCoreConfig:
    bank: Annotated[int, at_least(1)] = 1000
    """Entries of the memory bank. If the training images have fewer patches, some entries are repeated."""
    patch_layers: str = ""
    """Layers of the encoder whose features are concatenated (joined by +): layer2+layer3. Empty for the last layers of
    the two resolutions before the coarsest."""
    neighbours: Annotated[int, at_least(1)] = 9
    """Entries of the bank around the nearest one that weight the score of an image: it is higher if the nearest entry
    is far from its neighbours too. 1 for the distance itself."""


class PatchCore(ImageMethod):
    """One epoch fits it. The features of a patch are those of the chosen layers, each averaged over a 3x3 neighbourhood
    and resized to the largest map. The bank is a greedy k-center coreset of the patches of the training images without
    augmentation. An image's score is the largest distance of its patches from the bank."""

    Config = PatchCoreConfig
    capabilities = frozenset({"embed", "score", "heat"})
    reads = frozenset({"plain"})
    scores = ("patch_distance",)

    bank_MD: Tensor

    def __init__(self, config: PatchCoreConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        """Raises ValueError if a layer has no feature map."""
        super().__init__(config, networks, shapes)
        frozen_as_buffers(self.encoder.requires_grad_(False))
        shape_of = map_shapes(self.encoder, self.image_shape)
        if not shape_of:
            raise ValueError(
                "patchcore needs an encoder with feature maps, such as encoder=convnet, but got one without"
            )
        self.layers = config.patch_layers.split("+") if config.patch_layers else mid_level(shape_of)
        """Names of the layers whose features are concatenated."""
        for name in self.layers:
            choices("layer of the encoder with a feature map", name, shape_of)
        channels, rows, columns = zip(*(shape_of[name] for name in self.layers), strict=True)
        self.map_size = max(rows), max(columns)
        """Rows and columns of patches, R and S."""
        self.register_buffer("bank_MD", torch.zeros(config.bank, sum(channels)))

    @classmethod
    def view_count(cls, config: PatchCoreConfig) -> int:
        return 0

    def noise(self, batch: int) -> Noises:
        rows, columns = self.map_size
        return {
            "order": Noise((batch, rows * columns), batch_dim=0, kind="uniform"),
            "projection": Noise((self.bank_MD.shape[1], PROJECTED)),
        }

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Choose the bank. The loss is the mean distance of the patches from the previous bank."""
        order_BP = noise["order"]
        last = order_BP.flatten().kthvalue(min(PATCHES, order_BP.numel())).values
        batches = zip(data["plain"][0].split(IMAGES), order_BP.split(IMAGES), strict=True)
        first = order_BP[order_BP <= last].argmin()
        drawn_ND = torch.cat([self.patches(images_BCHW)[own_BP <= last] for images_BCHW, own_BP in batches])
        loss = nearest_distances(drawn_ND, self.bank_MD)[0].mean()
        projected_ND = drawn_ND @ noise["projection"] if drawn_ND.shape[1] > PROJECTED else drawn_ND
        self.bank_MD.copy_(drawn_ND[greedy_coreset(projected_ND, len(self.bank_MD), first)])
        return Losses(loss, {})

    def patches(self, images_BCHW: Tensor) -> Tensor:
        """The features of the patches, `[B, P, D]`, in float32."""
        maps = feature_maps(self.encoder.eval(), images_BCHW, self.layers)
        averaged = [F.avg_pool2d(map_BCRS.float(), NEIGHBOURHOOD, 1, NEIGHBOURHOOD // 2) for map_BCRS in maps.values()]
        resized = [F.interpolate(map_BCRS, self.map_size, mode="bilinear") for map_BCRS in averaged]
        return torch.cat(resized, dim=1).flatten(2).mT

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The largest distance of a patch from the bank, times a weight in (0, 1) that grows with the distance of its
        nearest entry from the `neighbours` around it (the paper's Eq. 7)."""
        return {"patch_distance": torch.cat([*map(self._score, images_BCHW.split(IMAGES))])}

    def _score(self, images_BCHW: Tensor) -> Tensor:
        x_BPD = self.patches(images_BCHW)
        distance_BP, nearest_BP = self._nearest(x_BPD)
        distance_B, worst_B = distance_BP.max(1)
        if self.config.neighbours == 1:
            return distance_B
        each_B = torch.arange(len(worst_B), device=worst_B.device)
        worst_BD, nearest_B = x_BPD[each_B, worst_B], nearest_BP[each_B, worst_B]
        return distance_B * neighbourhood_weight(worst_BD, nearest_B, self.bank_MD, self.config.neighbours)

    def heat(self, images_BCHW: Tensor) -> Tensor:
        """The distances of the patches from the bank, resized to the image and squared."""
        distance_BP = torch.cat([self._nearest(self.patches(part_BCHW))[0] for part_BCHW in images_BCHW.split(IMAGES)])
        distance_B1RS = distance_BP.view(-1, 1, *self.map_size)
        return F.interpolate(distance_B1RS, images_BCHW.shape[-2:], mode="bilinear")[:, 0].square()

    def _nearest(self, x_BPD: Tensor) -> tuple[Tensor, Tensor]:
        """The distance of each patch from the bank, and the index of its nearest entry, `[B, P]`."""
        distance_N, index_N = nearest_distances(x_BPD.flatten(0, 1), self.bank_MD)
        return distance_N.view(x_BPD.shape[:2]), index_N.view(x_BPD.shape[:2])
