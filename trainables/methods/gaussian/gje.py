"""GJE: the views of an image align, while the joint Gaussian of their embeddings keeps its entropy (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, G Gaussians of E dimensions: one for the joint embedding
with E = 2P, or one per view with E = P.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.linear_algebra import cholesky
from trainables.losses.moments import alignment, averaged_moment, entropy, gaussian_nll
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, added, at_least, between, checked, one_of

OBJECTIVES = ("alignment", "nll")
ENTROPIES = ("joint", "marginal")


@checked
class GJEConfig(ProjectedConfig):
    objective: Annotated[str, one_of(*OBJECTIVES)] = "alignment"
    """`alignment`: the squared distance between the views minus the weighted entropy. `nll`: the exact negative
    log-likelihood under the moments. It falls without bound as embeddings shrink or lose dimensions, and demonstrates
    why it must not be used."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the entropy: lambda in the paper times 2P. At 1 (lambda = 1/(2P)), the cosine between views reaches
    about 0.9."""
    entropy: Annotated[str, one_of(*ENTROPIES)] = "joint"
    """`joint`: entropy of the joint embedding, which opposes alignment. `marginal`: sum of both views' entropies, which
    does not."""
    element_mean: bool = False
    """Divide the squared distance between views by P. With the joint entropy and a weight of 1, views then hardly
    align."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.0
    """Share of its value that the moving average of the moments keeps per step; 0 uses only the batch's moments. The
    entropy weight is divided by `1 - ema`, the factor by which averaging scales the gradient."""
    decoupled: bool = False
    """Whether to stop the gradient from the moments to the embeddings, which leaves the entropy without effect."""
    unit_length: bool = True
    """Whether embeddings are scaled to unit length."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the moments."""
    alignment_weight: Annotated[float, at_least(0)] = added(1.0)
    """Weight of the squared distance between the views; at 0 nothing holds the views together. Only for
    `objective=alignment`."""

    def __post_init__(self) -> None:
        if self.objective == "nll" and self.alignment_weight != 1:
            raise ValueError(
                f"alignment_weight needs objective=alignment, but got alignment_weight={self.alignment_weight} with "
                "objective=nll"
            )


class GJE(ProjectedMethod):
    """Fusible: `entropy_weight`, `ema`, `epsilon`. Both views share one encoder and have gradients.

    With `objective=nll` and the batch's own moments (`ema=0`) the quadratic form is constant, and the log-determinant
    alone shrinks the embeddings (the trace trap). With moments without a gradient (`decoupled`) both terms shrink
    together (the log-determinant cheat).
    """

    Config = GJEConfig
    capabilities = ProjectedMethod.capabilities | {"score"}
    scores = ("density",)
    fusible = frozenset({"entropy_weight", "ema", "epsilon"})
    loss_parts = ("alignment", "entropy", "nll")

    entropy_weight: Tensor
    ema: Tensor
    epsilon: Tensor
    moments_GEE: Tensor

    def __init__(self, config: GJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        gaussians, size = (1, 2 * self.projection) if config.entropy == "joint" else (2, self.projection)
        self.register_buffer("moments_GEE", torch.eye(size).repeat(gaussians, 1, 1) / self.projection)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The objective. The distance between the views is always reported, even if it is not part of the loss."""
        first_BP, second_BP = (self._embedded(view_BCHW) for view_BCHW in batch["views"])
        joint = self.config.entropy == "joint"
        z_GBE = torch.cat([first_BP, second_BP], -1)[None] if joint else torch.stack([first_BP, second_BP])
        moments_GEE = averaged_moment(self.moments_GEE.clone(), z_GBE, self.ema)
        self.moments_GEE.copy_(moments_GEE.detach())
        if self.config.decoupled:
            moments_GEE = moments_GEE.detach()
        distance = alignment(first_BP, second_BP).mean() / (self.projection if self.config.element_mean else 1)
        if self.config.objective == "nll":
            factors_GEE = cholesky(moments_GEE, self.epsilon)
            nll = torch.stack([gaussian_nll(z, factor).mean() for z, factor in zip(z_GBE, factors_GEE, strict=True)])
            nll = nll.sum()
            return Losses(nll, {"nll": nll, "alignment": distance})
        parts = {"alignment": distance, "entropy": entropy(moments_GEE, self.epsilon).sum()}
        weight = self.entropy_weight / (2 * self.projection * (1 - self.ema))
        return Losses(self.config.alignment_weight * parts["alignment"] - weight * parts["entropy"], parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the embedding under the marginal Gaussian of the first view."""
        moment_PP = self.moments_GEE[0, : self.projection, : self.projection]
        return {"density": gaussian_nll(self._embedded(images_BCHW), cholesky(moment_PP, self.epsilon))}

    def _embedded(self, images_BCHW: Tensor) -> Tensor:
        z_BP = self.project(images_BCHW)
        return F.normalize(z_BP, dim=-1) if self.config.unit_length else z_BP
