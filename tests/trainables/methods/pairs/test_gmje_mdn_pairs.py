"""The mixture density network on pairs: its likelihood, its falling floor, its starts, and that it finds all branches.

Shapes: B examples, M components.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from tests.trainables.methods.pairs.known import SHAPES, Known
from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.methods.pairs.gmje_mdn_pairs import MDNPairs, MDNPairsConfig
from trainables.training.cohort import Cohort


def _model(**options: Any) -> MDNPairs:
    torch.manual_seed(0)
    return MDNPairs(MDNPairsConfig(**{"starts": 1, **options}), Known(), SHAPES)


def test_the_loss_is_the_mean_negative_log_density_of_the_predicted_mixture() -> None:
    model, x_BX, y_B = _model(), torch.tensor([[-0.5], [0.0], [0.8]]), torch.tensor([0.3, -1.0, 0.5])
    log_weights, means, sigmas = (values.detach().double().numpy() for values in model.predict(x_BX))
    density_B = (np.exp(log_weights) * norm.pdf(y_B.numpy()[:, None], means, sigmas)).sum(1)
    loss = model.losses({"x": x_BX, "y": y_B}, {}).total.item()
    assert loss == pytest.approx(-np.log(density_B).mean(), rel=1e-5)
    assert np.exp(log_weights).sum(1) == pytest.approx(1.0)


def test_means_start_at_quantiles_of_the_targets() -> None:
    model = _model(components=4)
    for bias_O in model.heads.bias_R1O[:, 0]:
        assert bias_O[4:8].tolist() == pytest.approx([-0.75, -0.25, 0.25, 0.75])


@pytest.mark.parametrize(
    ("initial_floor", "floors"), [(0.3, [0.3, 0.2, 0.1, 0.05, 0.05]), (0.0, [0.05] * 5), (0.01, [0.05] * 5)]
)
def test_the_floor_falls_linearly_and_stays(initial_floor: float, floors: list[float]) -> None:
    model, seen = _model(initial_floor=initial_floor, sigma_floor=0.05), []
    for _ in range(5):
        seen.append(model.floor().item())
        assert model.predict(torch.zeros(1, 1)).sigmas_BM.min() > seen[-1]
        model.after_step({})
    assert seen == pytest.approx(floors)


@pytest.mark.parametrize("epochs", [4, 30])
def test_the_floor_has_fallen_after_half_of_a_training_of_any_length(epochs: int) -> None:
    """So the largest deviation at the end does not depend on a number of steps that the trial does not have."""
    config = resolve({"method": "gmje_mdn_pairs", "examples": 40, "batch_size": 20, "epochs": epochs})
    cohort, floors = Cohort([config], HERE, torch.device("cpu"), None), []
    for epoch in range(epochs):
        (stack,) = cohort._stacks
        floors.append(stack.evaluate("floor").item())
        cohort.epoch(epoch)
    expected = [max(0.1 * (1 - 2 * epoch / epochs), 1e-3) for epoch in range(epochs)]
    assert floors == pytest.approx(expected, abs=1e-6)


def _plain(model: MDNPairs, network: int) -> nn.Sequential:
    """One of its networks as torch's own layers."""
    layers: list[nn.Module] = []
    for stacked in (model.first, model.second, model.heads):
        linear = nn.Linear(*stacked.weight_RIO.shape[1:])
        linear.load_state_dict({"weight": stacked.weight_RIO[network].T, "bias": stacked.bias_R1O[network, 0]})
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _plain_nll(network: nn.Sequential, floor: float, batch: Mapping[str, Tensor]) -> Tensor:
    logits_BM, means_BM, raw_BM = network(batch["x"]).chunk(3, dim=-1)
    components = Normal(means_BM, nn.functional.softplus(raw_BM) + floor)
    return -MixtureSameFamily(Categorical(logits=logits_BM), components).log_prob(batch["y"]).mean()


def test_networks_learn_side_by_side_as_plain_ones_do_and_the_likeliest_predicts() -> None:
    """Against torch's layers, distributions and Adam; no network sees another one."""
    model, source = _model(starts=3, width=8, initial_floor=0.0), torch.Generator().manual_seed(1)
    batch = {"x": 2 * torch.rand(60, 1, generator=source) - 1, "y": torch.randn(60, generator=source)}
    plain = [_plain(model, network) for network in range(3)]
    floor = model.floor().item()
    optimisers = [torch.optim.Adam(module.parameters(), 0.01) for module in (model, *plain)]
    for _ in range(40):
        losses = [model.losses(batch, {}).total, *(_plain_nll(network, floor, batch) for network in plain)]
        assert losses[0].item() == pytest.approx(np.mean([loss.item() for loss in losses[1:]]), rel=1e-4)
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        model.after_step({})
    reached = [_plain_nll(network, floor, batch).item() for network in plain]
    density = model.predict(batch["x"])
    predicted = MixtureSameFamily(Categorical(logits=density.log_weights_BM), Normal(density.means_BM, density[2]))
    assert max(reached) - min(reached) > 0.01, "networks differ, or the choice would prove nothing"
    assert -predicted.log_prob(batch["y"]).mean().item() == pytest.approx(min(reached), rel=1e-3)


def test_it_finds_three_branches() -> None:
    """In a quarter of the steps of the sweep, on small batches, already nearly everywhere. A Gaussian is 1.6 nats from
    the true density, and finds a fifth of the branches."""
    config = resolve(
        {
            "method": "gmje_mdn_pairs", "examples": 800, "batch_size": 100, "epochs": 40,
            "optimiser": "adam", "lr": 0.01, "width": 32, "starts": 2,
        }
    )  # fmt: skip
    cohort = Cohort([config], HERE, torch.device("cpu"), None)
    for epoch in range(40):
        cohort.epoch(epoch)
    metrics = cohort.evaluate(last=True)
    assert metrics["branches"] > 0.85 and metrics["nll_excess"] < 0.8 and metrics["pi_error"] < 0.06
    assert 0.04 < metrics["sigma_mean"] < 0.12
