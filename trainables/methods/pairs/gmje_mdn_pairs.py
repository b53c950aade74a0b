"""GMJE-MDN on pairs: a network predicts the mixture density of y given x (arXiv 2603.26799, section 5.1).

It has the likelihood of the method `gmje_mdn`, without its terms for embeddings: x and y are given, so they cannot
collapse. Two things let components find all modes: their means start at quantiles of y, and their standard deviations
have a floor that falls while they train. Shapes: B examples, X inputs, M components.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.contract import Batch, ConditionalDensity, Losses, PairsMethod, PairStatistics, Shapes
from trainables.losses.mixture_density import floored_softplus, mixture_density_nll
from trainables.networks.heads import mlp
from trainables.validation import positive, whole


@dataclass(frozen=True)
class MDNPairsConfig:
    components: int = 3
    """Number M of components, at least 1."""
    sigma_floor: float = 1e-3
    """Least standard deviation of a component, above 0."""
    initial_floor: float = 0.3
    """The floor at the first step, at least 0, from which it falls linearly until it is `sigma_floor`. 0 does not
    anneal."""
    anneal_steps: int = 600
    """Steps in which the initial floor would fall to 0: half of the training's."""
    width: int = 64
    """Hidden units of both layers."""

    def __post_init__(self) -> None:
        whole("components", self.components, 1)
        positive("sigma_floor", self.sigma_floor)
        positive("initial_floor", self.initial_floor, zero=True)
        whole("anneal_steps", self.anneal_steps, 1)
        whole("width", self.width, 1)


class MDNPairs(PairsMethod):
    """Fusible: `sigma_floor`, `initial_floor`. One network of two layers with ReLU has three heads: weights, means and
    standard deviations."""

    Config = MDNPairsConfig
    fusible = frozenset({"sigma_floor", "initial_floor"})
    per_example = True

    sigma_floor: Tensor
    initial_floor: Tensor
    steps: Tensor

    def __init__(self, config: MDNPairsConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        count = config.components
        self.backbone = nn.Sequential(mlp(math.prod(shapes["x"]), config.width, config.width, norm=None), nn.ReLU())
        self.heads = nn.Linear(config.width, 3 * count)
        self.register_buffer("steps", torch.zeros(()))
        levels = (torch.arange(count, dtype=torch.get_default_dtype()) + 0.5) / count
        with torch.no_grad():
            self.heads.bias[count : 2 * count].copy_(networks.target_quantiles(levels))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The mean negative log density of y."""
        logits_BM, means_BM, sigma_BM = self._mixture(batch["x"])
        nll_B = mixture_density_nll(batch["y"][:, None], logits_BM, means_BM[..., None], sigma_BM[..., None])
        return Losses(nll_B.mean(), {})

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.steps.add_(1)

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        logits_BM, means_BM, sigma_BM = self._mixture(x_BX)
        return ConditionalDensity(logits_BM.log_softmax(-1), means_BM, sigma_BM)

    def floor(self) -> Tensor:
        """The least standard deviation at this step, `[]`."""
        annealed = self.initial_floor * (1 - self.steps / self.config.anneal_steps)
        return torch.maximum(annealed, self.sigma_floor)

    def _mixture(self, x_BX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and standard deviations, `[B, M]` each."""
        logits_BM, means_BM, raw_BM = self.heads(self.backbone(x_BX)).float().chunk(3, dim=-1)
        return logits_BM, means_BM, floored_softplus(raw_BM, self.floor())
