"""Methods of pairs: EM is scikit-learn's and so is the Gaussian process, conditional densities are scipy's, neural gas
keeps its graph and is stepped by hand, the mixture density network finds all branches, and JEPA predicts their mean.

Shapes: B examples, M components or nodes, E dimensions.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.data.pairs import draw_pairs
from trainables.learners.members import FittedMembers
from trainables.methods.pairs.gaussian_process import GaussianProcess, GaussianProcessConfig
from trainables.methods.pairs.gmje_em import EM, SEEDS, EMConfig
from trainables.methods.pairs.gmje_gng import GNG, GNGConfig, Graph
from trainables.methods.pairs.gmje_mdn_pairs import MDNPairs, MDNPairsConfig
from trainables.methods.pairs.jepa_pairs import JEPAPairs, JEPAPairsConfig
from trainables.training.cohort import TrainingCohort

SHAPES = {"x": (1,), "y": ()}


@dataclass(frozen=True)
class Known:
    """Training pairs whose targets are uniform on [-1, 1]."""

    count: int = 100
    steps: int = 6

    def target_quantiles(self, levels: Tensor) -> Tensor:
        return 2 * levels - 1


def _batch(dataset: str = "synthetic_a") -> Mapping[str, Tensor]:
    pairs = draw_pairs(dataset, 300, torch.Generator().manual_seed(0))
    return {"x": pairs.x_N[:, None].float(), "y": pairs.y_N.float()}


def _points(batch: Mapping[str, Tensor]) -> np.ndarray:
    return torch.cat([batch["x"], batch["y"][:, None]], dim=1).double().numpy()


START: Mapping[str, Tensor] = {"clusters": torch.tensor(0.0)}
"""Noise of which k-means makes the random state 0."""


def _model(**options: Any) -> EM:
    return EM(EMConfig(**{"starts": 1, **options}), Known(300), SHAPES)


@pytest.mark.parametrize("components", [1, 3])
def test_an_epoch_is_scikit_learns_fit(components: int) -> None:
    model, batch = _model(components=components), _batch()
    model.fit(batch, START)
    expected = GaussianMixture(components, max_iter=500, tol=1e-6, random_state=0).fit(_points(batch))
    for own, theirs in (
        (model.weights_M, expected.weights_),
        (model.means_ME, expected.means_),
        (model.covariances_MEE, expected.covariances_),
    ):
        torch.testing.assert_close(own.double(), torch.from_numpy(theirs), rtol=1e-4, atol=1e-5)
    assert model.nll(torch.from_numpy(_points(batch)).float()).item() == pytest.approx(
        -expected.score(_points(batch)), rel=1e-4
    )


@pytest.mark.slow
def test_the_best_of_several_starts_is_kept() -> None:
    """The first two of these end in a worse mixture."""
    pairs = draw_pairs("synthetic_a", 600, torch.Generator().manual_seed(0))
    batch, source = {"x": pairs.x_N[:, None].float(), "y": pairs.y_N.float()}, np.random.RandomState(3)
    points = _points(batch)
    alone = [GaussianMixture(3, max_iter=500, tol=1e-6, random_state=source).fit(points).score(points) for _ in "1234"]
    assert max(alone) - max(alone[:2]) > 0.05
    for starts, reached in ((1, alone[0]), (4, max(alone))):
        model = _model(starts=starts)
        model.fit(batch, {"clusters": torch.tensor(3 / SEEDS)})
        assert -model.nll(torch.from_numpy(points).float()).item() == pytest.approx(reached, abs=1e-4)


def test_the_noise_alone_decides_where_k_means_starts() -> None:
    def means(start: float) -> Tensor:
        model = _model(components=6, iterations=1)
        model.fit(_batch(), {"clusters": torch.tensor(start)})
        return model.means_ME

    first, again, other = means(0.25), means(0.25), means(0.75)
    assert torch.equal(first, again) and not torch.allclose(first.sort(0).values, other.sort(0).values, atol=1e-3)


def test_the_density_of_y_given_x_is_scipys() -> None:
    """The joint density over the marginal one."""
    model, batch = _model(), _batch()
    model.fit(batch, START)
    joint = [
        (weight, multivariate_normal(mean, covariance), multivariate_normal(mean[0], covariance[0, 0]))
        for weight, mean, covariance in zip(
            *(b.double().numpy() for b in (model.weights_M, model.means_ME, model.covariances_MEE)), strict=True
        )
    ]
    x, y = np.array([-0.8, 0.0, 0.9]), np.array([1.0, -0.4, 0.6])
    log_weights, means, sigmas = model.predict(torch.tensor(x[:, None]).float())
    density = (
        log_weights.exp() * torch.distributions.Normal(means, sigmas).log_prob(torch.tensor(y)[:, None]).exp()
    ).sum(1)
    expected = [
        sum(weight * both.pdf((a, b)) for weight, both, _ in joint)
        / sum(weight * one.pdf(a) for weight, _, one in joint)
        for a, b in zip(x, y, strict=True)
    ]
    assert density.tolist() == pytest.approx(expected, rel=1e-3)


def test_short_epochs_continue_and_never_increase_the_loss() -> None:
    model, batch = _model(iterations=2, tolerance=0.0), _batch("synthetic_b")
    losses = [model.fit(batch, START).total.item() for _ in range(8)]
    assert all(later <= earlier + 1e-5 for earlier, later in itertools.pairwise(losses[1:]))
    assert losses[-1] < losses[1] - 0.01


def test_a_mixture_that_fails_is_not_a_number_and_the_others_are_fitted() -> None:
    """All pairs of the first stream are one point: without jitter its covariance is singular."""
    same = {name: values[:1].expand_as(values) for name, values in _batch().items()}
    members = FittedMembers([_model(jitter=0.0), _model(jitter=0.0)], streams=[0, 1])
    members.step([same, _batch()], [START, START], [{}, {}], 1.0)
    log_weights, means, sigmas = members.evaluate("predict", torch.zeros(4, 1))
    assert all(values[0].isnan().all() and values[1].isfinite().all() for values in (log_weights, means, sigmas))
    assert members.step([same, _batch()], [START, START], [{}, {}], 1.0).total.isnan().tolist() == [True, False]


COUNT = 100
NO_NOISE = MappingProxyType[str, Tensor]({})
PAIRS = draw_pairs("synthetic_b", COUNT, torch.Generator().manual_seed(0))
BATCH = {"x": PAIRS.x_N[:, None].float(), "y": PAIRS.y_N.float()}


def _gaussian_process_model(**options: Any) -> GaussianProcess:
    return GaussianProcess(GaussianProcessConfig(**options), Known(COUNT), SHAPES)


def test_predictions_are_scikit_learns_with_the_noise_of_y() -> None:
    model = _gaussian_process_model()
    model.fit(BATCH, NO_NOISE)
    kernel = RBF(0.3, "fixed") + WhiteKernel(0.5, "fixed")
    expected = GaussianProcessRegressor(kernel, optimizer=None).fit(PAIRS.x_N[:, None].numpy(), PAIRS.y_N.numpy())
    x = torch.linspace(-1.5, 1.5, 7)[:, None]
    mean, sigma = expected.predict(x.double().numpy(), return_std=True)
    log_weights, means, sigmas = model.predict(x)
    assert means[:, 0].tolist() == pytest.approx(mean, abs=1e-4) and (log_weights == 0).all()
    assert sigmas[:, 0].tolist() == pytest.approx(sigma, rel=1e-4), (
        "the WhiteKernel's level is a variance, and included"
    )


def test_before_it_is_fitted_it_is_the_prior() -> None:
    model = _gaussian_process_model(noise_variance=0.44)
    _, means, sigmas = model.predict(torch.tensor([[0.0], [0.7]]))
    assert means.flatten().tolist() == [0, 0] and sigmas.flatten().tolist() == pytest.approx([1.2, 1.2])
    loss, again = model.fit(BATCH, NO_NOISE).total.item(), model.fit(BATCH, NO_NOISE).total.item()
    y = BATCH["y"].double().numpy()
    assert loss == pytest.approx((np.square(y) / 1.44).mean() / 2 + np.log(1.2) + np.log(2 * np.pi) / 2, rel=1e-5)
    assert again < loss


def test_a_singular_covariance_makes_its_predictions_not_a_number() -> None:
    model = _gaussian_process_model(noise_variance=1e-30)
    model.fit({name: values[:1].expand_as(values) for name, values in BATCH.items()}, NO_NOISE)
    assert model.predict(torch.zeros(3, 1)).means_BM.isnan().all()


def test_a_graph_goes_on_where_it_was() -> None:
    """Buffers hold it between epochs: two of 150 steps are one of 300, on the same pairs."""
    source = torch.Generator().manual_seed(0)
    x_BX, y_B = torch.randn(200, 1, generator=source), torch.randn(200, generator=source)
    uniform = torch.rand(302, generator=source)

    def fitted(*parts: torch.Tensor) -> GNG:
        model = GNG(GNGConfig(nodes=6, steps=len(parts[0]) - 2, insert_every=20), Known(200), SHAPES)
        for part in parts:
            model.fit({"x": x_BX, "y": y_B}, {"examples": part})
        return model

    start, first, second = uniform.split((2, 150, 150))
    at_once, in_two = fitted(uniform), fitted(torch.cat([start, first]), torch.cat([start, second]))
    assert at_once.step == in_two.step == 300
    for name in ("positions_ME", "errors_M", "ages_MM", "means_ME"):
        torch.testing.assert_close(in_two.get_buffer(name), at_once.get_buffer(name), rtol=1e-4, atol=1e-5)


def test_nodes_follow_three_branches() -> None:
    """A quarter of the steps of the sweep."""
    config = resolve({"method": "gmje_gng", "steps": 5000, "examples": 1500, "epochs": 1})
    cohort = TrainingCohort([config], HERE, torch.device("cpu"), None)
    cohort.epoch(0)
    metrics = cohort.evaluate(last=True)
    assert metrics["branches"] > 0.98 and metrics["nll_excess"] < 0.2 and 0.04 < metrics["sigma_mean"] < 0.06


def _gmje_mdn_pairs_model(**options: Any) -> MDNPairs:
    torch.manual_seed(0)
    return MDNPairs(MDNPairsConfig(**{"starts": 1, **options}), Known(), SHAPES)


def test_the_loss_is_the_mean_negative_log_density_of_the_predicted_mixture() -> None:
    model, x_BX, y_B = _gmje_mdn_pairs_model(), torch.tensor([[-0.5], [0.0], [0.8]]), torch.tensor([0.3, -1.0, 0.5])
    log_weights, means, sigmas = (values.detach().double().numpy() for values in model.predict(x_BX))
    density_B = (np.exp(log_weights) * norm.pdf(y_B.numpy()[:, None], means, sigmas)).sum(1)
    loss = model.losses({"x": x_BX, "y": y_B}, {}).total.item()
    assert loss == pytest.approx(-np.log(density_B).mean(), rel=1e-5)
    assert np.exp(log_weights).sum(1) == pytest.approx(1.0)


def test_means_start_at_quantiles_of_the_targets() -> None:
    model = _gmje_mdn_pairs_model(components=4)
    for bias_O in model.heads.bias_R1O[:, 0]:
        assert bias_O[4:8].tolist() == pytest.approx([-0.75, -0.25, 0.25, 0.75])


@pytest.mark.parametrize(
    ("initial_floor", "floors"), [(0.3, [0.3, 0.2, 0.1, 0.05, 0.05]), (0.0, [0.05] * 5), (0.01, [0.05] * 5)]
)
def test_the_floor_falls_linearly_and_stays(initial_floor: float, floors: list[float]) -> None:
    model, seen = _gmje_mdn_pairs_model(initial_floor=initial_floor, sigma_floor=0.05), []
    for _ in range(5):
        seen.append(model.floor().item())
        assert model.predict(torch.zeros(1, 1)).sigmas_BM.min() > seen[-1]
        model.after_step({})
    assert seen == pytest.approx(floors)


@pytest.mark.parametrize("epochs", [4, 30])
def test_the_floor_has_fallen_after_half_of_a_training_of_any_length(epochs: int) -> None:
    """So the largest deviation at the end does not depend on a number of steps that the trial does not have."""
    config = resolve({"method": "gmje_mdn_pairs", "examples": 40, "batch_size": 20, "epochs": epochs})
    cohort, floors = TrainingCohort([config], HERE, torch.device("cpu"), None), []
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
    model, source = _gmje_mdn_pairs_model(starts=3, width=8, initial_floor=0.0), torch.Generator().manual_seed(1)
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


@pytest.mark.slow
def test_it_finds_three_branches() -> None:
    """In a quarter of the steps of the sweep, on small batches, already nearly everywhere. A Gaussian is 1.6 nats from
    the true density, and finds a fifth of the branches."""
    config = resolve(
        {
            "method": "gmje_mdn_pairs", "examples": 800, "batch_size": 100, "epochs": 40,
            "optimiser": "adam", "lr": 0.01, "width": 32, "starts": 2,
        }
    )  # fmt: skip
    cohort = TrainingCohort([config], HERE, torch.device("cpu"), None)
    for epoch in range(40):
        cohort.epoch(epoch)
    metrics = cohort.evaluate(last=True)
    assert metrics["branches"] > 0.85 and metrics["nll_excess"] < 0.8 and metrics["pi_error"] < 0.06
    assert 0.04 < metrics["sigma_mean"] < 0.12


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
    cohort = TrainingCohort([config], HERE, torch.device("cpu"), None)
    for epoch in range(12):
        cohort.epoch(epoch)
    metrics = cohort.evaluate(last=True)
    assert metrics["nll_excess"] > 1.3 and metrics["energy_distance_point"] > 0.3 and metrics["branches"] < 0.5
    assert metrics["sigma_mean"] == pytest.approx(0.595, abs=0.05)


INF = np.inf


def _graph() -> Graph:
    """Four nodes: 0 and 1 are connected, and so are 0 and 2; 3 does not exist."""
    graph = Graph.started(np.array([[0.0, 0.0], [1.0, 0.0]]), 4)
    graph.positions_ME[2] = (0.0, 2.0)
    for first, second, age in ((0, 1, 3.0), (0, 2, 5.0)):
        graph.ages_MM[first, second] = graph.ages_MM[second, first] = age
    graph.errors_M[:] = (1.0, 0.5, 4.0, 0.0)
    return graph


def test_a_step_by_hand() -> None:
    """The pair (0.4, 0) is nearest to node 0, then to node 1. Node 0 moves by a tenth of 0.4, and both neighbours by a
    hundredth of their distances. The edge to node 1 is renewed; that to node 2 becomes 6 epochs old and stays."""
    graph = _graph()
    graph.adapt(np.array([0.4, 0.0]), eps_b=0.1, eps_n=0.01, max_age=6)
    assert graph.errors_M == pytest.approx([1.16, 0.5, 4.0, 0.0])
    assert graph.positions_ME[:3] == pytest.approx(np.array([[0.04, 0.0], [0.994, 0.0], [0.004, 1.98]]))
    expected = np.full((4, 4), INF)
    expected[0, 1] = expected[1, 0] = 0
    expected[0, 2] = expected[2, 0] = 6
    assert np.array_equal(graph.ages_MM, expected) and graph.step == 1
    assert graph.exists_M.tolist() == [True, True, True, False]


def test_an_edge_too_old_is_removed_with_the_node_that_it_leaves_alone() -> None:
    graph = _graph()
    graph.adapt(np.array([0.4, 0.0]), eps_b=0.1, eps_n=0.01, max_age=5)
    assert graph.exists_M.tolist() == [True, True, False, False] and graph.errors_M[2] == 0
    assert np.isinf(graph.ages_MM[2]).all() and np.isinf(graph.ages_MM[:, 2]).all()


def test_an_edge_between_the_two_nearest_is_made() -> None:
    graph = _graph()
    graph.adapt(np.array([0.6, 1.1]), eps_b=0.0, eps_n=0.0, max_age=50)
    assert graph.ages_MM[2, 1] == graph.ages_MM[1, 2] == 0 and graph.ages_MM[0, 2] == 6


def test_a_node_is_inserted_between_the_worst_and_its_worst_neighbour() -> None:
    graph = _graph()
    graph.insert(alpha=0.5)
    assert graph.positions_ME[3].tolist() == [0.0, 1.0]
    assert graph.errors_M.tolist() == [0.5, 0.5, 2.0, 2.0]
    connected = {(a, b) for a, b in zip(*np.nonzero(np.isfinite(graph.ages_MM)), strict=True) if a < b}
    assert connected == {(0, 1), (2, 3), (0, 3)} and graph.ages_MM[3, 0] == graph.ages_MM[2, 3] == 0
    graph.insert(alpha=0.5)  # there is room for four
    assert graph.errors_M.tolist() == [0.5, 0.5, 2.0, 2.0]


def test_components_are_the_gaussians_of_the_pairs_nearest_to_each_node() -> None:
    pairs_BE = np.array([[0.0, 0.1], [0.0, -0.1], [0.2, 0.0], [1.0, 0.0]])
    weights_M, means_ME, covariances_MEE = _graph().mixture(pairs_BE, jitter=0.01)
    assert weights_M.tolist() == [0.75, 0.25, 0.0, 0.0]
    assert means_ME[0] == pytest.approx(pairs_BE[:3].mean(0)) and means_ME[1].tolist() == [1.0, 0.0]
    assert covariances_MEE[0] == pytest.approx(np.cov(pairs_BE[:3].T, bias=True) + 0.01 * np.eye(2))
    assert covariances_MEE[1] == pytest.approx(0.01 * np.eye(2)) and np.array_equal(covariances_MEE[3], np.eye(2))
