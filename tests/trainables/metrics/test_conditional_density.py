"""Distances of mixtures from a known density against scipy and numerical integrals; metrics of known predictions on
pairs, and what trials hand over for figures.

Shapes: K members, N pairs, B points x, M components.
"""

import io
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm
from torch import Tensor

from trainables.config import resolve
from trainables.contract import ConditionalDensity
from trainables.data.pairs import BRANCHES, NOISE
from trainables.learners.members import StackedMembers
from trainables.metrics.conditional_density import (
    AT_END,
    DURING_TRAINING,
    GRID,
    HELD_OUT,
    SHOWN,
    ConditionalDensityEvaluator,
    branches_recovered,
    distance_from_uniform,
    distribution_values,
    energy_distance,
    equal_mixture,
    log_likelihood,
    mean,
    variance_parts,
)
from trainables.tasks.pairs import PairsTrial, training_pairs

B = 4


def _mixture(components: int, seed: int) -> ConditionalDensity:
    source = torch.Generator().manual_seed(seed)
    logits, means, scale = torch.randn(3, B, components, generator=source, dtype=torch.float64)
    return ConditionalDensity(logits.log_softmax(-1), means, 0.1 + scale.abs())


def _cdf(mixture: ConditionalDensity, point: int, y: np.ndarray) -> np.ndarray:
    log_weights, means, sigmas = (values[point].numpy() for values in mixture)
    return (np.exp(log_weights) * norm.cdf(y[:, None], means, sigmas)).sum(1)


def test_log_likelihood_is_scipys() -> None:
    mixture, y_B = _mixture(3, 0), torch.linspace(-1, 1, B, dtype=torch.float64)
    for point in range(B):
        log_weights, means, sigmas = (values[point].numpy() for values in mixture)
        expected = math.log((np.exp(log_weights) * norm.pdf(y_B[point].item(), means, sigmas)).sum())
        assert log_likelihood(y_B, mixture)[point].item() == pytest.approx(expected)


def test_energy_distance_is_twice_the_integral_of_the_squared_difference_of_distribution_functions() -> None:
    first, second = _mixture(3, 0), _mixture(2, 1)
    y = np.linspace(-15, 15, 60_001)
    for point in range(B):
        squared = (_cdf(first, point, y) - _cdf(second, point, y)) ** 2
        assert energy_distance(first, second)[point].item() == pytest.approx(2 * np.trapezoid(squared, y), rel=1e-6)
    torch.testing.assert_close(energy_distance(first, first), torch.zeros(B, dtype=torch.float64))
    torch.testing.assert_close(energy_distance(first, second), energy_distance(second, first))


def test_energy_distance_of_point_masses_is_twice_their_distance() -> None:
    first, second = (equal_mixture(torch.tensor([[0.0], [1.0]]) + shift, 0.0) for shift in (0.0, 0.5))
    torch.testing.assert_close(energy_distance(first, second), torch.ones(2))


def test_energy_distance_of_a_point_mass_from_a_gaussian() -> None:
    """`2 E|X| - E|X - X'|` for a standard normal X."""
    point, gaussian = (equal_mixture(torch.zeros(1, 1, dtype=torch.float64), sigma) for sigma in (0.0, 1.0))
    expected = 2 * math.sqrt(2 / math.pi) - 2 / math.sqrt(math.pi)
    assert energy_distance(point, gaussian).item() == pytest.approx(expected)


def test_members_are_compared_at_once() -> None:
    mixtures = [_mixture(2, seed) for seed in range(3)]
    together = ConditionalDensity(*map(torch.stack, zip(*mixtures, strict=True)))
    other = _mixture(3, 5)
    torch.testing.assert_close(
        energy_distance(together, other), torch.stack([energy_distance(mixture, other) for mixture in mixtures])
    )


def test_the_mean_is_weighted() -> None:
    mixture = ConditionalDensity(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([[0.0, 4.0]]), torch.ones(1, 2))
    torch.testing.assert_close(mean(mixture), torch.tensor([3.0]))


