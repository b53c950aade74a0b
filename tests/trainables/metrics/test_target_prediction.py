"""Predicted targets against scikit-learn's regression and scipy's density, and on tiny images.

Shapes: N images, P dimensions.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression

from tests.trainables.metrics.evaluated import evaluated, trial
from trainables.metrics.target_prediction import JITTER, NAMES, joint_moment, predict

N, P = 400, 3


def _views(noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    image_NP = torch.randn(N, P, generator=source, dtype=torch.float64)
    first, second = (image_NP + noise * torch.randn(N, P, generator=source, dtype=torch.float64) for _ in range(2))
    return first, second


def test_the_prediction_is_a_linear_regression_with_the_gaussians_density() -> None:
    """Up to the jitter: coefficients by scikit-learn, the log density as that of both less that of the context."""
    (context, target), (new_context, new_target) = _views(0.3), _views(0.3, 1)
    moment_EE = joint_moment(context, target)
    prediction = predict(moment_EE, new_context, new_target)
    regression = LinearRegression(fit_intercept=False).fit(context.numpy(), target.numpy())
    residuals = new_target.numpy() - regression.predict(new_context.numpy())
    variance = new_target.numpy().var(0).sum()
    assert prediction.error == pytest.approx((residuals**2).sum(1).mean() / variance, rel=1e-3)
    both = stats.multivariate_normal(np.zeros(2 * P), moment_EE.numpy())
    alone = stats.multivariate_normal(np.zeros(P), moment_EE[:P, :P].numpy())
    joint = torch.cat([new_context, new_target], -1).numpy()
    expected = (both.logpdf(joint) - alone.logpdf(new_context.numpy())).mean()
    assert prediction.log_density == pytest.approx(expected, rel=1e-9)


def test_the_uncertainty_of_gaussian_views_is_right_and_that_of_wider_ones_is_not() -> None:
    """Three standard errors of a share of 0.9."""
    moment_EE = joint_moment(*_views(0.3))
    assert predict(moment_EE, *_views(0.3, 1)).coverage == pytest.approx(0.9, abs=3 * math.sqrt(0.09 / N))
    assert predict(moment_EE, *_views(0.9, 1)).coverage < 0.6


def test_views_that_share_nothing_predict_nothing() -> None:
    first, second = _views(0.0)
    assert predict(joint_moment(first, second), *_views(0.0, 1)).error < 2 * JITTER
    other = second.roll(1, 0)
    assert predict(joint_moment(first, other), first, other).error == pytest.approx(1, abs=0.05)


def test_targets_in_one_point_have_no_error() -> None:
    point = torch.ones(N, P, dtype=torch.float64)
    prediction = predict(joint_moment(point, point), point, point)
    assert math.isnan(prediction.error) and math.isnan(prediction.coverage)


@pytest.mark.usefixtures("tiny_datasets")
def test_trials_that_ask_for_it_report_it_at_the_end() -> None:
    """Views that are not augmented are equal, so that one predicts the other."""
    same = evaluated(trial("gje", prediction=True))
    assert tuple(same) == NAMES and same["predicted_error"][0] < 0.05
    turned = evaluated(trial("gje", prediction=True, rotation=180.0))
    assert turned["predicted_error"][0] > same["predicted_error"][0]
    assert turned["predicted_log_density"][0] < same["predicted_log_density"][0]
    assert not evaluated(trial("gje", prediction=True), last=False)
    with pytest.raises(ValueError, match="prediction needs trials on all classes"):
        trial("gje", prediction=True, normal_class=1)
