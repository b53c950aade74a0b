"""JEPA on pairs: its error, the Gaussian of its residuals, and that it predicts the mean of the branches."""

import pytest
import torch

from tests.trainables.methods.pairs.known import SHAPES, Known
from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.methods.pairs.jepa_pairs import JEPAPairs, JEPAPairsConfig
from trainables.training.cohort import Cohort


def test_its_density_is_a_gaussian_of_the_averaged_squared_error() -> None:
    model = JEPAPairs(JEPAPairsConfig(width=8, ema=0.75), Known(), SHAPES)
    x_BX, y_B = torch.linspace(-1, 1, 5)[:, None], torch.tensor([0.3, -1.0, 0.5, 2.0, 0.0])
    log_weights, means, sigmas = model.predict(x_BX)
    error = (means[:, 0].double() - y_B).square().mean().item()
    assert (sigmas == 1).all() and (log_weights == 0).all()
    assert model.losses({"x": x_BX, "y": y_B}, {}).total.item() == pytest.approx(error)
    assert model.predict(x_BX).sigmas_BM.square().tolist() == [[pytest.approx(0.75 + 0.25 * error)]] * 5


def test_it_predicts_the_mean_of_the_branches() -> None:
    """That of the second data set is 0, and its variance a third of 2 sin(3x)^2: it finds no more than one branch."""
    config = resolve(
        {
            "method": "jepa_pairs", "dataset": "synthetic_b", "examples": 800, "batch_size": 100, "epochs": 12,
            "optimiser": "adam", "lr": 0.01, "width": 32,
        }
    )  # fmt: skip
    cohort = Cohort([config], HERE, torch.device("cpu"), None)
    for epoch in range(12):
        cohort.epoch(epoch)
    metrics = cohort.evaluate(last=True)
    assert metrics["nll_excess"] > 1.3 and metrics["energy_distance_point"] > 0.3 and metrics["branches"] < 0.5
    assert metrics["sigma_mean"] == pytest.approx(0.595, abs=0.05)
