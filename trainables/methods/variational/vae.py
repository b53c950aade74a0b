"""VAE: images are decoded from samples of a Gaussian posterior, which is pulled towards a standard normal prior.

Equation numbers are those of SimVAE (arXiv 2402.01399). Shapes: B images, L latent dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.families.autoencoder import LIKELIHOODS, VariationalAutoencoder
from trainables.validation import choices, positive


@dataclass(frozen=True)
class VAEConfig:
    sigma_x2: float = 1.0
    """Variance of the Gaussian likelihood of a pixel, above 0; with `bernoulli` the divisor of the cross-entropy. On
    images of 64 pixels 1.0 makes the posterior collapse onto the prior; 0.1 does not."""
    likelihood: str = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""

    def __post_init__(self) -> None:
        positive("sigma_x2", self.sigma_x2)
        choices("likelihood", self.likelihood, LIKELIHOODS)


class VAE(VariationalAutoencoder):
    """Fusible: `sigma_x2`. The loss is the negative ELBO of Eq. 6 with `beta = 1`, averaged over augmented images and
    without constants."""

    Config = VAEConfig
    fusible = frozenset({"sigma_x2"})
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("reconstruction", "kl")

    @classmethod
    def view_count(cls, config: VAEConfig) -> int:
        return 1

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((batch, self.features), batch_dim=0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Eq. 6: reconstruction of one sample, and the closed-form KL to the prior."""
        (view_BCHW,), (pixels_BCHW,) = batch["views"], batch["view_pixels"]
        parts = self.negative_elbo(pixels_BCHW, *self.posterior(view_BCHW), noise["posterior"])
        return Losses(parts["reconstruction"] + parts["kl"], parts)
