"""Against a plain re-computation of the paper's equations: loops over images and dimensions, scipy, float64.

The model runs in float32, as it does when trained, and agrees to five digits.
"""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.plain import BATCH, VIEWS, B, D, batch_of, built, zeros_for
from trainables.contract import Noise
from trainables.losses.densities import directional_nll, gaussian_kl, radial_nll
from trainables.methods.variational.vje import TERMS, VJE
from trainables.methods.variational.vje import VJEConfig as Config

S = 5
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def _vje(config: Config) -> VJE:
    return built(VJE, config)


@pytest.fixture
def noise() -> dict[str, Tensor]:
    return {"posterior": torch.randn(2, B, D, generator=torch.Generator().manual_seed(1))}


def _directional(z: Vector, s: Vector, var: Vector, nu: float) -> float:
    """Eq. 24, word for word."""
    z_length, s_length = math.sqrt(sum(z**2)), math.sqrt(sum(s**2))
    q = sum((s[d] / s_length - z[d] / z_length) ** 2 / var[d] for d in range(D))
    half_log_det = 0.5 * sum(math.log(var[d]) for d in range(D))
    return (q / 2 if math.isinf(nu) else (nu + D) / 2 * math.log(1 + q / nu)) + half_log_det


def _radial(z: Vector, s: Vector, nu: float) -> float:
    """Eq. 29 as the density of scipy at the difference, less that at zero."""
    difference = np.linalg.norm(z) - np.linalg.norm(s)
    law = stats.norm if math.isinf(nu) else stats.t(nu)
    return float(law.logpdf(0) - law.logpdf(difference))


