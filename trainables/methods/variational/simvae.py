"""SimVAE: a VAE whose prior pulls the latents of an image's views towards their common mean (arXiv 2402.01399).

Shapes: B images, J views, L latent dimensions; X = B * J views, with the views of one image contiguous.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises
from trainables.losses.densities import expected_group_nll, group_nll, logvar_entropy, standard_centre_nll
from trainables.methods.variational.autoencoder import LIKELIHOODS, VariationalAutoencoder, sample
from trainables.validation import above, added, at_least, checked, one_of


@checked
class SimVAEConfig:
    views: Annotated[int, at_least(2)] = 10
    """Number J of augmented views per image. A step encodes `batch_size` times J views."""
    sigma2: Annotated[float, above(0)] = 0.15
    """Variance of a view's latent around its image's centre. With a uniform centre it only sets the scale of the
    latents."""
    sigma_x2: Annotated[float, above(0)] = 0.02
    """Variance of the Gaussian likelihood of a pixel; with `bernoulli`, the divisor of the cross-entropy."""
    centre_precision: Annotated[float, at_least(0)] = 0.0
    """Precision 1/gamma^2 of the prior over centres: 0 is the uniform centre of the paper's Eq. 9; any other value is a
    Gaussian centre with an exact prior."""
    authors_centre: bool = False
    """Add the authors' term `||mean of z||^2 / 2` to the prior. Needs `centre_precision=0`."""
    expected_prior: bool = False
    """Use the exact expectation of the prior under the posterior instead of one sample, which lowers the gradient's
    variance."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the posterior's entropy. The authors' code uses 2 pi."""
    likelihood: Annotated[str, one_of(*LIKELIHOODS)] = "gaussian"
    """Likelihood of the pixels: `gaussian` or `bernoulli`."""
    reconstruction_weight: Annotated[float, at_least(0)] = added(1.0)
    """Weight of the reconstruction. At 0 the loss ignores the pixels, and nothing keeps an image's views apart."""

    def __post_init__(self) -> None:
        if self.authors_centre and self.centre_precision:
            raise ValueError(
                f"authors_centre needs centre_precision=0, but got centre_precision={self.centre_precision}"
            )
        if self.authors_centre and self.expected_prior:
            raise ValueError("authors_centre needs expected_prior=false, because it uses one sample, but both are true")


class SimVAE(VariationalAutoencoder):
    """Fusible: `sigma2`, `sigma_x2`, `centre_precision`, `entropy_weight`. The number of views determines a tensor
    shape. The loss is the negative ELBO, without constants, averaged over all B * J views. The paper sums it over the
    batch, which for Adam is equivalent to dividing `adam_epsilon` by B * J."""

    Config = SimVAEConfig
    fusible = frozenset({"sigma2", "sigma_x2", "centre_precision", "entropy_weight"})
    reads = frozenset({"views", "view_pixels"})
    loss_parts = ("reconstruction", "entropy", "prior", "centre_norm")

    sigma2: Tensor
    centre_precision: Tensor
    entropy_weight: Tensor

    @classmethod
    def view_count(cls, config: SimVAEConfig) -> int:
        return config.views

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((batch, self.config.views, self.features), batch_dim=0)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Algorithm 1 of the paper with the correct sign of the entropy, and with the likelihood's variance:
        reconstruction, minus the weighted entropy, plus the prior of the group (Eq. 9). `centre_norm` is the mean norm
        of the groups' means, which a uniform centre leaves unbounded."""
        views_XCHW = torch.stack(batch["views"], dim=1).flatten(0, 1)
        pixels_XCHW = torch.stack(batch["view_pixels"], dim=1).flatten(0, 1)
        mu_XL, logvar_XL = self.posterior(views_XCHW)
        z_XL = sample(mu_XL, logvar_XL, noise["posterior"].flatten(0, 1))
        mu_BJL, logvar_BJL, z_BJL = (x_XL.unflatten(0, (-1, self.config.views)) for x_XL in (mu_XL, logvar_XL, z_XL))
        parts = {
            "reconstruction": self.reconstruction(pixels_XCHW, z_XL).mean(),
            "entropy": logvar_entropy(logvar_XL).mean(),
            "prior": self._prior(mu_BJL, logvar_BJL, z_BJL).mean() / self.config.views,
            "centre_norm": torch.linalg.vector_norm(z_BJL.detach().mean(1), dim=-1).mean(),
        }
        reconstruction = self.config.reconstruction_weight * parts["reconstruction"]
        total = reconstruction - self.entropy_weight * parts["entropy"] + parts["prior"]
        return Losses(total, parts)

    def divergence(self, mu_BL: Tensor, logvar_BL: Tensor) -> Tensor:
        """The divergence of a group with one view, without constants. With a uniform centre the prior is constant, and
        only the entropy is left."""
        prior_B = expected_group_nll(mu_BL[:, None], logvar_BL[:, None], self.sigma2, self.centre_precision)
        if self.config.authors_centre:
            prior_B = prior_B + 0.5 * (mu_BL.square() + logvar_BL.exp()).sum(-1)
        return prior_B - logvar_entropy(logvar_BL)

    def _prior(self, mu_BJL: Tensor, logvar_BJL: Tensor, z_BJL: Tensor) -> Tensor:
        """Negative log prior of each group, `[B]`."""
        if self.config.expected_prior:
            return expected_group_nll(mu_BJL, logvar_BJL, self.sigma2, self.centre_precision)
        prior_B = group_nll(z_BJL, self.sigma2, self.centre_precision)
        return prior_B + standard_centre_nll(z_BJL) if self.config.authors_centre else prior_B
