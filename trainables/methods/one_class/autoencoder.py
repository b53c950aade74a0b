"""Autoencoder: the squared reconstruction error is the loss and the anomaly score.

Shapes: B images of C channels, H by W pixels; D dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.one_class import relative_variance, squared_error


@dataclass(frozen=True)
class AutoencoderConfig:
    """No hyperparameters."""


class Autoencoder(ImageMethod):
    """The loss uses an augmented view; the score uses the image itself."""

    Config = AutoencoderConfig
    capabilities = frozenset({"embed", "score", "decode"})
    per_example = True
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("z_variance",)
    measures = frozenset({"z_variance"})
    scores = ("reconstruction",)
    scores_pixels = True

    def __init__(self, config: AutoencoderConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.decoder = networks.build_decoder(self.features, self.image_shape)

    @classmethod
    def view_count(cls, config: AutoencoderConfig) -> int:
        return 1

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The error, summed over pixels and averaged over images."""
        (view_BCHW,), (pixels_BCHW,) = batch["views"], batch["view_pixels"]
        z_BD = self(view_BCHW)
        error_B = squared_error(pixels_BCHW, self.decoder(z_BD))
        return Losses(error_B.mean(), {"z_variance": relative_variance(z_BD.detach())})

    def decode(self, z_BD: Tensor) -> Tensor:
        return self.decoder(z_BD)

    def score(  # type: ignore[override]
        self, images_BCHW: Tensor, noise: Mapping[str, Tensor], pixels_BCHW: Tensor
    ) -> dict[str, Tensor]:
        """The squared error, summed over pixels."""
        return {"reconstruction": squared_error(pixels_BCHW, self.decoder(self(images_BCHW)))}
