"""Variational Joint Embedding (VJE): an encoder and a posterior of its embedding, trained with a symmetric conditional
ELBO.

Shapes: B images, D features (of the embedding, if there is a projector), V = 2 views, S posterior samples. Equation
numbers are the paper's (arXiv 2602.05639).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.losses.densities import (
    directional_nll,
    euclidean_nll,
    gaussian_entropy,
    gaussian_kl,
    radial_nll,
    scaled_radial_nll,
)
from trainables.networks.heads import SMALLEST_VARIANCE, GaussianHead, mlp
from trainables.validation import above, added, at_least, checked, choices, one_of

TERMS = ("dir", "rad", "kl")
LIKELIHOODS = ("polar", "euclidean")
RADIAL_SCALES = ("fixed", "learned", "normalised")


@checked
class VJEConfig:
    beta: Annotated[float, at_least(0)] = 1.0
    """Weight of the KL term, as in Eqs. 37 and 38: likelihood and KL are each summed over the D dimensions, then
    averaged over images and both views (Eqs. 9 and 10 sum over these)."""
    nu: Annotated[float, above(0, infinite=True)] = 3.0
    """Degrees of freedom of both likelihood factors; `inf` is the Gaussian."""
    terms: str = "dir+rad+kl"
    """Active terms of the loss: a non-empty subset of dir, rad, kl, joined by +."""
    bottleneck: Annotated[int, at_least(1)] = 128
    """Width of the inference network."""
    projector_width: Annotated[int, at_least(0)] = 0
    """Width of both layers of a projector between the representation and the embedding; 0 for no projector. It is
    SimSiam's projector with LayerNorm instead of BatchNorm; the norm after the last layer has no weights."""
    score_samples: Annotated[int, at_least(0)] = 0
    """Number of posterior samples over which anomaly scores are averaged; 0 scores the posterior mean."""
    shared_variance: bool = added(True)
    """Whether the posterior's variance is also the scale of the likelihood. Otherwise a second output of the inference
    network is the scale, and the posterior's variance affects only the samples."""
    likelihood: Annotated[str, one_of(*LIKELIHOODS)] = added("polar")
    """`polar`: one factor for the direction and one for the length. `euclidean`: the Student-t density of the embedding
    itself (Eq. 14), which replaces both factors; `terms` must then contain dir and rad."""
    target_gradient: bool = added(False)
    """Whether gradients also flow through the target embedding."""
    radial_scale: Annotated[str, one_of(*RADIAL_SCALES)] = added("fixed")
    """Scale of the length difference: `fixed` at 1, or a parameter that starts at 1. `learned` puts it only in the
    exponent, where a larger scale is always better; `normalised` adds the normaliser of the density."""

    def __post_init__(self) -> None:
        for term in self.terms.split("+"):
            choices("terms", term, TERMS)
        if len(set(self.terms.split("+"))) < len(self.terms.split("+")):
            raise ValueError(f"each of the terms must be named once, but got terms={self.terms}")
        if self.likelihood == "euclidean" and not {"dir", "rad"} <= {*self.terms.split("+")}:
            raise ValueError(f"likelihood=euclidean needs the terms dir and rad, but got terms={self.terms}")
        if self.radial_scale != "fixed" and (self.likelihood == "euclidean" or "rad" not in self.terms.split("+")):
            raise ValueError(
                f"radial_scale={self.radial_scale} needs likelihood=polar and the term rad, but got "
                f"likelihood={self.likelihood}, terms={self.terms}"
            )


