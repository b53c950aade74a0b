"""Losses and scores of transformations compared with loops in float64 and with SciPy.

Shapes: T transformations, B images, M classes, D dimensions.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import gammaln

from trainables.losses.transformations import fitted_dirichlet, log_probability, triplet_centre


def test_log_probability_is_minus_torchs_cross_entropy() -> None:
    logits_TBM, labels_T = torch.randn(4, 5, 3) * 3, torch.tensor([2, 0, 1, 1])
    actual_TB = log_probability(logits_TBM, labels_T)
    for logits_BM, label, own_B in zip(logits_TBM, labels_T, actual_TB, strict=True):
        for logits_M, own in zip(logits_BM, own_B, strict=True):
            torch.testing.assert_close(-torch.nn.functional.cross_entropy(logits_M, label), own)


@pytest.mark.parametrize("margin", [0.0, 0.1, 3.0])
def test_triplet_centre_compares_with_the_nearest_other_centre(margin: float) -> None:
    z_TBD = torch.randn(4, 6, 3) + 0.7 * torch.randn(4, 1, 3)
    z = z_TBD.double().numpy()
    centres = [np.mean(z[t], axis=0) for t in range(4)]
    actual = triplet_centre(z_TBD, torch.tensor(margin))
    for t in range(4):
        for b in range(6):
            distances = [((z[t, b] - centre) ** 2).sum() for centre in centres]
            nearest = min(distance for other, distance in enumerate(distances) if other != t)
            assert actual[t, b].item() == pytest.approx(max(0.0, distances[t] + margin - nearest), abs=1e-4)


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 8.0])
def test_dirichlet_densities_are_the_likeliest(sharpness: float) -> None:
    """Of probabilities with one that dominates, as of a trained network, and of flat ones, by SciPy's optimiser."""
    source = np.random.default_rng(0)
    logits = source.normal(size=(200, 5)) * sharpness + 2 * sharpness * np.eye(5)[0]
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    mean_M = log_p.mean(0)

    def negative_log_likelihood(log_alpha: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        alpha = np.exp(log_alpha)
        return float(gammaln(alpha).sum() - gammaln(alpha.sum()) - ((alpha - 1) * mean_M).sum())

    best = minimize(negative_log_likelihood, np.zeros(5), method="BFGS")
    alpha_M = fitted_dirichlet(torch.from_numpy(mean_M)[None])[0].numpy()
    assert negative_log_likelihood(np.log(alpha_M)) <= best.fun + 1e-9
    np.testing.assert_allclose(alpha_M, np.exp(best.x), rtol=1e-2)


def test_the_parameters_of_a_dirichlet_density_are_found_again() -> None:
    true_TM = np.array([[2.0, 0.1, 30.0], [0.5, 0.5, 0.5], [400.0, 3.0, 0.02]])
    source = np.random.default_rng(1)
    gamma = [np.log(source.gamma(alpha_M + 1, size=(200_000, 3))) + np.log(source.random((200_000, 3))) / alpha_M
             for alpha_M in true_TM]  # fmt: skip
    mean = [(log_g - np.logaddexp.reduce(log_g, axis=1, keepdims=True)).mean(0) for log_g in gamma]
    np.testing.assert_allclose(fitted_dirichlet(torch.tensor(np.array(mean))).numpy(), true_TM, rtol=0.03)
