"""The particle bank, and the losses and weights of both forms of SMC-GMJE, compared with scipy's densities and with
loops over particles in float64.

Shapes: B images, P dimensions of the projection, J = 2P, M particles of the bank, S = M + B particles of the pool.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    batch_of,
    built,
    gradient_of_rows,
    rows_of,
    through,
    unit,
)
from trainables.losses.particles import RESAMPLERS
from trainables.losses.similarity import info_nce
from trainables.methods.gaussian.smc_gmje import SMCGMJE, SMCGMJEConfig
from trainables.methods.gaussian.smc_joint_gmje import JointSMCGMJE, JointSMCGMJEConfig

M, P = 7, 3


def _config(**changes: Any) -> SMCGMJEConfig:
    return SMCGMJEConfig(**{"bank": M, "projector_width": 8, "projection": P, **changes})


def _scattered(config: SMCGMJEConfig) -> SMCGMJE:
    """A model whose key encoder differs from the query encoder."""
    model = built(SMCGMJE, config)
    with torch.no_grad():
        for buffer in model.keys.buffers():
            if buffer.is_floating_point():
                buffer.add_(0.3 * torch.randn(buffer.shape, generator=torch.Generator().manual_seed(1)))
    return model


def _uniforms(model: SMCGMJE, seed: int = 0) -> dict[str, Tensor]:
    (declared,) = model.noise(B).values()
    assert declared.kind == "uniform" and declared.batch_dim is None
    return {"resampling": torch.rand(declared.shape, generator=torch.Generator().manual_seed(seed))}


def _queries_and_pool(model: SMCGMJE) -> tuple[Array, Array]:
    """Unit vectors: queries of the first view `[B, P]`, and the bank before the keys of the second view `[S, P]`."""
    keys = model.keys.network
    assert isinstance(keys, nn.Sequential)
    key_rows = keys[0].get_buffer("rows").view(2, B, -1)[1].double().numpy()
    query = unit(through(model.projector, rows_of(model)[0]))
    return query, np.concatenate([model.bank_MP.double().numpy(), unit(through(keys[1], key_rows))])


def _weights(query: Array, pool: Array, tau: float) -> Array:
    """Normalised weights of the pool, Eqs. 32 and 33."""
    weights = np.array([sum(math.exp(q @ z / tau) for q in query) for z in pool])
    return weights / weights.sum()


@for_each("tau", [0.07, 0.2, 1.0])
@for_each("width", [8, 0])
def test_loss_is_info_nce_against_keys_and_bank(tau: float, width: int) -> None:
    """Queries are of the first view, keys of the second and by the key encoder; negatives the bank as it was."""
    model = _scattered(_config(tau=tau, projector_width=width))
    query, pool = _queries_and_pool(model)
    total = 0.0
    for i in range(B):
        own = math.exp(query[i] @ pool[M + i] / tau)
        total -= math.log(own / (own + sum(math.exp(query[i] @ z / tau) for z in pool[:M])))
    assert model.losses(BATCH, _uniforms(model)).total.item() == pytest.approx(total / B, rel=1e-5)


def test_loss_is_mocos() -> None:
    model = _scattered(_config(tau=0.3))
    query, pool = _queries_and_pool(model)
    expected = info_nce(torch.tensor(query), torch.tensor(pool[M:]), torch.tensor(pool[:M]), 0.3).mean()
    assert model.losses(BATCH, _uniforms(model)).total.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("tau", [0.05, 0.5, 100.0])
def test_ess_is_that_of_the_pools_weights(tau: float) -> None:
    """From few, where queries resemble few particles, to all M + B of them."""
    model = _scattered(_config(tau=tau))
    weights = _weights(*_queries_and_pool(model), tau)
    actual = model.losses(BATCH, _uniforms(model)).parts["ess"].item()
    assert actual == pytest.approx(1 / (weights**2).sum(), rel=1e-4) and 1 <= actual <= (M + B) * (1 + 1e-5)
    assert tau != 100.0 or actual == pytest.approx(M + B, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_next_bank_is_drawn_from_the_pool_by_weight(seed: int) -> None:
    """Multinomial: each uniform takes the particle at which the cumulative weights exceed it. Systematic: the M steps
    of one uniform do."""
    for resampling in ("multinomial", "systematic"):
        model = _scattered(_config(tau=0.5, resampling=resampling))
        query, pool = _queries_and_pool(model)
        noise = _uniforms(model, seed)
        uniforms = noise["resampling"].double().numpy()
        if resampling == "systematic":
            uniforms = (np.arange(M) + uniforms[0]) / M
        cumulative = np.cumsum(_weights(query, pool, 0.5))
        expected = [pool[next(s for s in range(M + B) if cumulative[s] > u)] for u in uniforms]
        model.losses(BATCH, noise)
        torch.testing.assert_close(model.bank_MP.double(), torch.tensor(np.array(expected)), rtol=1e-5, atol=1e-6)
        assert len(uniforms) == M


def _check_copies_and_ages(
    model_of: Callable[[str], Any], rows: Callable[[Any], Tensor], bank: Callable[[Any], Tensor], uniforms: Any
) -> None:
    """A vector that the bank did not have before is new; equal vectors are copies. Views change between the steps.

    `model_of` makes a model that resamples in a way, whose encoder has these `rows` and whose bank is `bank`."""
    shares, ages = list[float](), list[int]()
    for resampling in RESAMPLERS:
        model = model_of(resampling)
        born = {row.tobytes(): 0 for row in bank(model).numpy()}
        for step in range(1, 9):
            with torch.no_grad():
                changed = rows(model)
                changed.add_(torch.randn(changed.shape, generator=torch.Generator().manual_seed(step)))
            parts = model.losses(BATCH, uniforms(model, step)).parts
            vectors = bank(model).numpy()
            born = {row.tobytes(): born.get(row.tobytes(), step) for row in vectors}
            shares.append(len(np.unique(vectors, axis=0)) / M)
            assert parts["bank_distinct"].item() == pytest.approx(shares[-1])
            ages += [step - born[row.tobytes()] for row in vectors]
            assert parts["bank_age"].item() == pytest.approx(np.mean(ages[-M:]))
    assert min(shares) < 1 and max(ages) > 1


def test_copies_and_ages_are_those_of_the_vectors_in_the_bank() -> None:
    _check_copies_and_ages(
        lambda resampling: _scattered(_config(tau=0.5, resampling=resampling)),
        lambda model: model.keys.network.get_buffer("0.rows"),
        lambda model: model.bank_MP,
        _uniforms,
    )


def test_particles_that_queries_resemble_stay() -> None:
    """With a small temperature, those opposite to all queries die out."""
    model = _scattered(_config(tau=0.02))
    query, _ = _queries_and_pool(model)
    model.bank_MP.copy_(torch.tensor(-unit(query.mean(0, keepdims=True))).expand(M, P))
    with torch.no_grad():  # keys become the queries themselves
        model.keys.update(nn.Sequential(model.encoder, model.projector), torch.tensor(0.0))
    opposite = model.bank_MP[0].clone()
    model.losses(batch_of(0, 0), _uniforms(model))
    assert (model.bank_MP @ opposite).max() < 0.99


def test_gradients_reach_queries_alone() -> None:
    model = _scattered(_config())
    loss = model.losses(BATCH, _uniforms(model)).total
    first, second = gradient_of_rows(model, loss)
    assert first.abs().max() > 1e-5 and torch.equal(second, torch.zeros_like(second))
    assert all(
        gradient.abs().max() > 1e-4 for gradient in torch.autograd.grad(loss, list(model.projector.parameters()))
    )
    assert not any(buffer.requires_grad for buffer in model.buffers())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "projector"}


@for_each("resampling", RESAMPLERS)
@for_each("bank", [1, B, 4 * B])
def test_particles_have_unit_length_from_the_start(resampling: str, bank: int) -> None:
    model = built(SMCGMJE, _config(bank=bank, resampling=resampling))
    for _ in range(3):
        assert model.bank_MP.shape == (bank, P)
        torch.testing.assert_close(model.bank_MP.norm(dim=-1), torch.ones(bank))
        model.losses(BATCH, _uniforms(model))


@pytest.mark.parametrize("ema", [0.0, 0.5, 1.0])
def test_key_encoder_follows_the_query_encoder(ema: float) -> None:
    model = _scattered(_config(ema=ema))
    before = {name: buffer.clone() for name, buffer in model.keys.network.named_buffers()}
    bank = model.bank_MP.clone()
    model.after_step(NO_NOISE)
    after = dict(model.keys.network.named_buffers())
    for name, weight in nn.Sequential(model.encoder, model.projector).named_parameters():
        assert torch.equal(after[name], ema * before[name] + (1 - ema) * weight.detach()), name
    assert torch.equal(model.bank_MP, bank)


def _model(**changes: Any) -> JointSMCGMJE:
    """A model whose covariance, if it is learned, is not isotropic."""
    small = {"bank": M, "projector_width": 8, "projection": P, "tau": 0.4, "epsilon": 0.01}
    model = built(JointSMCGMJE, JointSMCGMJEConfig(**{**small, **changes}))
    if model.config.learned:
        with torch.no_grad():
            model.raw_factor_JJ.add_(0.3 * torch.randn(2 * P, 2 * P, generator=torch.Generator().manual_seed(1)))
    return model


def _joint_uniforms(model: JointSMCGMJE, seed: int = 0) -> dict[str, Tensor]:
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


def _joint_weights(log_densities: Array) -> Array:
    """Of each particle as much as the batch holds it responsible, `sum_i N(Z_i; Z_m, S)`, normalised."""
    sums = np.exp(log_densities).sum(0)
    return sums / sums.sum()


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(("weight", "alignment", "ema"), [(0.0, 0.0, 0.0), (1.0, 2.0, 0.9)])
def test_loss_is_the_nll_under_the_weighted_bank(learned: bool, weight: float, alignment: float, ema: float) -> None:
    model = _model(learned=learned, entropy_weight=weight, alignment_weight=alignment, ema=ema)
    joint, log_densities = _joint(model), _log_densities(model, model.bank_MJ.double().numpy())
    nll = -logsumexp(np.log(_joint_weights(log_densities)) + log_densities, axis=1).mean() - P * np.log(2 * np.pi)
    if not learned:  # without the volume
        nll -= P * np.log(model.config.tau)
    moment = ema * np.eye(2 * P) / P + (1 - ema) * joint.T @ joint / B
    entropy = np.log(np.linalg.eigvalsh(moment) + 0.01).sum() / 2
    distance = ((joint[:, :P] - joint[:, P:]) ** 2).sum(-1).mean()
    total, parts = model.losses(BATCH, _joint_uniforms(model))
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
    weights, noise = _joint_weights(_log_densities(model, pool)), _joint_uniforms(model, seed)
    uniforms = noise["resampling"].double().numpy()
    if resampling == "systematic":
        uniforms = (np.arange(M) + uniforms[0]) / M
    expected = [pool[next(s for s in range(M + B) if np.cumsum(weights)[s] > u)] for u in uniforms]
    parts = model.losses(BATCH, noise).parts
    torch.testing.assert_close(model.bank_MJ.double(), torch.tensor(np.array(expected)), rtol=1e-5, atol=1e-6)
    assert parts["ess"].item() == pytest.approx(1 / (weights**2).sum(), rel=1e-4) and len(uniforms) == M


def test_copies_and_ages_are_those_of_the_vectors_in_the_joint_bank() -> None:
    _check_copies_and_ages(
        lambda resampling: _model(resampling=resampling),
        lambda model: model.encoder.get_parameter("rows"),
        lambda model: model.bank_MJ,
        _joint_uniforms,
    )


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
    responsible = _joint_weights(log_densities) * np.exp(log_densities)
    responsible /= responsible.sum(1, keepdims=True)
    expected = (rows.detach().numpy() - responsible @ bank) / 0.4 / B
    np.testing.assert_allclose(slope.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_gradients_reach_both_views_and_the_covariance_but_no_particle() -> None:
    model = _model()
    loss = model.losses(BATCH, _joint_uniforms(model)).total
    assert (gradient_of_rows(model, loss).abs().amax(-1) > 1e-5).all()
    (slope,) = torch.autograd.grad(loss, model.raw_factor_JJ)
    assert slope.abs().max() > 1e-4 and not any(buffer.requires_grad for buffer in model.buffers())
