"""Anomaly scores of Gaussian embeddings: negative log densities, against scipy's, up to a constant.

Shapes: N images, P dimensions of a projection, M components.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import special, stats

from tests.cases import for_each
from tests.trainables.methods.method_configs import config_of, images_of_tests, learn, step_of
from tests.trainables.methods.plain import Array, unit
from trainables.contract import ImageMethod
from trainables.methods.gaussian.gje import GJE
from trainables.methods.gaussian.gmje_mdn import MDNGMJE
from trainables.methods.gaussian.gmje_parametric import ParametricGMJE
from trainables.methods.gaussian.smc_gmje import SMCGMJE
from trainables.methods.gaussian.smc_joint_gmje import JointSMCGMJE
from trainables.sections import Value
from trainables.training.stacks import build_models


def gaussian(model: ImageMethod, z_NP: Array) -> Array:
    """The marginal of the first view."""
    assert isinstance(model, GJE)
    size = z_NP.shape[1]
    moment_PP = model.moments_GEE[0, :size, :size].double().numpy() + model.epsilon.item() * np.eye(size)
    return np.asarray(stats.multivariate_normal(np.zeros(size), moment_PP).logpdf(z_NP))


def own_mixture(model: ImageMethod, z_NP: Array) -> Array:
    """What samples are drawn from."""
    assert isinstance(model, ParametricGMJE)
    density = {name: part.double().numpy() for name, part in model.density().items()}
    pairs = zip(density["means"], density["covariances"], strict=True)
    logs_MN = np.array(
        [
            stats.multivariate_normal(mean, covariance + 1e-4 * np.eye(len(mean))).logpdf(z_NP)
            for mean, covariance in pairs
        ]
    )
    return np.asarray(special.logsumexp(special.log_softmax(density["logits"])[:, None] + logs_MN, axis=0))


def predicted_mixture(model: ImageMethod, z_NP: Array) -> Array:
    """Given the embedding itself."""
    assert isinstance(model, MDNGMJE)
    seen = torch.from_numpy(z_NP).float()
    logits_NM, means_NMP, sigma_NMP = (
        part.double().numpy() for part in model.mixture(torch.cat([seen, seen], -1) if model.config.leaky else seen)
    )
    logs_NM = stats.norm.logpdf(z_NP[:, None], means_NMP, sigma_NMP).sum(-1)
    return np.asarray(special.logsumexp(special.log_softmax(logits_NM, axis=1) + logs_NM, axis=1))


def particles(model: ImageMethod, z_NP: Array) -> Array:
    """Of one variance in all directions."""
    assert isinstance(model, SMCGMJE)
    logs_MN = [stats.norm(mean, model.tau.sqrt().item()).logpdf(z_NP).sum(1) for mean in model.bank_MP.double().numpy()]
    return np.asarray(special.logsumexp(logs_MN, axis=0))


def joint_particles(model: ImageMethod, z_NP: Array) -> Array:
    """The marginal of a mixture: the same block of means and of the covariance."""
    assert isinstance(model, JointSMCGMJE)
    size, scale = z_NP.shape[1], model.tau.item()
    covariance_JJ = scale * np.eye(2 * size)
    if model.config.learned:
        raw = model.raw_factor_JJ.detach().double().numpy()
        factor = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
        covariance_JJ = scale * factor @ factor.T
    means = model.bank_MJ.double().numpy()[:, :size]
    logs_MN = [stats.multivariate_normal(mean, covariance_JJ[:size, :size]).logpdf(z_NP) for mean in means]
    return np.asarray(special.logsumexp(logs_MN, axis=0))


@for_each(
    ("name", "keys", "log_density"),
    [
        ("gje", {}, gaussian),
        ("gje", {"entropy": "marginal", "ema": 0.5}, gaussian),
        ("gmje_parametric", {}, own_mixture),
        ("gmje_mdn", {}, predicted_mixture),
        ("gmje_mdn", {"leaky": True}, predicted_mixture),
        ("smc_gmje", {}, particles),
        ("smc_joint_gmje", {}, joint_particles),
        ("smc_joint_gmje", {"learned": False}, joint_particles),
    ],
)
def test_the_score_is_the_negative_log_density(
    name: str, keys: dict[str, Value], log_density: Callable[[ImageMethod, Array], Array]
) -> None:
    (model,) = build_models([config_of(name, **keys)], {"views": (1, 8, 8)})
    step, images, source = step_of(name), images_of_tests()[:50], torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # parameters that start at 0 would hide a mistake
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=source))
        learn(model.train(), step.batch, step.noise)
        assert isinstance(model.eval(), ImageMethod)
        image_method: Any = model
        score_N = image_method.score(images, {})["density"].double().numpy()
        z_NP = unit(image_method.project(images).double().numpy())
        expected_N = -log_density(image_method, z_NP)
    difference_N = score_N - expected_N
    np.testing.assert_allclose(difference_N, difference_N.mean(), atol=2e-3 * np.ptp(expected_N))
    assert np.ptp(expected_N) > 1e-2