def test_both_parts_of_the_variance_are_integrals() -> None:
    """Their sum is the integral of the squared distance from the mean; one component has no second part."""
    mixture, y = _mixture(3, 0), np.linspace(-15, 15, 60_001)
    within, between = variance_parts(mixture)
    for point in range(B):
        weights, means, sigmas = (values[point].numpy() for values in (mixture.log_weights_BM.exp(), *mixture[1:]))
        centre, pdf = weights @ means, (weights * norm.pdf(y[:, None], means, sigmas)).sum(1)
        assert (within + between)[point].item() == pytest.approx(np.trapezoid((y - centre) ** 2 * pdf, y), rel=1e-6)
        assert within[point].item() == pytest.approx(weights @ sigmas**2)
    one = _mixture(1, 0)
    torch.testing.assert_close(variance_parts(one), (one.sigmas_BM[:, 0].square(), torch.zeros(B).double()))


@pytest.mark.parametrize(
    ("weights", "means", "recovered"),
    [
        ((0.3, 0.3, 0.4), (0.0, 1.0, 2.0), 1.0),
        ((0.3, 0.3, 0.4), (0.09, 0.92, 1.85), 2 / 3),
        ((0.01, 0.49, 0.5), (0.0, 1.0, 2.0), 2 / 3),
        ((0.3, 0.3, 0.4), (0.0, 0.01, 0.02), 1 / 3),
    ],
)
def test_a_branch_is_recovered_by_a_component_with_weight_near_it(
    weights: tuple[float, ...], means: tuple[float, ...], recovered: float
) -> None:
    mixture = ConditionalDensity(torch.tensor([weights]).log(), torch.tensor([means]), torch.ones(1, 3))
    shares = branches_recovered(mixture, torch.tensor([[0.0, 1.0, 2.0]]), tolerance=0.1, least_weight=0.05)
    torch.testing.assert_close(shares, torch.tensor([recovered]))


# --- The evaluator ---

pytestmark = pytest.mark.usefixtures("pairs")
Predict = Callable[[Tensor], ConditionalDensity]


class Predictions:
    """Stands for a stack whose members make these predictions."""

    def __init__(self, *predict: Predict) -> None:
        self.size, self._predict = len(predict), predict

    def evaluate_each(self, verb: str, x_KNX: Tensor) -> ConditionalDensity:
        assert verb == "predict"
        each = [predict(x_NX[:, 0]) for predict, x_NX in zip(self._predict, x_KNX, strict=True)]
        return ConditionalDensity(*map(torch.stack, zip(*each, strict=True)))


def _truth(dataset: str) -> Predict:
    return lambda x_N: equal_mixture(BRANCHES[dataset].at(x_N), NOISE)


def _one_branch(x_N: Tensor) -> ConditionalDensity:
    """Three components on the same branch of the data set B, of unequal weights."""
    weights_N3 = torch.tensor([0.5, 0.5, 1e-6]).log().expand(len(x_N), 3)
    return ConditionalDensity(weights_N3, torch.zeros(len(x_N), 3), torch.full((len(x_N), 3), 2 * NOISE))


def _not_a_number(x_N: Tensor) -> ConditionalDensity:
    return ConditionalDensity(*(values * torch.nan for values in _one_branch(x_N)))


def _trial(dataset: str, **changes: bool) -> PairsTrial:
    config = resolve({"method": "gaussian_mlp", "dataset": dataset, **changes})
    assert isinstance(config, PairsTrial)
    return config


def _evaluator(*configs: PairsTrial) -> ConditionalDensityEvaluator:
    datasets = [config.data.dataset for config in configs]
    shown = [training_pairs(config) if config.evaluation.sheets else None for config in configs]
    return ConditionalDensityEvaluator(datasets, shown, torch.device("cpu"))


def _metrics(
    evaluator: ConditionalDensityEvaluator, *stacks: Predictions, members: tuple[int, ...], last: bool = True
) -> dict[str, Any]:
    return evaluator.metrics([cast(StackedMembers, stack) for stack in stacks], members, last)


