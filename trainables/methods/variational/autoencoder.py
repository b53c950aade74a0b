"""Base class of variational autoencoders: a Gaussian posterior from the encoder, and a decoder back to pixels.

Shapes: B images of C channels, H by W pixels; L latent dimensions.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from trainables.contract import ImageMethod, NetworkBuilder, Shapes
from trainables.losses.densities import bernoulli_reconstruction, gaussian_reconstruction, logvar_kl

LIKELIHOODS = ("gaussian", "bernoulli")


class VariationalAutoencoder(ImageMethod):
    """An encoder with the outputs `mu` and `logvar`, and a decoder. The representation is the posterior's mean `mu`.
    Subclasses have a `Config` with the fields `likelihood` and `sigma_x2`.

    The scores of an image are the terms of its negative ELBO without constants. The reconstruction is taken at the
    posterior's mean, so that scores are deterministic."""

    capabilities = frozenset({"embed", "score", "decode"})
    outputs = 2
    per_example = True
    variance = "var"
    scores = ("elbo", "reconstruction", "kl")
    scores_pixels = True

    sigma_x2: Tensor

    def __init__(self, config: Any, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.decoder = networks.build_decoder(self.features, self.image_shape)

    def posterior(self, images_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance `[B, L]` of `q(z|x)`, in float32 whatever the precision of the encoder."""
        mu_BL, logvar_BL = self.encoder(images_BCHW).float().chunk(2, dim=-1)
        return mu_BL, logvar_BL

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The posterior's mean `[B, L]`."""
        return self.posterior(images_BCHW)[0]

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """The posterior's mean z and variance var."""
        mu_BL, logvar_BL = self.posterior(images_BCHW)
        return {"z": mu_BL, "var": logvar_BL.exp()}

    def decode(self, z_BD: Tensor) -> Tensor:
        """The mean pixel values `[B, C, H, W]` in [0, 1]."""
        return self.decoder(z_BD)

    def score(  # type: ignore[override]
        self, images_BCHW: Tensor, noise: Mapping[str, Tensor], pixels_BCHW: Tensor
    ) -> dict[str, Tensor]:
        """The negative ELBO and its terms, `[B]` each."""
        mu_BL, logvar_BL = self.posterior(images_BCHW)
        reconstruction_B, kl_B = self.reconstruction(pixels_BCHW, mu_BL), self.divergence(mu_BL, logvar_BL)
        return {"elbo": reconstruction_B + self.kl_weight * kl_B, "reconstruction": reconstruction_B, "kl": kl_B}

    def divergence(self, mu_BL: Tensor, logvar_BL: Tensor) -> Tensor:
        """The KL from the posterior of a single image to its prior, `[B]`."""
        return logvar_kl(mu_BL, logvar_BL)

    @property
    def kl_weight(self) -> float | Tensor:
        """Weight of the KL in the bound that the method optimises."""
        return 1.0

    def reconstruction(self, pixels_BCHW: Tensor, z_BL: Tensor) -> Tensor:
        """`-log p(x|z)` of each image, `[B]`, without constants."""
        if self.config.likelihood == "bernoulli":
            return bernoulli_reconstruction(pixels_BCHW, self.decoder.logits(z_BL), self.sigma_x2)
        return gaussian_reconstruction(pixels_BCHW, self.decoder(z_BL), self.sigma_x2)

    def negative_elbo(
        self, pixels_BCHW: Tensor, mu_BL: Tensor, logvar_BL: Tensor, noise_BL: Tensor
    ) -> dict[str, Tensor]:
        """Both terms of the negative ELBO, averaged over images and without constants: the reconstruction from one
        sample, and the closed-form KL to the prior."""
        z_BL = sample(mu_BL, logvar_BL, noise_BL)
        return {
            "reconstruction": self.reconstruction(pixels_BCHW, z_BL).mean(),
            "kl": logvar_kl(mu_BL, logvar_BL).mean(),
        }


def sample(mu_BL: Tensor, logvar_BL: Tensor, noise_BL: Tensor) -> Tensor:
    """A sample of `N(mu, diag exp(logvar))` from standard normal noise (reparameterisation)."""
    return mu_BL + (0.5 * logvar_BL).exp() * noise_BL
