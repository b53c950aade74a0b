"""VAE: images are decoded from samples of a Gaussian posterior, which is pulled towards a standard normal prior.

A baseline of SimVAE (arXiv 2402.01399). Shapes: B images, L latent dimensions.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.losses.densities import logvar_entropy
from trainables.methods.variational.autoencoder import LIKELIHOODS, VariationalAutoencoder, sample
from trainables.validation import above, added, at_least, checked, one_of


@checked
class VAEConfig:
    sigma_x2: Annotated[float, above(0)] = 1.0
    """Variance of the Gaussian likelihood of a pixel; with `bernoulli`, the divisor of the cross-entropy. On images of
    64 pixels the posterior collapses onto the prior at 1.0, but not at 0.1."""
    likelihood: Annotated[str, one_of(*LIKELIHOODS)] = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""
    sampled_prior: bool = added(False)
    """Take the prior's log density at the decoded sample, as in the authors' code, instead of its exact expectation
    under the posterior, which is one half of the closed-form KL."""
    entropy_weight: Annotated[float, at_least(0)] = added(1.0)
    """Weight of the posterior's entropy, the other half of the KL. The authors' code uses 2 pi."""

    @property
    def closed_form(self) -> bool:
        """Whether the loss contains the closed-form KL."""
        return not self.sampled_prior and self.entropy_weight == 1.0


class VAE(VariationalAutoencoder):
    """Fusible: `sigma_x2`. The loss is the negative ELBO with the closed-form KL, averaged over augmented images and
    without constants; with non-default `sampled_prior` or `entropy_weight` it is the reconstruction, minus the weighted
    entropy, plus the prior."""

    Config = VAEConfig
    fusible = frozenset({"sigma_x2"})
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("reconstruction", "kl", "entropy", "prior")

    @classmethod
    def view_count(cls, config: VAEConfig) -> int:
        return 1

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((batch, self.features), batch_dim=0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The reconstruction from one sample, and the closed-form KL to the prior or its two halves."""
        (view_BCHW,), (pixels_BCHW,) = batch["views"], batch["view_pixels"]
        mu_BL, logvar_BL = self.posterior(view_BCHW)
        if self.config.closed_form:
            parts = self.negative_elbo(pixels_BCHW, mu_BL, logvar_BL, noise["posterior"])
            return Losses(parts["reconstruction"] + parts["kl"], parts)
        z_BL = sample(mu_BL, logvar_BL, noise["posterior"])
        squares_BL = z_BL.square() if self.config.sampled_prior else mu_BL.square() + logvar_BL.exp()
        parts = {
            "reconstruction": self.reconstruction(pixels_BCHW, z_BL).mean(),
            "entropy": logvar_entropy(logvar_BL).mean(),
            "prior": squares_BL.sum(-1).mean() / 2,
        }
        return Losses(parts["reconstruction"] - self.config.entropy_weight * parts["entropy"] + parts["prior"], parts)
