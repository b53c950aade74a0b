"""EM on pairs: it is scikit-learn's, its conditional density is scipy's, and a mixture that fails does so alone.

Shapes: B examples, M components.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture
from torch import Tensor

from tests.trainables.methods.pairs.known import SHAPES, Known
from trainables.data.pairs import draw_pairs
from trainables.learners.members import FittedMembers
from trainables.methods.pairs.gmje_em import EM, SEEDS, EMConfig


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
