"""Metrics of a cohort's members on pairs: how far each predicted density is from the true one.

Shapes: K members, N held-out pairs, G points of the grid, M components, F branches.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ConditionalDensity
from trainables.data.pairs import BRANCHES, NOISE, Pairs, draw_pairs
from trainables.evaluation.anomaly import Floats
from trainables.evaluation.conditional_density import (
    branches_recovered,
    energy_distance,
    equal_mixture,
    log_likelihood,
    mean,
    variance_parts,
)
from trainables.learners.data_parallel import seeded_generator
from trainables.learners.members import StackedMembers
from trainables.tasks.pairs.config import PairsTrial
from trainables.tasks.pairs.stream import as_input, training_pairs
from trainables.tasks.task import Evaluator

HELD_OUT, GRID = 10_000, 300
"""Number of held-out pairs, and of points on [-1, 1]."""
TOLERANCE = 3 * NOISE
"""Distance from a branch at which it is recovered."""
LEAST_WEIGHT = 0.05
"""Least weight of a component that recovers a branch."""
SHOWN = 600
"""Training pairs of a figure."""
DURING_TRAINING = ("nll_excess",)
AT_END = (
    *(*DURING_TRAINING, "energy_distance", "energy_distance_point", "branches", "sigma_mean", "pi_error"),
    *("variance_within", "variance_between"),
)


class ConditionalDensityEvaluator(Evaluator):
    """Compares the members' densities with the true one, on held-out pairs of each member's data set and on a grid."""

    def __init__(self, configs: Sequence[PairsTrial], device: torch.device) -> None:
        self._configs, self._device = configs, device
        self._known = {name: _KnownDensity(name) for name in {config.data.dataset for config in configs}}
        self._pictures: list[dict[str, bytes]] = []

    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        remaining, self._pictures = list(members), []
        by_member: list[dict[str, float]] = []
        for stack in stacks:
            configs = [self._configs[index] for index in remaining[: stack.size]]
            del remaining[: stack.size]
            x_KNX = torch.stack([self._known[config.data.dataset].x_N for config in configs])[..., None]
            predicted: ConditionalDensity = stack.evaluate_each("predict", as_input(x_KNX, self._device))
            for config, *parameters in zip(configs, *predicted, strict=True):
                density = ConditionalDensity(*(parameter.double().cpu() for parameter in parameters))
                known = self._known[config.data.dataset]
                by_member.append(known.metrics(density, last))
                if last and config.evaluation.sheets:
                    self._pictures.append({"density.npz": known.figure_data(density, training_pairs(config))})
        return {name: np.array([metrics[name] for metrics in by_member]) for name in by_member[0]}

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        return self._pictures


class _KnownDensity:
    """The density of one data set, at the held-out pairs and on the grid."""

    def __init__(self, dataset: str) -> None:
        held_out = draw_pairs(dataset, HELD_OUT, seeded_generator("held-out pairs", dataset))
        self._grid_G, self._y_N = torch.linspace(-1, 1, GRID, dtype=torch.float64), held_out.y_N
        self.x_N = torch.cat([held_out.x_N, self._grid_G])
        """Where members predict: at the held-out pairs, then on the grid, `[N + G]`."""
        self._branches_GF = BRANCHES[dataset].at(self._grid_G)
        self._on_grid = equal_mixture(self._branches_GF, NOISE)
        at_held_out = equal_mixture(BRANCHES[dataset].at(held_out.x_N), NOISE)
        self._nll = -log_likelihood(self._y_N, at_held_out).mean()

    def metrics(self, density: ConditionalDensity, last: bool) -> dict[str, float]:
        """Metrics of a density `[N + G, M]`."""
        held_out, on_grid = (ConditionalDensity(*parts) for parts in zip(*map(self._parts, density), strict=True))
        metrics = {"nll_excess": -log_likelihood(self._y_N, held_out).mean() - self._nll}
        if last:
            point_mass = equal_mixture(mean(on_grid)[:, None], 0.0)
            weights_GM = on_grid.log_weights_BM.exp()
            within_G, between_G = variance_parts(on_grid)
            metrics |= {
                "energy_distance": energy_distance(on_grid, self._on_grid).mean(),
                "energy_distance_point": energy_distance(point_mass, self._on_grid).mean(),
                "branches": _unless_nan(
                    branches_recovered(on_grid, self._branches_GF, TOLERANCE, LEAST_WEIGHT).mean(), on_grid
                ),
                "sigma_mean": (weights_GM * on_grid.sigmas_BM).sum(-1).mean(),
                "pi_error": _pi_error(weights_GM, self._branches_GF.shape[1]),
                "variance_within": within_G.mean(),
                "variance_between": between_G.mean(),
            }
        return {name: value.item() for name, value in metrics.items()}

    def figure_data(self, density: ConditionalDensity, training: Pairs) -> bytes:
        """What a figure shows of a density, as a file of NumPy: `x`, `[G]`; `weights`, `means` and `sigmas`, `[G, M]`;
        `branches`, `[G, F]`, and `noise`, the standard deviation around them; `pair_x` and `pair_y`, the first training
        pairs."""
        _, on_grid = (ConditionalDensity(*parts) for parts in zip(*map(self._parts, density), strict=True))
        tensors = {
            "x": self._grid_G,
            "weights": on_grid.log_weights_BM.exp(),
            "means": on_grid.means_BM,
            "sigmas": on_grid.sigmas_BM,
            "branches": self._branches_GF,
            "noise": torch.tensor(NOISE),
            "pair_x": training.x_N[:SHOWN],
            "pair_y": training.y_N[:SHOWN],
        }
        arrays: dict[str, Any] = {name: tensor.float().numpy() for name, tensor in tensors.items()}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return file.getvalue()

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Those at the held-out pairs, and those on the grid."""
        return parameters[:HELD_OUT], parameters[HELD_OUT:]


def _unless_nan(value: Tensor, density: ConditionalDensity) -> Tensor:
    """The value, or NaN if the density is: comparisons with NaN are false."""
    return value + 0 * density.means_BM.sum()


def _pi_error(weights_GM: Tensor, branches: int) -> Tensor:
    """Mean distance of the weights from those of the branches; NaN unless there are as many components."""
    if weights_GM.shape[1] != branches:
        return torch.tensor(torch.nan)
    return (weights_GM - 1 / branches).abs().mean()