def _arrays(model: VJE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z, mu and var as `[2, B, D]`."""
    z = model.encoder.get_parameter("rows").detach().view(2, B, D)
    mu, var = model.posterior(z)
    return z.double().numpy(), mu.detach().double().numpy(), var.detach().double().numpy()


def _plain_losses(model: VJE, noise: dict[str, Tensor], beta: float, nu: float) -> dict[str, float]:
    """Eq. 38 and its three parts."""
    z, mu, var = _arrays(model)
    parts = {"dir": 0.0, "rad": 0.0, "kl": 0.0}
    for i, j in ((0, 1), (1, 0)):
        for b in range(B):
            s = mu[i, b] + np.sqrt(var[i, b]) * noise["posterior"][i, b].numpy()
            parts["dir"] += _directional(z[j, b], s, var[i, b], nu) / (2 * B)
            parts["rad"] += _radial(z[j, b], s, nu) / (2 * B)
            for m, v in zip(mu[i, b], var[i, b], strict=True):
                parts["kl"] += 0.5 * (v + m**2 - 1 - math.log(v)) / (2 * B)
    return {**parts, "total": parts["dir"] + parts["rad"] + beta * parts["kl"]}


@pytest.mark.parametrize(("beta", "nu"), [(1.0, 3.0), (0.0, 0.25), (1.75, 20.0), (0.5, math.inf)])
def test_loss_is_equation_38(noise: dict[str, Tensor], beta: float, nu: float) -> None:
    model = _vje(Config(beta=beta, nu=nu, bottleneck=8))
    total, parts = model.losses(BATCH, noise)
    expected = _plain_losses(model, noise, beta, nu)
    actual = {**{name: part.item() for name, part in parts.items()}, "total": total.item()}
    assert actual == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert total.shape == () and all(part.shape == () for part in parts.values())


def test_posterior_explains_the_other_view_not_its_own(noise: dict[str, Tensor]) -> None:
    """Both views alike but for their order in the batch: only the right pairing tells."""
    model = _vje(Config(terms="rad", bottleneck=8))
    swapped = model.losses(batch_of(1, 0), {"posterior": noise["posterior"].flip(0)}).total
    assert swapped.item() == pytest.approx(model.losses(BATCH, noise).total.item(), rel=1e-5)
    own = model.losses(batch_of(0, 0), noise).total.item()
    assert own != pytest.approx(swapped.item(), rel=1e-3)


@pytest.mark.parametrize("terms", ["dir+rad", "dir", "rad"])
def test_no_gradient_reaches_the_encoder_through_the_target(noise: dict[str, Tensor], terms: str) -> None:
    """With a posterior that ignores its input, a gradient could reach the encoder through the target only."""
    model = _vje(Config(terms=terms, bottleneck=8))
    for head in (model.posterior.mu, model.posterior.raw_var):
        nn.init.zeros_(head.weight)
        nn.init.ones_(head.bias)
    model.losses(BATCH, noise).total.backward()
    rows, bias = model.encoder.get_parameter("rows").grad, model.posterior.mu.bias.grad
    assert rows is not None and torch.equal(rows, torch.zeros_like(rows))
    assert bias is not None and bias.abs().min() > 0


def test_gradient_of_the_encoder_is_that_of_its_own_branch(noise: dict[str, Tensor]) -> None:
    """Each view's embeddings move only to explain the other view's, which are constants."""
    model = _vje(Config(beta=0.5, bottleneck=8))
    rows = model.encoder.get_parameter("rows")
    (actual,) = torch.autograd.grad(model.losses(BATCH, noise).total, rows)
    for i in (0, 1):
        z = rows.detach().view(2, B, D)[i].requires_grad_()
        mu, var = model.posterior(z)
        target, s = rows.detach().view(2, B, D)[1 - i], mu + var.sqrt() * noise["posterior"][i]
        branch = directional_nll(target, s, var, 3.0) + radial_nll(target, s, 3.0) + 0.5 * gaussian_kl(mu, var)
        (expected,) = torch.autograd.grad(branch.sum() / (2 * B), z)
        torch.testing.assert_close(actual.view(2, B, D)[i], expected, rtol=1e-4, atol=1e-6)
        assert expected.abs().max() > 1e-3


SUBSETS = ["+".join(chosen) for count in (1, 2, 3) for chosen in itertools.permutations(TERMS, count)]
"""Every non-empty subset of the terms in every order: 3 + 6 + 6."""


@for_each("terms", SUBSETS)
def test_every_subset_is_the_sum_of_its_parts(noise: dict[str, Tensor], terms: str) -> None:
    config = Config(beta=0.3, nu=2.0, bottleneck=8)
    everything = _vje(config).losses(BATCH, noise).parts
    total, parts = _vje(replace(config, terms=terms)).losses(BATCH, noise)
    assert set(parts) == set(terms.split("+")) and set(parts) <= set(TERMS) == set(everything) <= set(VJE.loss_parts)
    assert all(torch.equal(part, everything[name]) for name, part in parts.items())
    weighted = [part.item() * (0.3 if name == "kl" else 1) for name, part in parts.items()]
    assert total.item() == pytest.approx(sum(weighted), rel=1e-6)


def test_order_of_terms_changes_nothing(noise: dict[str, Tensor]) -> None:
    one, other = (_vje(Config(terms=terms, bottleneck=8)).losses(BATCH, noise) for terms in ("dir+kl", "kl+dir"))
    assert torch.equal(one.total, other.total) and list(one.parts) == list(other.parts)


def _plain_scores(z: Vector, s: Vector, var: Vector, nu: float) -> dict[str, float]:
    directional, radial = _directional(z, s, var, nu), _radial(z, s, nu)
    entropy = float(stats.multivariate_normal(cov=np.diag(var)).entropy())
    return {"joint": directional + radial, "dir": directional, "rad": radial, "variance": sum(var), "entropy": entropy}


@pytest.mark.parametrize("nu", [0.5, 3.0, math.inf])
def test_scores_of_the_posterior_mean(nu: float) -> None:
    model = _vje(Config(nu=nu, bottleneck=8))
    assert model.score_noise(B) == {"posterior": Noise((0, B, D), batch_dim=1)}
    actual = model.score(VIEWS[0], zeros_for(model.score_noise(B)))
    z, mu, var = (array[0] for array in _arrays(model))
    assert tuple(actual) == VJE.scores
    for b in range(B):
        assert {name: value[b].item() for name, value in actual.items()} == pytest.approx(
            _plain_scores(z[b], mu[b], var[b], nu), rel=1e-4, abs=1e-5
        )
    assert all(value.shape == (B,) for value in actual.values())


def test_sampled_scores_are_means_over_samples() -> None:
    model = _vje(Config(nu=2.0, bottleneck=8, score_samples=S))
    assert model.score_noise(B) == {"posterior": Noise((S, B, D), batch_dim=1)}
    noise = torch.randn(S, B, D, generator=torch.Generator().manual_seed(2))
    actual = model.score(VIEWS[0], {"posterior": noise})
    z, mu, var = (array[0] for array in _arrays(model))
    for b in range(B):
        samples = [mu[b] + np.sqrt(var[b]) * noise[k, b].numpy() for k in range(S)]
        each = [_plain_scores(z[b], s, var[b], 2.0) for s in samples]
        for name, value in actual.items():
            assert value[b].item() == pytest.approx(np.mean([scores[name] for scores in each]), rel=1e-4, abs=1e-5)
    assert len({scores["joint"] for scores in each}) == S


def test_infinite_nu_trains_and_scores() -> None:
    model = _vje(Config(nu=math.inf, bottleneck=8))
    total = model.losses(BATCH, zeros_for(model.noise(B))).total
    gradients = torch.autograd.grad(total, list(model.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients) and model.nu.isinf()


def test_fusible_hyperparameters_are_scalar_buffers_that_the_loss_reads(noise: dict[str, Tensor]) -> None:
    config = Config(beta=0.25, nu=7.0, bottleneck=8)
    model, buffers = _vje(config), dict(_vje(config).named_buffers())
    assert set(buffers) == VJE.fusible == {"beta", "nu"}
    for name, other in (("beta", 2.0), ("nu", 0.5)):
        assert buffers[name].shape == () and buffers[name].item() == getattr(config, name)
        model.get_buffer(name).fill_(other)
        changes: dict[str, Any] = {name: other}
        config = replace(config, **changes)
        assert torch.equal(model.losses(BATCH, noise).total, _vje(config).losses(BATCH, noise).total)
    scores, others = (scored.score(VIEWS[0], zeros_for(model.score_noise(B))) for scored in (model, _vje(config)))
    assert torch.equal(scores["joint"], others["joint"])


def test_noise_is_the_only_source_of_chance(noise: dict[str, Tensor]) -> None:
    model = _vje(Config(bottleneck=8))
    assert model.noise(B) == {"posterior": Noise((2, B, D), batch_dim=1)}
    first = model.losses(BATCH, noise).total
    assert torch.equal(first, model.losses(BATCH, noise).total)
    assert not torch.equal(first, model.losses(BATCH, {"posterior": noise["posterior"] + 0.1}).total)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("dir+kll", "no terms 'kll' (did you mean 'kl'?); there are: dir, rad, kl"),
        ("", "no terms ''; there are: dir, rad, kl"),
        ("dir+", "no terms ''; there are: dir, rad, kl"),
        ("dir+kl+dir", "each of the terms must be named once, but got terms=dir+kl+dir"),
    ],
)
def test_terms_are_a_set_of_those_that_exist(terms: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Config(terms=terms)
    assert str(error.value) == message


def test_edges_of_the_ranges_are_allowed() -> None:
    config = Config(beta=0.0, nu=math.inf, bottleneck=1, projector_width=0, score_samples=0)
    assert (config.beta, config.nu) == (0.0, math.inf)


def _likelihood_variance(model: VJE) -> np.ndarray:
    """The second output of the inference network, `[2, B, D]`, for untied variances."""
    hidden = model.posterior.trunk(model.encoder.get_parameter("rows").detach().view(2, B, D))
    return np.log1p(np.exp(model.raw_scale(hidden).detach().double().numpy())) + 1e-6


def test_an_untied_variance_scales_the_likelihood_alone(noise: dict[str, Tensor]) -> None:
    """The posterior's own spreads the samples, and is what the KL and the scores see."""
    model = _vje(Config(bottleneck=8, shared_variance=False))
    (z, mu, var), scale = _arrays(model), _likelihood_variance(model)
    _, parts = model.losses(BATCH, noise)
    expected = 0.0
    for i, j in ((0, 1), (1, 0)):
        for b in range(B):
            s = mu[i, b] + np.sqrt(var[i, b]) * noise["posterior"][i, b].numpy()
            expected += _directional(z[j, b], s, scale[i, b], 3.0) / (2 * B)
    assert parts["dir"].item() == pytest.approx(expected, rel=1e-5)
    assert parts["kl"].item() == pytest.approx(_plain_losses(model, noise, 1.0, 3.0)["kl"], rel=1e-5)
    score = model.score(VIEWS[0], zeros_for(model.score_noise(B)))
    np.testing.assert_allclose(score["variance"].detach(), var[0].sum(-1), rtol=1e-5)


@pytest.mark.parametrize("nu", [0.5, 3.0, math.inf])
def test_the_unsplit_likelihood_is_scipys_student_of_the_embedding(noise: dict[str, Tensor], nu: float) -> None:
    """Less the density's constant at var 1 and the mode, which the loss leaves out."""
    model = _vje(Config(nu=nu, bottleneck=8, likelihood="euclidean"))
    z, mu, var = _arrays(model)
    _, parts = model.losses(BATCH, noise)
    expected = 0.0
    for i, j in ((0, 1), (1, 0)):
        for b in range(B):
            s = mu[i, b] + np.sqrt(var[i, b]) * noise["posterior"][i, b].numpy()
            shape, unit_shape = np.diag(var[i, b]), np.eye(D)
            if math.isinf(nu):
                law, at_mode = stats.multivariate_normal(s, shape), stats.multivariate_normal(s, unit_shape)
            else:
                law, at_mode = stats.multivariate_t(s, shape, nu), stats.multivariate_t(s, unit_shape, nu)
            expected += (at_mode.logpdf(s) - law.logpdf(z[j, b])) / (2 * B)
    assert set(parts) == {"likelihood", "kl"} and parts["likelihood"].item() == pytest.approx(expected, rel=1e-5)
    score = model.score(VIEWS[0], zeros_for(model.score_noise(B)))
    polar = _vje(Config(nu=nu, bottleneck=8)).score(VIEWS[0], zeros_for(model.score_noise(B)))
    assert torch.equal(score["dir"], polar["dir"]) and not torch.allclose(score["joint"], polar["joint"])


def test_a_target_with_a_gradient_has_that_of_both_branches(noise: dict[str, Tensor]) -> None:
    """The loss is the same; its gradient is that of the plain formula by both views' embeddings."""
    fixed, free = (_vje(Config(bottleneck=8, target_gradient=free)) for free in (False, True))
    assert torch.equal(fixed.losses(BATCH, noise).total, free.losses(BATCH, noise).total)
    rows = free.encoder.get_parameter("rows")
    (actual,) = torch.autograd.grad(free.losses(BATCH, noise).total, rows)
    step = torch.zeros_like(rows)
    step[0, 0] = 1e-2
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            rows.add_(sign * step)
            values.append(_plain_losses(free, noise, 1.0, 3.0)["total"])
            rows.sub_(sign * step)
    assert actual[0, 0].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2, abs=1e-4)
    (stopped,) = torch.autograd.grad(fixed.losses(BATCH, noise).total, fixed.encoder.get_parameter("rows"))
    assert not torch.allclose(stopped, actual, rtol=1e-2)


