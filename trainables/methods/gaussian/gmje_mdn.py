"""GMJE-MDN: a network predicts the mixture density of a view's embedding from the other view (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, M components.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import floored_softplus, mixture_density_nll, weight_entropy
from trainables.losses.moments import averaged_moment, entropy, gaussian_nll, second_moment
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.networks.heads import mlp
from trainables.validation import above, at_least, between, checked, one_of

OBJECTIVES = ("entropy", "literal")


@checked
class MDNGMJEConfig(ProjectedConfig):
    objective: Annotated[str, one_of(*OBJECTIVES)] = "entropy"
    """`entropy`: the negative log-likelihood of the target divided by P, minus the weighted entropies of both views.
    `literal`: the joint likelihood of the paper's Eq. 23, whose marginal term does not prevent collapse."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the entropies, times 2P. Only for `objective=entropy`."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.99
    """Share of its value that the moving average of the context's moment keeps per step. Only for
    `objective=literal`."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the moments."""
    components: Annotated[int, at_least(1)] = 8
    """Number M of components."""
    sigma_floor: Annotated[float, above(0)] = 0.01
    """Minimum standard deviation of a component."""
    leaky: bool = False
    """Whether the network also sees the target. Its likelihood then rises to the bound set by `sigma_floor` while
    nothing is learned, which demonstrates why the target must stay hidden."""
    parameter_width: Annotated[int, at_least(1)] = 512
    """Hidden units of the two-layer network that predicts the mixture."""


class MDNGMJE(ProjectedMethod):
    """Fusible: `entropy_weight`, `epsilon`, `sigma_floor`. The context is the first view, the target the second; both
    have unit length and gradients."""

    Config = MDNGMJEConfig
    capabilities = ProjectedMethod.capabilities | {"score"}
    scores = ("density",)
    fusible = frozenset({"entropy_weight", "epsilon", "sigma_floor"})
    loss_parts = ("nll", "entropy", "context_nll", "routing_entropy")
    measures = frozenset({"routing_entropy"})

    entropy_weight: Tensor
    epsilon: Tensor
    sigma_floor: Tensor
    moment_PP: Tensor

    def __init__(self, config: MDNGMJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        size = self.projection
        seen = 2 * size if config.leaky else size
        self.parameter_network = mlp(seen, config.parameter_width, config.components * (1 + 2 * size), norm=None)
        if config.objective == "literal":
            self.register_buffer("moment_PP", torch.eye(size) / size)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The objective, and `nll`, the mean negative log-likelihood of the target given the context. `routing_entropy`
        measures how evenly the network weights the components."""
        context_BP, target_BP = (F.normalize(self.project(view_BCHW), dim=-1) for view_BCHW in batch["views"])
        seen = torch.cat([context_BP, target_BP], dim=-1) if self.config.leaky else context_BP
        logits_BM, means_BMP, sigma_BMP = self.mixture(seen)
        nll = mixture_density_nll(target_BP, logits_BM, means_BMP, sigma_BMP).mean()
        routing = weight_entropy(logits_BM.detach()).mean()
        if self.config.objective == "literal":
            context_nll = self._context_nll(context_BP)
            return Losses(nll + context_nll, {"nll": nll, "context_nll": context_nll, "routing_entropy": routing})
        entropies = entropy(second_moment(torch.stack([context_BP, target_BP])), self.epsilon).sum()
        size = self.projection
        parts = {"nll": nll, "entropy": entropies, "routing_entropy": routing}
        return Losses(nll / size - self.entropy_weight / (2 * size) * entropies, parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the embedding given itself as the context."""
        z_BP = F.normalize(self.project(images_BCHW), dim=-1)
        seen = torch.cat([z_BP, z_BP], dim=-1) if self.config.leaky else z_BP
        return {"density": mixture_density_nll(z_BP, *self.mixture(seen))}

    def mixture(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits `[B, M]` of the weights, means and standard deviations `[B, M, P]` of the target's density, in float32
        whatever the precision of the network."""
        count, size = self.config.components, self.projection
        logits_BM, means, raw = self.parameter_network(seen).float().split((count, count * size, count * size), dim=-1)
        sigma_BMP = floored_softplus(raw.unflatten(-1, (count, size)), self.sigma_floor)
        return logits_BM, means.unflatten(-1, (count, size)), sigma_BMP

    def _context_nll(self, context_BP: Tensor) -> Tensor:
        """Update the averaged moment and return the context's mean negative log-likelihood under it."""
        moment_PP = averaged_moment(self.moment_PP.clone(), context_BP, self.config.ema)
        self.moment_PP.copy_(moment_PP.detach())
        return gaussian_nll(context_BP, cholesky(moment_PP, self.epsilon)).mean()
