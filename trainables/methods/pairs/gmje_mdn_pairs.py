"""GMJE-MDN on pairs: a network predicts the mixture density of y given x (arXiv 2603.26799, section 5.1).

The likelihood is that of `gmje_mdn` without the terms for embeddings, because x and y are given and cannot collapse.
Three measures help components find all modes: means start at quantiles of y, standard deviations have a floor that
falls during training, and the network with the greatest likelihood out of several is kept.

Shapes: B examples, X inputs, M components, R networks, I inputs and O outputs of a layer.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor, nn

from trainables.contract import Batch, ConditionalDensity, Losses, PairsMethod, PairStatistics, Shapes
from trainables.losses.mixtures import floored_softplus, mixture_density_nll
from trainables.validation import above, at_least, between, checked

MEMORY = 0.9
"""Share of its value that the moving average of a network's loss keeps per step. The network with the lowest average is
kept."""


@checked
class MDNPairsConfig:
    components: Annotated[int, at_least(1)] = 3
    """Number M of components."""
    starts: Annotated[int, at_least(1)] = 4
    """Number R of networks that train in parallel from different initial weights. The network with the greatest
    likelihood on the training pairs makes the predictions."""
    sigma_floor: Annotated[float, above(0)] = 1e-3
    """Minimum standard deviation of a component."""
    initial_floor: Annotated[float, at_least(0)] = 0.1
    """Minimum standard deviation at the first step, which falls linearly to `sigma_floor`. 0 disables annealing."""
    anneal_share: Annotated[float, between(0, 1, above=True)] = 0.5
    """Share of all training steps after which the initial floor would reach 0."""
    width: Annotated[int, at_least(1)] = 64
    """Hidden units of both layers."""


class MDNPairs(PairsMethod):
    """Fusible: `sigma_floor`, `initial_floor`. A network has two layers with ReLU, then an output layer for weights,
    means and standard deviations."""

    Config = MDNPairsConfig
    fusible = frozenset({"sigma_floor", "initial_floor"})

    sigma_floor: Tensor
    initial_floor: Tensor
    steps: Tensor
    anneal_steps: Tensor
    nll_R: Tensor
    """Moving average of each network's loss, times a common factor."""

    def __init__(self, config: MDNPairsConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        count, starts, width = config.components, config.starts, config.width
        self.first = _Linears(starts, math.prod(shapes["x"]), width)
        self.second = _Linears(starts, width, width)
        self.heads = _Linears(starts, width, 3 * count)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("nll_R", torch.zeros(starts))
        self.register_buffer("anneal_steps", torch.tensor(max(config.anneal_share * networks.steps, 1.0)))
        levels = (torch.arange(count, dtype=torch.get_default_dtype()) + 0.5) / count
        with torch.no_grad():
            self.heads.bias_R1O[..., count : 2 * count].copy_(networks.target_quantiles(levels))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The mean negative log density of y, averaged over networks."""
        logits_RBM, means_RBM, sigma_RBM = self._mixtures(batch["x"])
        nll_RB = mixture_density_nll(batch["y"][:, None], logits_RBM, means_RBM[..., None], sigma_RBM[..., None])
        nll_R = nll_RB.mean(-1)
        self.nll_R.mul_(MEMORY).add_((1 - MEMORY) * nll_R.detach())
        return Losses(nll_R.mean(), {})

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.steps.add_(1)

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        best_1 = self.nll_R.argmin()[None]
        logits_BM, means_BM, sigma_BM = (part.index_select(0, best_1).squeeze(0) for part in self._mixtures(x_BX))
        return ConditionalDensity(logits_BM.log_softmax(-1), means_BM, sigma_BM)

    def floor(self) -> Tensor:
        """The minimum standard deviation at this step, `[]`."""
        annealed = self.initial_floor * (1 - self.steps / self.anneal_steps)
        return torch.maximum(annealed, self.sigma_floor)

    def _mixtures(self, x_BX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, means and standard deviations, `[R, B, M]` each."""
        hidden_RBO = self.second(self.first(x_BX.expand(len(self.nll_R), *x_BX.shape)).relu()).relu()
        logits_RBM, means_RBM, raw_RBM = self.heads(hidden_RBO).float().chunk(3, dim=-1)
        return logits_RBM, means_RBM, floored_softplus(raw_RBM, self.floor())


class _Linears(nn.Module):
    """R parallel linear layers, each with its own initial weights, drawn as in torch.nn.Linear."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight_RIO = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias_R1O = nn.Parameter(torch.empty(count, 1, outputs).uniform_(-bound, bound))

    def forward(self, x_RBI: Tensor) -> Tensor:
        return torch.baddbmm(self.bias_R1O, x_RBI, self.weight_RIO)
