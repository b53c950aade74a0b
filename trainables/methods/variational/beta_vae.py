"""beta-VAE: a VAE whose KL to the prior has a weight.

Equation numbers are those of SimVAE (arXiv 2402.01399). Shapes: B images, L latent dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.methods.variational.autoencoder import LIKELIHOODS, VariationalAutoencoder
from trainables.validation import choices, positive


@dataclass(frozen=True)
class BetaVAEConfig:
    beta: float = 1.0
    """Weight of the KL term, `beta >= 0`."""
    sigma_x2: float = 0.02
    """Variance of the Gaussian likelihood of a pixel, above 0; with `bernoulli` the divisor of the cross-entropy. The
    loss with `sigma_x2 = 0.02` and `beta = 1` is that with `sigma_x2 = 1` and `beta = 0.02`, times 50."""
    likelihood: str = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""

    def __post_init__(self) -> None:
        positive("beta", self.beta, zero=True)
        positive("sigma_x2", self.sigma_x2)
        choices("likelihood", self.likelihood, LIKELIHOODS)


class BetaVAE(VariationalAutoencoder):
    """Fusible: `beta`, `sigma_x2`. The loss is that of Eq. 6, averaged over augmented images, without constants."""

    Config = BetaVAEConfig
    fusible = frozenset({"beta", "sigma_x2"})
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("reconstruction", "kl")

    beta: Tensor

    @classmethod
    def view_count(cls, config: BetaVAEConfig) -> int:
        return 1

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((batch, self.features), batch_dim=0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Eq. 6: reconstruction of one sample, and the weighted, closed-form KL to the prior."""
        (view_BCHW,), (pixels_BCHW,) = batch["views"], batch["view_pixels"]
        parts = self.negative_elbo(pixels_BCHW, *self.posterior(view_BCHW), noise["posterior"])
        return Losses(parts["reconstruction"] + self.beta * parts["kl"], parts)
