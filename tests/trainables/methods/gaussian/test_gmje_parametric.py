"""Parametric GMJE and DaM-GMJE compared with scipy's densities, and DaM-GMJE with InfoNCE, in float64.

Shapes: B images, P dimensions of the projection, J = 2P of a joint embedding, M prototypes.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, logsumexp

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    Constant,
    built,
    gradient_of_rows,
    loss_of,
    rows_of,
    through,
    unit,
    unit_projections,
)
from trainables.methods.gaussian.dam_gmje import DaMGMJE, DaMGMJEConfig
from trainables.methods.gaussian.gmje_parametric import ParametricGMJE, ParametricGMJEConfig

M, P = 5, 3


def _model(**changes: Any) -> ParametricGMJE:
    """A model whose prototypes have neither equal weights nor equal covariances."""
    model = built(
        ParametricGMJE, ParametricGMJEConfig(**{"projector_width": 8, "projection": P, "prototypes": M, **changes})
    )
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("logits", "raw")):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=source))
    return model


def _joint(model: ParametricGMJE) -> Array:
    return np.concatenate([unit(through(model.projector, view)) for view in rows_of(model)], axis=1)


def _covariances(model: ParametricGMJE) -> list[Array]:
    """Those of the components, `[J, J]` each."""
    tau = model.config.tau
    if model.config.covariance == "shared":
        return [tau * np.eye(2 * P)] * M
    covariances = []
    for raw in model.raw_factors_MJJ.detach().double().numpy():
        factor = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
        covariances.append(tau * factor @ factor.T)
    return covariances


def _nll(model: ParametricGMJE, joint: Array) -> float:
    """Without `log(2 pi)`, and where covariances are shared without their volume."""
    prototypes = unit(model.prototypes.detach().double().numpy())
    logits = model.logits_M.detach().double().numpy()
    log_densities = []
    for mean, covariance, logit in zip(prototypes, _covariances(model), logits, strict=True):
        location = np.concatenate([mean[0], mean[-1]])
        density = stats.multivariate_normal(location, covariance).logpdf(joint) + P * np.log(2 * np.pi)
        if model.config.covariance == "shared":
            density = density + P * np.log(model.config.tau)
        log_densities.append(density + logit - logsumexp(logits))
    return float(-logsumexp(log_densities, axis=0).mean())


@for_each("covariance", ["shared", "component"])
@for_each("tied", [False, True])
@for_each(("weight", "alignment", "ema"), [(0.0, 0.0, 0.0), (1.0, 2.0, 0.9)])
def test_loss_is_the_mixtures_nll_minus_weighted_entropy(
    covariance: str, tied: bool, weight: float, alignment: float, ema: float
) -> None:
    options = {"entropy_weight": weight, "alignment_weight": alignment, "ema": ema, "tau": 0.4, "epsilon": 0.01}
    model = _model(covariance=covariance, tied=tied, **options)
    joint = _joint(model)
    total, parts = model.losses(BATCH, NO_NOISE)
    nll, distance = _nll(model, joint), ((joint[:, :P] - joint[:, P:]) ** 2).sum(-1).mean()
    moment = ema * np.eye(2 * P) / P + (1 - ema) * joint.T @ joint / B
    entropy = np.log(np.linalg.eigvalsh(moment) + 0.01).sum() / 2
    assert parts["nll"].item() == pytest.approx(nll, rel=1e-4)
    assert parts["entropy"].item() == pytest.approx(entropy, rel=1e-4)
    assert parts["alignment"].item() == pytest.approx(distance, rel=1e-4)
    expected = nll - weight / (2 * P) / (1 - ema) * entropy + alignment * distance
    assert total.item() == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(model.moment_JJ.double(), torch.tensor(moment), rtol=1e-4, atol=1e-6)


def test_a_tied_prototype_is_one_point_for_both_views() -> None:
    tied, free = _model(tied=True).means_MJ.view(M, 2, P), _model().means_MJ.view(M, 2, P)
    assert torch.equal(tied[:, 0], tied[:, 1]) and not torch.allclose(free[:, 0], free[:, 1])
    for means in (tied, free):
        torch.testing.assert_close(means.norm(dim=-1), torch.ones(M, 2))


def test_component_covariances_start_as_the_shared_one() -> None:
    """Their losses differ by the volume alone, which the shared form leaves out."""
    totals = {}
    for covariance in ("shared", "component"):
        model = built(ParametricGMJE, ParametricGMJEConfig(projection=P, prototypes=M, tau=0.4, covariance=covariance))
        totals[covariance] = loss_of(model).item()
    assert totals["component"] - totals["shared"] == pytest.approx(P * np.log(0.4), rel=1e-4)


def test_gradients_by_the_logits_are_weights_minus_mean_responsibilities() -> None:
    model = _model(tau=0.4)
    joint = torch.tensor(_joint(model))
    distances = torch.cdist(joint, model.means_MJ.detach().double()).square()
    logits = model.logits_M.detach().double()
    expected = logits.softmax(-1) - (logits - distances / 0.8).softmax(-1).mean(0)
    (actual,) = torch.autograd.grad(loss_of(model), model.logits_M)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-6)


def test_an_average_does_not_weaken_the_entropys_gradient() -> None:
    """At a stationary moment, the gradient is the one without an average."""
    gradients = []
    for ema in (0.0, 0.99):
        model = _model(ema=ema, epsilon=0.1)
        joint = _joint(model)
        model.moment_JJ.copy_(torch.tensor(joint.T @ joint / B))
        gradients.append(gradient_of_rows(model, loss_of(model)))
    assert (gradients[0].abs().amax(-1) > 1e-4).all()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)


def _concentration(weight: float) -> float:
    """Length of the mean of the joint embeddings, over their own, after a training of everything."""
    model = _model(tau=0.5, ema=0.5, entropy_weight=weight)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    return float(np.linalg.norm(_joint(model).mean(0)) / np.sqrt(2))


@pytest.mark.slow
def test_without_the_entropy_all_images_become_one() -> None:
    assert _concentration(0.0) > 0.99
    assert _concentration(20.0) < 0.8


DAM_P = 3


def _dam_model(**changes: Any) -> DaMGMJE:
    return built(DaMGMJE, DaMGMJEConfig(**{"projector_width": 8, "projection": DAM_P, **changes}))


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_with_its_own_mode_in_the_numerator_the_loss_is_info_nce(tau: float) -> None:
    """The cross-entropy of the cosines over tau, a mean of both ways."""
    model = _dam_model(tau=tau)
    first, second = unit_projections(model)
    both = [log_softmax(x @ y.T / tau, axis=1).diagonal() for x, y in ((first, second), (second, first))]
    assert loss_of(model).item() == pytest.approx(-np.mean(both), rel=1e-5)


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_with_all_modes_it_is_the_conditional_density(tau: float) -> None:
    """The joint density over the marginal one, without `log(2 pi tau)`."""
    model = _dam_model(tau=tau, numerator="all")
    total = 0.0
    for context, target in (unit_projections(model), unit_projections(model)[::-1]):
        near = np.stack([stats.multivariate_normal(mode, tau).logpdf(context) for mode in target], axis=1)
        joint = near + np.stack([stats.multivariate_normal(mode, tau).logpdf(target) for mode in target], axis=1)
        log_density = logsumexp(joint, axis=1) - logsumexp(near, axis=1)
        total -= log_density.mean() / 2 + DAM_P / 4 * np.log(2 * np.pi * tau)
    assert loss_of(model).item() == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_all_images_in_one_place_are_the_best_of_the_exact_density_and_the_worst_of_info_nce() -> None:
    """The exact loss is at least 0, and 0 there; InfoNCE is log B there, which is chance."""
    losses = {
        (encoder, numerator): loss_of(
            built(DaMGMJE, DaMGMJEConfig(projector_width=0, tau=0.5, numerator=numerator), **encoders)
        ).item()
        for encoder, encoders in {"one": {"encoder": Constant}, "spread": {}}.items()
        for numerator in ("matching", "all")
    }
    assert losses["one", "all"] == pytest.approx(0, abs=1e-6) and losses["spread", "all"] > 0.1
    assert losses["one", "matching"] == pytest.approx(np.log(B), rel=1e-6)


def _dam_concentration(numerator: str) -> float:
    """Length of the mean embedding of the first view, after a training of the embeddings themselves."""
    model = built(DaMGMJE, DaMGMJEConfig(projector_width=0, tau=1.0, numerator=numerator))
    optimiser = torch.optim.Adam([model.encoder.get_parameter("rows")], lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    return float(np.linalg.norm(unit(rows_of(model)[0]).mean(0)))


@pytest.mark.slow
def test_trained_on_the_exact_density_images_become_one_and_on_info_nce_they_do_not() -> None:
    assert _dam_concentration("all") > 0.99 and _dam_concentration("matching") < 0.2


def test_both_views_have_gradients_and_are_alike() -> None:
    for numerator in ("matching", "all"):
        model = _dam_model(numerator=numerator, tau=0.5)
        assert (gradient_of_rows(model, loss_of(model)).abs().amax(-1) > 1e-6).all()
        assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model).item(), rel=1e-4)
