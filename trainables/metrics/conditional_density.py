"""Predicted densities of y given x: how well Gaussian mixtures match the known density, and the evaluator for pairs.

Shapes: K members, B points x, N held-out pairs, G points of the grid, M components of one mixture, J of another, F
branches. Densities `[..., B, M]` may have leading dimensions, such as members. Components with standard deviation 0 are
point masses.
"""

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ConditionalDensity
from trainables.data.pairs import BRANCHES, NOISE, Pairs, draw_pairs
from trainables.learners.data_parallel import seeded_generator
from trainables.learners.members import StackedMembers
from trainables.losses.mixtures import log_mixture_density
from trainables.metrics.evaluator import Evaluator, Floats


def equal_mixture(means_BM: Tensor, sigma: float) -> ConditionalDensity:
    """The mixture with these means, equal weights, and a common standard deviation."""
    weight = 1 / means_BM.shape[-1]
    return ConditionalDensity(torch.full_like(means_BM, math.log(weight)), means_BM, torch.full_like(means_BM, sigma))


def mean(density: ConditionalDensity) -> Tensor:
    """The mean of y, `[B]`."""
    return (density.log_weights_BM.exp() * density.means_BM).sum(-1)


def variance_parts(density: ConditionalDensity) -> tuple[Tensor, Tensor]:
    """The variance of y in two parts, `[B]` each: within the components (noise) and between their means (disagreement).
    Their sum is the variance of y (GMJE Eq. 106)."""
    weights_BM = density.log_weights_BM.exp()
    deviations_BM = density.means_BM - mean(density)[..., None]
    return (weights_BM * density.sigmas_BM.square()).sum(-1), (weights_BM * deviations_BM.square()).sum(-1)


def log_likelihood(y_B: Tensor, density: ConditionalDensity) -> Tensor:
    """The log density at y, `[B]`."""
    means_BM1, sigmas_BM1 = density.means_BM[..., None], density.sigmas_BM[..., None]
    return log_mixture_density(y_B[..., None], density.log_weights_BM, means_BM1, sigmas_BM1)


def distribution_values(y_B: Tensor, density: ConditionalDensity) -> Tensor:
    """The distribution function at y, `[B]`: uniform in [0, 1] over pairs if the density is correct."""
    standardised_BM = (y_B[..., None] - density.means_BM) / density.sigmas_BM
    return (density.log_weights_BM.exp() * torch.special.ndtr(standardised_BM)).sum(-1)


def distance_from_uniform(values_B: Tensor) -> Tensor:
    """Largest distance between the distribution function of a sample and that of a uniform variable in [0, 1]
    (Kolmogorov-Smirnov)."""
    count, sorted_B = len(values_B), values_B.sort().values
    steps_B = torch.arange(count + 1, dtype=values_B.dtype) / count
    return torch.maximum((steps_B[1:] - sorted_B).max(), (sorted_B - steps_B[:-1]).max())


def energy_distance(first: ConditionalDensity, second: ConditionalDensity) -> Tensor:
    """`2 E|X - Y| - E|X - X'| - E|Y - Y'|` at each x, `[B]`: twice the integral of the squared difference of the two
    distribution functions. At least 0."""
    between, within_first, within_second = (
        _mean_distance(*pair) for pair in ((first, second), (first, first), (second, second))
    )
    return 2 * between - within_first - within_second


def branches_recovered(
    density: ConditionalDensity, branches_BF: Tensor, tolerance: float, least_weight: float
) -> Tensor:
    """Share of the F branches within `tolerance` of a component's mean at each x, `[B]`. Components with a weight below
    `least_weight` are ignored."""
    near_BMF = (density.means_BM[..., None] - branches_BF[..., None, :]).abs() <= tolerance
    counts_BM = density.log_weights_BM >= math.log(least_weight)
    return (near_BMF & counts_BM[..., None]).any(-2).to(density.means_BM.dtype).mean(-1)


def _mean_distance(first: ConditionalDensity, second: ConditionalDensity) -> Tensor:
    """`E|X - Y|`, `[B]`. The difference of two components is Gaussian; its absolute value is folded normal."""
    mean_BMJ = first.means_BM[..., :, None] - second.means_BM[..., None, :]
    sigma_BMJ = torch.hypot(first.sigmas_BM[..., :, None], second.sigmas_BM[..., None, :])
    ratio_BMJ = mean_BMJ / sigma_BMJ.clamp_min(torch.finfo(sigma_BMJ.dtype).tiny)
    spread_BMJ = sigma_BMJ * math.sqrt(2 / math.pi) * (-ratio_BMJ.square() / 2).exp()
    distance_BMJ = spread_BMJ + mean_BMJ * (ratio_BMJ / math.sqrt(2)).erf()
    weights_BM, weights_BJ = first.log_weights_BM.exp(), second.log_weights_BM.exp()
    return torch.einsum("...m,...j,...mj->...", weights_BM, weights_BJ, distance_BMJ)