class VJE(ImageMethod):
    """The inference network computes `q(s|z)`, whose variance also scales the likelihood of the embedding. The
    embedding is the representation itself, as in the paper, unless there is a projector.

    With `likelihood=euclidean`, the part `loss_likelihood` replaces `loss_dir` and `loss_rad`."""

    Config = VJEConfig
    fusible = frozenset({"beta", "nu"})
    capabilities = frozenset({"embed", "score"})
    per_example = True
    loss_parts = ("dir", "rad", "kl", "likelihood", "learned_scale")
    measures = frozenset({"learned_scale"})
    representations = ("z", "mu")
    variance = "var"
    scores = ("joint", "dir", "rad", "variance", "entropy")
    score_means = MappingProxyType({"posterior_entropy": "entropy", "posterior_variance": "variance"})

    beta: Tensor
    nu: Tensor

    def __init__(self, config: VJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        width = config.projector_width
        if width:
            self.projector = mlp(self.features, width, width, norm="layer", last=True)
        self.dimensions = width or self.features
        self.posterior = GaussianHead(self.dimensions, config.bottleneck)
        self.terms = frozenset(config.terms.split("+"))
        if not config.shared_variance:
            self.raw_scale = nn.Linear(config.bottleneck, self.dimensions)
        if config.radial_scale != "fixed":
            self.log_radial_scale = nn.Parameter(torch.zeros(()))

    @classmethod
    def parts_of(cls, options: VJEConfig) -> tuple[str, ...]:
        left_out = set() if options.likelihood == "euclidean" else {"likelihood"}
        left_out |= {"learned_scale"} if options.radial_scale == "fixed" else set()
        return tuple(part for part in cls.loss_parts if part not in left_out)

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """The representation z, and the posterior's mean mu and variance var."""
        z_BD = self(images_BCHW)
        mu_BD, var_BD = self.posterior(self._project(z_BD))
        return {"z": z_BD, "mu": mu_BD, "var": var_BD}

    def noise(self, batch: int) -> Noises:
        return {"posterior": Noise((2, batch, self.dimensions), batch_dim=1)}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Eqs. 10 and 38: each view's posterior explains the other view's embedding, which has no gradient by
        default."""
        z_VBD = self._project(torch.stack([self(view_BCHW) for view_BCHW in batch["views"]]))
        mu_VBD, var_VBD = self.posterior(z_VBD)
        s_VBD = mu_VBD + var_VBD.sqrt() * noise["posterior"]
        target_VBD = z_VBD.flip(0) if self.config.target_gradient else z_VBD.flip(0).detach()
        scale_VBD, parts = self._likelihood_variance(z_VBD, var_VBD), {}
        if self.config.likelihood == "euclidean":
            parts["likelihood"] = euclidean_nll(target_VBD, s_VBD, scale_VBD, self.nu).mean()
        elif "dir" in self.terms:
            parts["dir"] = directional_nll(target_VBD, s_VBD, scale_VBD, self.nu).mean()
        if self.config.likelihood == "polar" and "rad" in self.terms:
            parts["rad"] = self._radial_nll(target_VBD, s_VBD).mean()
        if "kl" in self.terms:
            # Summed over dimensions, averaged over images and both views, as in Eqs. 37 and 38 (Eqs. 9 and 10 sum).
            parts["kl"] = gaussian_kl(mu_VBD, var_VBD).mean()
        weights = {"kl": self.beta}
        total = sum((weights.get(name, 1.0) * part for name, part in parts.items()), torch.zeros(()))
        if self.config.radial_scale != "fixed":
            parts["learned_scale"] = self.log_radial_scale.exp().detach()
        return Losses(total, parts)

    def _likelihood_variance(self, z: Tensor, var: Tensor) -> Tensor:
        """Scale of the likelihood in each dimension: with `shared_variance` the posterior's variance, else a tensor of
        the same shape."""
        if self.config.shared_variance:
            return var
        return F.softplus(self.raw_scale(self.posterior.trunk(z)).float()) + SMALLEST_VARIANCE

    def _radial_nll(self, target: Tensor, s: Tensor) -> Tensor:
        if self.config.radial_scale == "fixed":
            return radial_nll(target, s, self.nu)
        scale, normaliser = self.log_radial_scale.exp(), self.config.radial_scale == "normalised"
        return scaled_radial_nll(target, s, self.nu, scale, normaliser)

    def score_noise(self, batch: int) -> Noises:
        return {"posterior": Noise((self.config.score_samples, batch, self.dimensions), batch_dim=1)}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Eq. 39 and its parts, and the summed variance and entropy of the posterior, without augmentation."""
        z_BD = self._project(self(images_BCHW))
        mu_BD, var_BD = self.posterior(z_BD)
        s_SBD = mu_BD + var_BD.sqrt() * noise["posterior"] if self.config.score_samples else mu_BD[None]
        scale_BD = self._likelihood_variance(z_BD, var_BD)
        directional_B = directional_nll(z_BD, s_SBD, scale_BD, self.nu).mean(0)
        radial_B = self._radial_nll(z_BD, s_SBD).mean(0)
        euclidean = self.config.likelihood == "euclidean"
        return {
            "joint": euclidean_nll(z_BD, s_SBD, scale_BD, self.nu).mean(0) if euclidean else directional_B + radial_B,
            "dir": directional_B,
            "rad": radial_B,
            "variance": var_BD.sum(-1),
            "entropy": gaussian_entropy(var_BD),
        }

    def _project(self, z_BD: Tensor) -> Tensor:
        return self.projector(z_BD).float()
