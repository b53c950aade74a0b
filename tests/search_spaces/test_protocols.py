"""The probe of the digits presets converges: it agrees with scikit-learn's logistic regression on the same features."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from search_spaces._protocols import DIGITS
from trainables.config import resolve
from trainables.metrics import linear_probes
from trainables.metrics.scores import Floats
from trainables.training.train import train

POINT = 0.012
"""About one percentage point."""


@pytest.mark.parametrize("method", ["pixels", "random"])
@pytest.mark.parametrize("spread", [0, 3])
def test_the_probe_agrees_with_logistic_regression(method: str, spread: int) -> None:
    """The features are untrained. With `spread` each is scaled by a factor between 10^-spread and 10^spread."""
    original, recorded = linear_probes.accuracies, []

    def accuracies(
        bank_KND: Tensor, labels_N: Tensor, test_KMD: Tensor, labels_M: Tensor, *rest: Any, **how: Any
    ) -> dict[int, Floats]:
        scale_D = torch.logspace(-spread, spread, bank_KND.shape[2])
        bank_KND, test_KMD = bank_KND * scale_D, test_KMD * scale_D
        recorded.append((bank_KND[0].double(), labels_N, test_KMD[0].double(), labels_M))
        return original(bank_KND, labels_N, test_KMD, labels_M, *rest, **how)

    with patch.object(linear_probes, "accuracies", accuracies):
        (report,) = train([resolve({**DIGITS, "method": method, "epochs": 0})], Path())
    ((bank_ND, labels_N, test_MD, labels_M),) = recorded
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(bank_ND, labels_N)
    assert report.members[0].metrics["probe_z"] == pytest.approx(regression.score(test_MD, labels_M), abs=POINT)
