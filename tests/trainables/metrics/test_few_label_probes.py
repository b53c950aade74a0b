"""Probes on a few labels against scikit-learn's logistic regression, and the draws of labelled images.

Shapes: K members, N bank images, M test images, D features, C classes, S draws of L images.
"""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from trainables.metrics.evaluator import ProbeData
from trainables.metrics.probes import draw_labelled, few_label_accuracies, fit_few_labels

CLASSES = 4


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _images(count: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Three members' features of noisy classes, with other means and scales for each feature, and labels."""
    labels_N = torch.randint(CLASSES, (count,), generator=source)
    x_KND = torch.randn(3, count, 6, generator=source)
    x_KND[..., :CLASSES] += 1.5 * torch.eye(CLASSES)[labels_N]
    return x_KND * torch.arange(1.0, 7) + 5, labels_N


def test_draws_have_so_many_images_of_each_class_and_none_twice() -> None:
    """Classes that do not occur have none."""
    labels_N = torch.tensor([3, 1, 0, 1, 3, 0, 0, 3, 1, 3])
    drawn_L = draw_labelled(labels_N, 3, _generator())
    assert labels_N[drawn_L].tolist() == [0, 0, 0, 1, 1, 1, 3, 3, 3] and len(set(drawn_L.tolist())) == 9
    assert torch.equal(draw_labelled(labels_N, 3, _generator()), drawn_L)
    others = {tuple(draw_labelled(labels_N, 3, _generator(seed))[6:].tolist()) for seed in range(40)}
    assert {frozenset(images) for images in others} == {frozenset({0, 4, 7, 9} - {left}) for left in (0, 4, 7, 9)}


def test_a_class_with_fewer_labelled_images_is_refused() -> None:
    with pytest.raises(ValueError) as error:
        draw_labelled(torch.tensor([0, 0, 1]), 2, _generator())
    assert str(error.value) == "each class must have at least 2 labelled images, but the smallest class has 1"


@pytest.mark.parametrize("size", [3, 200])
def test_weights_are_those_of_scikit_learn_with_fewer_and_with_more_features_than_images(size: int) -> None:
    x_SLD = torch.randn(2, 20, size, generator=_generator()) + 0.5
    labels_SL = torch.randint(CLASSES, (2, 20), generator=_generator(1))
    labels_SL[:, :CLASSES] = torch.arange(CLASSES)
    for weight_CD, x_LD, labels_L in zip(fit_few_labels(x_SLD, labels_SL, CLASSES), x_SLD, labels_SL, strict=True):
        expected = LogisticRegression(C=1, fit_intercept=False, tol=1e-9, max_iter=9999).fit(x_LD, labels_L).coef_
        np.testing.assert_allclose(weight_CD, expected, atol=2e-3 * np.abs(expected).max())


def test_accuracies_are_the_mean_over_probes_of_each_draw_on_standardised_features() -> None:
    """Over all images of the bank, whose other labels do not matter. Each member's are its own."""
    bank_KND, bank_labels_N = _images(60, _generator())
    test_KMD, test_labels_M = _images(500, _generator(1))
    draws = [draw_labelled(bank_labels_N, 3, _generator(seed)) for seed in (2, 3)]
    hidden_N = bank_labels_N.clone()
    hidden_N[[n for n in range(60) if n not in torch.cat(draws).tolist()]] = 0
    measured_K = few_label_accuracies(ProbeData(bank_KND, hidden_N, test_KMD, test_labels_M, CLASSES), draws)
    for measured, bank_ND, test_MD in zip(measured_K, bank_KND.numpy(), test_KMD.numpy(), strict=True):
        mean_D, std_D = bank_ND.mean(0), bank_ND.std(0)
        bank_ND, test_MD = (
            np.pad((x - mean_D) / std_D, ((0, 0), (0, 1)), constant_values=1) for x in (bank_ND, test_MD)
        )
        probes = (LogisticRegression(C=1, fit_intercept=False).fit(bank_ND[d], bank_labels_N[d]) for d in draws)
        expected = np.mean([probe.score(test_MD, test_labels_M) for probe in probes])
        assert measured == pytest.approx(expected, abs=0.004) and 0.4 < measured < 1
    alone_K = [few_label_accuracies(ProbeData(bank[None], hidden_N, test[None], test_labels_M, CLASSES), draws)[0]
               for bank, test in zip(bank_KND, test_KMD, strict=True)]  # fmt: skip
    assert measured_K.tolist() == alone_K and len(set(alone_K)) == 3


def test_a_member_that_is_not_finite_has_nan() -> None:
    bank_KND, labels_N = _images(40, _generator())
    test_KMD = bank_KND.clone()
    test_KMD[1, 0, 0] = math.inf
    measured_K = few_label_accuracies(ProbeData(bank_KND, labels_N, test_KMD, labels_N, CLASSES), [torch.arange(40)])
    assert np.isnan(measured_K).tolist() == [False, True, False]
