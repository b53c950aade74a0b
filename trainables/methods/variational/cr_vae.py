"""CR-VAE: a VAE in which the posteriors of an image and its augmented view agree.

A baseline of SimVAE (arXiv 2402.01399). Shapes: B images, P = 2 (plain and augmented), L latent dimensions.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.losses.densities import logvar_kl_between
from trainables.methods.variational.autoencoder import LIKELIHOODS, VariationalAutoencoder
from trainables.validation import above, at_least, checked, one_of


@checked
class CRVAEConfig:
    consistency_weight: Annotated[float, at_least(0)] = 0.1
    """Weight of the KL from the view's posterior to the image's posterior (lambda in the paper)."""
    sigma_x2: Annotated[float, above(0)] = 0.02
    """Variance of the Gaussian likelihood of a pixel; with `bernoulli`, the divisor of the cross-entropy."""
    likelihood: Annotated[str, one_of(*LIKELIHOODS)] = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""


class CRVAE(VariationalAutoencoder):
    """Fusible: `consistency_weight`, `sigma_x2`. Half of its training images have no augmentation, like the images in
    evaluation and unlike those that other methods train on. Gradients flow through both posteriors."""

    Config = CRVAEConfig
    fusible = frozenset({"consistency_weight", "sigma_x2"})
    reads = frozenset({"views", "view_pixels", "plain", "plain_pixels"})
    loss_parts = ("reconstruction", "kl", "consistency")

    consistency_weight: Tensor

    @classmethod
    def view_count(cls, config: CRVAEConfig) -> int:
        return 1

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((batch, 2, self.features), batch_dim=0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The negative ELBO of image and view, and the weighted KL between their posteriors, averaged over all 2 B
        images."""
        images_BPCHW = torch.stack([*batch["plain"], *batch["views"]], dim=1)
        pixels_BPCHW = torch.stack([*batch["plain_pixels"], *batch["view_pixels"]], dim=1)
        mu_XL, logvar_XL = self.posterior(images_BPCHW.flatten(0, 1))
        terms = self.negative_elbo(pixels_BPCHW.flatten(0, 1), mu_XL, logvar_XL, noise["posterior"].flatten(0, 1))
        plain, view = slice(0, None, 2), slice(1, None, 2)
        consistency_B = logvar_kl_between(mu_XL[view], logvar_XL[view], mu_XL[plain], logvar_XL[plain])
        parts = {**terms, "consistency": consistency_B.mean() / 2}
        total = parts["reconstruction"] + parts["kl"] + self.consistency_weight * parts["consistency"]
        return Losses(total, parts)
