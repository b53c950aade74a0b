"""Metrics of a method that classifies, compared with scikit-learn's and with a plain loop.

Shapes: N evaluated images, L classes.
"""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, top_k_accuracy_score
from torch import Tensor

from tests.trainables.metrics.evaluated import evaluated, trial
from tests.trainables.small import image_trial
from trainables.metrics.classification import BINS, calibration_error, classification_metrics
from trainables.training.metric_names import metric_names

PROMISED = ("accuracy", "top5", "nll", "ece")


def _drawn(classes: int, scale: float = 2.0, images: int = 500) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(classes)
    logits_NL = scale * torch.randn(images, classes, generator=source)
    return logits_NL, (logits_NL + 2 * torch.randn(images, classes, generator=source)).argmax(-1)


def _looped_error(p_NL: np.ndarray, labels_N: np.ndarray) -> float:
    total = 0.0
    for index in range(BINS):
        inside = [
            (p_L.max(), float(p_L.argmax() == label))
            for p_L, label in zip(p_NL, labels_N, strict=True)
            if index / BINS < p_L.max() <= (index + 1) / BINS
        ]
        if inside:
            confidence, correct = np.mean(inside, axis=0)
            total += len(inside) / len(labels_N) * abs(correct - confidence)
    return total


@pytest.mark.parametrize("classes", [2, 5, 6, 10, 100])
def test_they_are_those_of_scikit_learn(classes: int) -> None:
    logits_NL, labels_N = _drawn(classes)
    p_NL, every = logits_NL.double().softmax(-1).numpy(), range(classes)
    expected = {
        "accuracy": accuracy_score(labels_N, p_NL.argmax(-1)),
        "nll": log_loss(labels_N, p_NL, labels=every),
        "ece": _looped_error(p_NL, labels_N.numpy()),
    }
    if classes > 5:
        expected["top5"] = top_k_accuracy_score(labels_N, p_NL, k=5, labels=every)
    assert classification_metrics(logits_NL, labels_N) == pytest.approx(expected, rel=1e-9)
    assert 0 < expected["ece"] < 1


def test_confidence_that_is_right_has_no_error_and_confidence_that_is_wrong_has_all() -> None:
    labels_N, sure_NL = torch.tensor([0, 1, 1, 0]), torch.eye(2, dtype=torch.float64)[[0, 1, 1, 0]]
    assert calibration_error(sure_NL, labels_N) == 0 and calibration_error(sure_NL, 1 - labels_N) == 1
    even_NL = torch.full((4, 2), 0.5, dtype=torch.float64)  # half of them are of class 0
    assert calibration_error(even_NL, labels_N) == pytest.approx(0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logit_that_is_not_finite_leaves_all_undefined(bad: float) -> None:
    logits_NL, labels_N = _drawn(10)
    logits_NL[3, 4] = bad
    metrics = classification_metrics(logits_NL, labels_N)
    assert tuple(metrics) == PROMISED and all(math.isnan(value) for value in metrics.values())


def test_a_classifier_reports_them_at_every_report_on_both_sets_without_a_key() -> None:
    config = trial("classifier", validation=0.2)
    names = tuple(f"{prefix}{name}" for prefix in ("", "val_") for name in PROMISED)
    for last in (True, False):
        assert tuple(evaluated(config, last=last)) == names
    assert [name for name in metric_names(config, 5) if "top5" in name] == []
    assert not set(metric_names(image_trial({"method": "simclr"}), 10)) & {*names}
