"""General SMC-GMJE compared with scipy's densities and with loops over particles, in float64.

Shapes: B images, P dimensions of the projection, J = 2P, M particles of the bank.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from tests.trainables.methods.plain import BATCH, Array, B, built, gradient_of_rows, rows_of, through, unit
from trainables.methods.gaussian.smc_joint_gmje import JointSMCGMJE
from trainables.methods.gaussian.smc_joint_gmje import JointSMCGMJEConfig as Config

M, P = 7, 3


def _model(**changes: Any) -> JointSMCGMJE:
    """A model whose covariance, if it is learned, is not isotropic."""
    small = {"bank": M, "projector_width": 8, "projection": P, "tau": 0.4, "epsilon": 0.01}
    model = built(JointSMCGMJE, Config(**{**small, **changes}))
    if model.config.learned:
        with torch.no_grad():
            model.raw_factor_JJ.add_(0.3 * torch.randn(2 * P, 2 * P, generator=torch.Generator().manual_seed(1)))
    return model


def _uniforms(model: JointSMCGMJE, seed: int = 0) -> dict[str, Tensor]:
    (declared,) = model.noise(B).values()
    assert declared.kind == "uniform" and declared.batch_dim is None
    return {"resampling": torch.rand(declared.shape, generator=torch.Generator().manual_seed(seed))}


def _joint(model: JointSMCGMJE) -> Array:
    return np.concatenate([unit(through(model.projector, view)) for view in rows_of(model)], axis=1)


def _covariance(model: JointSMCGMJE) -> Array:
    if not model.config.learned:
        return model.config.tau * np.eye(2 * P)
    raw = model.raw_factor_JJ.detach().double().numpy()
    factor = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
    return model.config.tau * factor @ factor.T


def _log_densities(model: JointSMCGMJE, particles: Array) -> Array:
    """`[B, particles]`, with all constants."""
    covariance = _covariance(model)
    return np.stack([stats.multivariate_normal(mean, covariance).logpdf(_joint(model)) for mean in particles], axis=1)


def _weights(log_densities: Array) -> Array:
    """Of each particle as much as the batch holds it responsible, `sum_i N(Z_i; Z_m, S)`, normalised."""
    sums = np.exp(log_densities).sum(0)
    return sums / sums.sum()


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(("weight", "alignment", "ema"), [(0.0, 0.0, 0.0), (1.0, 2.0, 0.9)])
def test_loss_is_the_nll_under_the_weighted_bank(learned: bool, weight: float, alignment: float, ema: float) -> None:
    model = _model(learned=learned, entropy_weight=weight, alignment_weight=alignment, ema=ema)
    joint, log_densities = _joint(model), _log_densities(model, model.bank_MJ.double().numpy())
    nll = -logsumexp(np.log(_weights(log_densities)) + log_densities, axis=1).mean() - P * np.log(2 * np.pi)
    if not learned:  # without the volume
        nll -= P * np.log(model.config.tau)
    moment = ema * np.eye(2 * P) / P + (1 - ema) * joint.T @ joint / B
    entropy = np.log(np.linalg.eigvalsh(moment) + 0.01).sum() / 2
    distance = ((joint[:, :P] - joint[:, P:]) ** 2).sum(-1).mean()
    total, parts = model.losses(BATCH, _uniforms(model))
    assert parts["nll"].item() == pytest.approx(nll, rel=1e-4, abs=1e-5)
    assert parts["entropy"].item() == pytest.approx(entropy, rel=1e-4)
    assert parts["alignment"].item() == pytest.approx(distance, rel=1e-4)
    expected = nll - weight / (2 * P) / (1 - ema) * entropy + alignment * distance
    assert total.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("resampling", ["multinomial", "systematic"])
@pytest.mark.parametrize("seed", range(2))
def test_the_next_bank_is_drawn_from_bank_and_batch_by_weight(resampling: str, seed: int) -> None:
    model = _model(resampling=resampling)
    pool = np.concatenate([model.bank_MJ.double().numpy(), _joint(model)])
    weights, noise = _weights(_log_densities(model, pool)), _uniforms(model, seed)
    uniforms = noise["resampling"].double().numpy()
    if resampling == "systematic":
        uniforms = (np.arange(M) + uniforms[0]) / M
    expected = [pool[next(s for s in range(M + B) if np.cumsum(weights)[s] > u)] for u in uniforms]
    parts = model.losses(BATCH, noise).parts
    torch.testing.assert_close(model.bank_MJ.double(), torch.tensor(np.array(expected)), rtol=1e-5, atol=1e-6)
    assert parts["ess"].item() == pytest.approx(1 / (weights**2).sum(), rel=1e-4) and len(uniforms) == M


def test_copies_and_ages_are_those_of_the_vectors_in_the_bank() -> None:
    """A vector that the bank did not have before is new; equal vectors are copies. Views change between the steps."""
    shares, ages = list[float](), list[int]()
    for resampling in ("multinomial", "systematic"):
        model = _model(resampling=resampling)
        born = {row.tobytes(): 0 for row in model.bank_MJ.numpy()}
        for step in range(1, 9):
            rows = model.encoder.get_parameter("rows")
            with torch.no_grad():
                rows.add_(torch.randn(rows.shape, generator=torch.Generator().manual_seed(step)))
            parts = model.losses(BATCH, _uniforms(model, step)).parts
            bank = model.bank_MJ.numpy()
            born = {row.tobytes(): born.get(row.tobytes(), step) for row in bank}
            shares.append(len(np.unique(bank, axis=0)) / M)
            assert parts["bank_distinct"].item() == pytest.approx(shares[-1])
            ages += [step - born[row.tobytes()] for row in bank]
            assert parts["bank_age"].item() == pytest.approx(np.mean(ages[-M:]))
    assert min(shares) < 1 and max(ages) > 1


def test_images_are_pulled_to_particles_by_responsibility() -> None:
    """Of the embeddings, and not of the weights of the mixture or of the particles, the nll has gradients:
    `sum_m r (Z - Z_m) / (tau B)`, before the projection onto the sphere."""
    model = _model(learned=False)
    rows = torch.tensor(_joint(model), requires_grad=True)
    bank = model.bank_MJ.double().numpy()
    model.double()
    nll, _ = model._nll(rows)
    (slope,) = torch.autograd.grad(nll, rows)
    log_densities = _log_densities(model, bank)
    responsible = _weights(log_densities) * np.exp(log_densities)
    responsible /= responsible.sum(1, keepdims=True)
    expected = (rows.detach().numpy() - responsible @ bank) / 0.4 / B
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_gradients_reach_both_views_and_the_covariance_but_no_particle() -> None:
    model = _model()
    loss = model.losses(BATCH, _uniforms(model)).total
    assert (gradient_of_rows(model, loss).abs().amax(-1) > 1e-5).all()
    (slope,) = torch.autograd.grad(loss, model.raw_factor_JJ)
    assert slope.abs().max() > 1e-4 and not any(buffer.requires_grad for buffer in model.buffers())