@pytest.mark.parametrize("nu", [0.5, 3.0, math.inf])
def test_a_radial_scale_is_that_of_scipys_density(noise: dict[str, Tensor], nu: float) -> None:
    """With its normaliser; without it, a larger scale is always better."""
    z, mu, var = _arrays(_vje(Config(nu=nu, bottleneck=8)))

    def law(scale: float) -> Any:
        return stats.norm(scale=scale) if math.isinf(nu) else stats.t(nu, scale=scale)

    for kind in ("learned", "normalised"):
        model = _vje(Config(nu=nu, bottleneck=8, radial_scale=kind))
        nn.init.constant_(model.log_radial_scale, math.log(1.7))
        expected = 0.0
        for i, j in ((0, 1), (1, 0)):
            for b in range(B):
                s = mu[i, b] + np.sqrt(var[i, b]) * noise["posterior"][i, b].numpy()
                difference = np.linalg.norm(z[j, b]) - np.linalg.norm(s)
                expected += (law(1).logpdf(0) - law(1.7).logpdf(difference)) / (2 * B)
        total, parts = model.losses(BATCH, noise)
        less = math.log(1.7) if kind == "learned" else 0.0
        assert parts["rad"].item() == pytest.approx(expected - less, rel=1e-4)
        assert parts["learned_scale"].item() == pytest.approx(1.7) and not parts["learned_scale"].requires_grad
        (slope,) = torch.autograd.grad(total, model.log_radial_scale)
        assert slope < 0 or kind == "normalised"
        with torch.no_grad():
            model.log_radial_scale.zero_()
        unscaled = _vje(Config(nu=nu, bottleneck=8)).losses(BATCH, noise).parts["rad"].item()
        assert model.losses(BATCH, noise).parts["rad"].item() == pytest.approx(unscaled, rel=1e-6)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"likelihood": "euclidean", "terms": "dir+kl"}, "likelihood=euclidean needs the terms dir and rad"),
        (
            {"radial_scale": "learned", "terms": "dir+kl"},
            "radial_scale=learned needs likelihood=polar and the term rad",
        ),
        ({"radial_scale": "learned", "likelihood": "euclidean"}, "radial_scale=learned needs likelihood=polar"),
    ],
)
def test_keys_of_a_part_that_the_loss_lacks_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**keys)
