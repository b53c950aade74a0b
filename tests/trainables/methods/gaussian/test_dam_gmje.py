"""DaM-GMJE compared with scipy's densities and with InfoNCE, in float64.

Shapes: B images, P dimensions of the projection.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, logsumexp

from tests.trainables.methods.plain import (
    B,
    Constant,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    unit,
    unit_projections,
)
from trainables.methods.gaussian.dam_gmje import DaMGMJE
from trainables.methods.gaussian.dam_gmje import DaMGMJEConfig as Config

P = 3


def _model(**changes: Any) -> DaMGMJE:
    return built(DaMGMJE, Config(**{"projector_width": 8, "projection": P, **changes}))


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_with_its_own_mode_in_the_numerator_the_loss_is_info_nce(tau: float) -> None:
    """The cross-entropy of the cosines over tau, a mean of both ways."""
    model = _model(tau=tau)
    first, second = unit_projections(model)
    both = [log_softmax(x @ y.T / tau, axis=1).diagonal() for x, y in ((first, second), (second, first))]
    assert loss_of(model).item() == pytest.approx(-np.mean(both), rel=1e-5)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_with_all_modes_it_is_the_conditional_density(tau: float) -> None:
    """The joint density over the marginal one, without `log(2 pi tau)`."""
    model = _model(tau=tau, numerator="all")
    total = 0.0
    for context, target in (unit_projections(model), unit_projections(model)[::-1]):
        near = np.stack([stats.multivariate_normal(mode, tau).logpdf(context) for mode in target], axis=1)
        joint = near + np.stack([stats.multivariate_normal(mode, tau).logpdf(target) for mode in target], axis=1)
        log_density = logsumexp(joint, axis=1) - logsumexp(near, axis=1)
        total -= log_density.mean() / 2 + P / 4 * np.log(2 * np.pi * tau)
    assert loss_of(model).item() == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_all_images_in_one_place_are_the_best_of_the_exact_density_and_the_worst_of_info_nce() -> None:
    """The exact loss is at least 0, and 0 there; InfoNCE is log B there, which is chance."""
    losses = {
        (encoder, numerator): loss_of(
            built(DaMGMJE, Config(projector_width=0, tau=0.5, numerator=numerator), **encoders)
        ).item()
        for encoder, encoders in {"one": {"encoder": Constant}, "spread": {}}.items()
        for numerator in ("matching", "all")
    }
    assert losses["one", "all"] == pytest.approx(0, abs=1e-6) and losses["spread", "all"] > 0.1
    assert losses["one", "matching"] == pytest.approx(np.log(B), rel=1e-6)


def _concentration(numerator: str) -> float:
    """Length of the mean embedding of the first view, after a training of the embeddings themselves."""
    model = built(DaMGMJE, Config(projector_width=0, tau=1.0, numerator=numerator))
    optimiser = torch.optim.Adam([model.encoder.get_parameter("rows")], lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    return float(np.linalg.norm(unit(rows_of(model)[0]).mean(0)))


def test_trained_on_the_exact_density_images_become_one_and_on_info_nce_they_do_not() -> None:
    assert _concentration("all") > 0.99 and _concentration("matching") < 0.2


def test_both_views_have_gradients_and_are_alike() -> None:
    for numerator in ("matching", "all"):
        model = _model(numerator=numerator, tau=0.5)
        assert (gradient_of_rows(model, loss_of(model)).abs().amax(-1) > 1e-6).all()
        assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model).item(), rel=1e-4)