HELD_OUT, GRID = 10_000, 300
"""Number of held-out pairs, and of points on [-1, 1]."""
TOLERANCE = 3 * NOISE
"""Maximum distance at which a branch counts as recovered."""
LEAST_WEIGHT = 0.05
"""Minimum weight of a component that recovers a branch."""
INTERVAL = 0.9
"""Probability of the central interval whose coverage is reported."""
SHOWN = 600
"""Number of training pairs in a figure."""
DURING_TRAINING = ("nll_excess",)
AT_END = (
    *(*DURING_TRAINING, "energy_distance", "energy_distance_point", "branches", "sigma_mean", "pi_error"),
    *("variance_within", "variance_between", "mean_distance", "sigma_deviation", "components_used"),
    *("coverage", "calibration_error"),
)


class ConditionalDensityEvaluator(Evaluator):
    """Compares the members' densities with the true density, on held-out pairs of each member's data set and on a
    grid."""

    def __init__(self, datasets: Sequence[str], shown: Sequence[Pairs | None], device: torch.device) -> None:
        """`datasets`: the data set of each member; `shown`: the training pairs of each member whose density is kept for
        a figure, else None."""
        self._known = {name: _KnownDensity(name) for name in set(datasets)}
        self._datasets, self._shown, self._device = datasets, shown, device
        self._pictures: list[dict[str, bytes]] = []

    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        remaining, self._pictures = iter(members), []
        by_member: list[dict[str, float]] = []
        for stack in stacks:
            own = [*itertools.islice(remaining, stack.size)]
            known = [self._known[self._datasets[index]] for index in own]
            x_KNX = torch.stack([density.x_N for density in known])[..., None]
            x_KNX = x_KNX.to(self._device, torch.get_default_dtype())
            predicted: ConditionalDensity = stack.evaluate_each("predict", x_KNX)
            for index, true_density, *parameters in zip(own, known, *predicted, strict=True):
                density = ConditionalDensity(*(parameter.double().cpu() for parameter in parameters))
                by_member.append(true_density.metrics(density, last))
                if last and (pairs := self._shown[index]) is not None:
                    self._pictures.append({"density.npz": true_density.figure_data(density, pairs)})
        return {name: np.array([metrics[name] for metrics in by_member]) for name in by_member[0]}

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        return self._pictures


class _KnownDensity:
    """The true density of one data set, at the held-out pairs and on the grid."""

    def __init__(self, dataset: str) -> None:
        held_out = draw_pairs(dataset, HELD_OUT, seeded_generator("held-out pairs", dataset))
        self._grid_G, self._y_N = torch.linspace(-1, 1, GRID, dtype=torch.float64), held_out.y_N
        self.x_N = torch.cat([held_out.x_N, self._grid_G])
        """The points at which members predict: the held-out pairs, then the grid, `[N + G]`."""
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
                "mean_distance": (mean(on_grid) - mean(self._on_grid)).abs().mean(),
                "sigma_deviation": (within_G + between_G).sqrt().std(correction=0),
                "components_used": _unless_nan((weights_GM >= LEAST_WEIGHT).any(0).sum().to(weights_GM.dtype), on_grid),
                **self._calibration(held_out),
            }
        return {name: value.item() for name, value in metrics.items()}

    def _calibration(self, held_out: ConditionalDensity) -> dict[str, Tensor]:
        """How well the intervals of a density `[N, M]` cover the targets."""
        values_N = distribution_values(self._y_N, held_out)
        covered_N = (values_N - 0.5).abs() <= INTERVAL / 2
        return {
            "coverage": _unless_nan(covered_N.to(values_N.dtype).mean(), held_out),
            "calibration_error": distance_from_uniform(values_N),
        }

    def figure_data(self, density: ConditionalDensity, training: Pairs) -> bytes:
        """The data for a figure of a density, as an NPZ file: `x`, `[G]`; `weights`, `means` and `sigmas`, `[G, M]`;
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
        """The parameters at the held-out pairs, and those on the grid."""
        return parameters[:HELD_OUT], parameters[HELD_OUT:]


def _unless_nan(value: Tensor, density: ConditionalDensity) -> Tensor:
    """The value, or NaN if the density is NaN, because comparisons with NaN are false."""
    return value + 0 * density.means_BM.sum()


def _pi_error(weights_GM: Tensor, branches: int) -> Tensor:
    """Mean distance between the weights and the branch weights; NaN unless there is one component per branch."""
    if weights_GM.shape[1] != branches:
        return torch.tensor(torch.nan)
    return (weights_GM - 1 / branches).abs().mean()