def test_the_truth_is_perfect_and_each_member_is_compared_with_its_own_data_set() -> None:
    configs = [_trial("synthetic_a"), _trial("synthetic_b"), _trial("synthetic_b")]
    stacks = (Predictions(_truth("synthetic_a")), Predictions(_truth("synthetic_b")))
    metrics = _metrics(_evaluator(*configs), *stacks, members=(0, 2))
    assert tuple(metrics) == AT_END
    expected = {"nll_excess": 0.0, "energy_distance": 0.0, "branches": 1.0, "sigma_mean": NOISE, "pi_error": 0.0}
    for name, value in expected.items():
        assert metrics[name] == pytest.approx([value, value], abs=1e-6), name
    assert (metrics["energy_distance_point"] > 0.25).all()
    assert metrics["coverage"] == pytest.approx([0.9, 0.9], abs=0.009) and (metrics["calibration_error"] < 0.02).all()
    assert metrics["mean_distance"] == pytest.approx([0, 0], abs=1e-6) and metrics["components_used"].tolist() == [3, 3]
    assert metrics["variance_within"] == pytest.approx(NOISE**2, rel=1e-5)
    branches = [BRANCHES[name].at(torch.linspace(-1, 1, GRID)) for name in ("synthetic_a", "synthetic_b")]
    assert metrics["variance_between"] == pytest.approx([each.var(1, correction=0).mean().item() for each in branches])


def test_a_model_of_one_branch_is_worse_in_all_metrics() -> None:
    evaluator = _evaluator(_trial("synthetic_b"))
    metrics = _metrics(evaluator, Predictions(_one_branch), members=(0,))
    assert metrics["nll_excess"] > 5 and metrics["energy_distance"] > 0.1
    assert 1 / 3 < metrics["branches"] < 0.45  # near the origin it has the others, too
    assert metrics["sigma_mean"] == pytest.approx([2 * NOISE], rel=1e-5)
    assert metrics["pi_error"] == pytest.approx([(1 / 6 + 1 / 6 + 1 / 3) / 3], abs=1e-5)
    assert metrics["components_used"] == 2 and metrics["sigma_deviation"] == pytest.approx([0], abs=1e-6)
    assert metrics["coverage"] < 0.6 and metrics["calibration_error"] > 0.2


def test_a_member_whose_prediction_is_not_a_number_has_no_metric_and_the_other_keeps_its_own() -> None:
    evaluator = _evaluator(*[_trial("synthetic_b")] * 2)
    metrics = _metrics(evaluator, Predictions(_not_a_number, _one_branch), members=(0, 1))
    assert all(np.isnan(values[0]) and np.isfinite(values[1]) for values in metrics.values())


def test_weights_are_compared_for_three_components_only() -> None:
    evaluator = _evaluator(_trial("synthetic_a"))
    one = Predictions(lambda x_N: equal_mixture(0 * x_N[:, None], 1.0))
    assert np.isnan(_metrics(evaluator, one, members=(0,))["pi_error"])


def test_reports_before_the_last_have_the_cheap_metric_alone() -> None:
    evaluator = _evaluator(_trial("synthetic_a", sheets=True))
    metrics = _metrics(evaluator, Predictions(_one_branch), members=(0,), last=False)
    assert tuple(metrics) == DURING_TRAINING and not evaluator.pictures


def test_figures_get_the_density_on_the_grid_with_branches_and_pairs() -> None:
    evaluator = _evaluator(*[_trial("synthetic_b", sheets=True)] * 2)
    _metrics(evaluator, Predictions(_truth("synthetic_b"), _one_branch), members=(0, 1))
    truth, other = (np.load(io.BytesIO(files["density.npz"])) for files in evaluator.pictures)
    assert truth["means"] == pytest.approx(truth["branches"], abs=1e-6) and truth["branches"].shape == (GRID, 3)
    assert truth["x"][[0, -1]].tolist() == [-1, 1] and truth["pair_x"].shape == truth["pair_y"].shape == (SHOWN,)
    assert (other["sigmas"] == pytest.approx(2 * NOISE)) and other["weights"].sum(1) == pytest.approx(1.0)
    assert truth["noise"] == pytest.approx(NOISE) and HELD_OUT == 10_000


def test_trials_that_ask_for_no_sample_grids_have_none() -> None:
    evaluator = _evaluator(_trial("synthetic_b"))
    _metrics(evaluator, Predictions(_one_branch), members=(0,))
    assert not evaluator.pictures


def test_the_distribution_function_is_scipys_and_uniform_under_the_true_density() -> None:
    mixture, y_B = _mixture(3, 0), torch.linspace(-1, 1, B, dtype=torch.float64)
    expected = [_cdf(mixture, point, y_B[point : point + 1].numpy())[0] for point in range(B)]
    np.testing.assert_allclose(distribution_values(y_B, mixture), expected, rtol=1e-9)
    values = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 2
    assert distance_from_uniform(values).item() == pytest.approx(kstest(values.numpy(), "uniform").statistic)
