"""beta-VAE: a VAE with a weighted KL to the prior.

A baseline of SimVAE (arXiv 2402.01399). Shapes: B images, L latent dimensions.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.methods.variational.autoencoder import LIKELIHOODS, VariationalAutoencoder
from trainables.validation import above, at_least, checked, one_of


@checked
class BetaVAEConfig:
    beta: Annotated[float, at_least(0)] = 1.0
    """Weight of the KL term."""
    sigma_x2: Annotated[float, above(0)] = 0.02
    """Variance of the Gaussian likelihood of a pixel; with `bernoulli`, the divisor of the cross-entropy. The loss with
    `sigma_x2 = 0.02` and `beta = 1` is 50 times the loss with `sigma_x2 = 1` and `beta = 0.02`."""
    likelihood: Annotated[str, one_of(*LIKELIHOODS)] = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""


class BetaVAE(VariationalAutoencoder):
    """Fusible: `beta`, `sigma_x2`. The loss is the negative ELBO with a weighted KL, averaged over augmented
    images, without constants."""

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

    @property
    def kl_weight(self) -> Tensor:
        return self.beta

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The reconstruction from one sample plus the weighted, closed-form KL to the prior."""
        (view_BCHW,), (pixels_BCHW,) = batch["views"], batch["view_pixels"]
        parts = self.negative_elbo(pixels_BCHW, *self.posterior(view_BCHW), noise["posterior"])
        return Losses(parts["reconstruction"] + self.beta * parts["kl"], parts)
