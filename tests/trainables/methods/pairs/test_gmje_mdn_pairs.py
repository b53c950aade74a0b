"""The mixture density network on pairs: its likelihood, its falling floor, its start, and that it finds all branches.

Shapes: B examples, M components.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tests.trainables.methods.pairs.known import SHAPES, Known
from tests.trainables.small import HERE
from trainables.config.trial import resolve
from trainables.methods.pairs.gmje_mdn_pairs import MDNPairs, MDNPairsConfig
from trainables.training.cohort import Cohort


def _model(**options: Any) -> MDNPairs:
    torch.manual_seed(0)
    return MDNPairs(MDNPairsConfig(**options), Known(), SHAPES)


def test_the_loss_is_the_mean_negative_log_density_of_the_predicted_mixture() -> None:
    model, x_BX, y_B = _model(), torch.tensor([[-0.5], [0.0], [0.8]]), torch.tensor([0.3, -1.0, 0.5])
    log_weights, means, sigmas = (values.detach().double().numpy() for values in model.predict(x_BX))
    density_B = (np.exp(log_weights) * norm.pdf(y_B.numpy()[:, None], means, sigmas)).sum(1)
    loss = model.losses({"x": x_BX, "y": y_B}, {}).total.item()
    assert loss == pytest.approx(-np.log(density_B).mean(), rel=1e-5)
    assert np.exp(log_weights).sum(1) == pytest.approx(1.0)


def test_means_start_at_quantiles_of_the_targets() -> None:
    model = _model(components=4)
    assert model.heads.bias[4:8].tolist() == pytest.approx([-0.75, -0.25, 0.25, 0.75])


@pytest.mark.parametrize(
    ("initial_floor", "floors"), [(0.3, [0.3, 0.2, 0.1, 0.05, 0.05]), (0.0, [0.05] * 5), (0.01, [0.05] * 5)]
)
def test_the_floor_falls_linearly_and_stays(initial_floor: float, floors: list[float]) -> None:
    model, seen = _model(initial_floor=initial_floor, sigma_floor=0.05, anneal_steps=3), []
    for _ in range(5):
        seen.append(model.floor().item())
        assert model.predict(torch.zeros(1, 1)).sigmas_BM.min() > seen[-1]
        model.after_step({})
    assert seen == pytest.approx(floors)


def test_it_finds_three_branches() -> None:
    """In a quarter of the steps of the sweep, on small batches, already nearly everywhere. A Gaussian is 1.6 nats from
    the true density, and finds a fifth of the branches."""
    config = resolve(
        {
            "method": "gmje_mdn_pairs", "examples": 800, "batch_size": 100, "epochs": 40, "anneal_steps": 160,
            "optimiser": "adam", "lr": 0.01, "width": 32,
        }
    )  # fmt: skip
    cohort = Cohort([config], HERE, torch.device("cpu"), None)
    for epoch in range(40):
        cohort.epoch(epoch)
    metrics = cohort.evaluate(last=True)
    assert metrics["branches"] > 0.85 and metrics["nll_excess"] < 0.8 and metrics["pi_error"] < 0.06
    assert 0.04 < metrics["sigma_mean"] < 0.12
