"""Small data for tests of evaluators and probes."""

import pytest
import torch

from tests.trainables.metrics.evaluated import C, D, K, M, N, Sets, tiny
from trainables.tasks.images import task


@pytest.fixture
def tiny_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are evaluated on `tiny` data sets."""
    monkeypatch.setattr(task, "dataset_of", lambda config, data: tiny(config.data.dataset))


@pytest.fixture
def sets() -> Sets:
    """Bank and test images for probes. Members have the same classes, but features of their own."""
    source = torch.Generator().manual_seed(0)
    centres_KCD = torch.randn(K, C, D, generator=source)
    bank_labels_N, test_labels_M = (torch.randint(C, (count,), generator=source) for count in (N, M))
    bank_KND, test_KMD = (
        centres_KCD[:, labels] + torch.randn(K, len(labels), D, generator=source)
        for labels in (bank_labels_N, test_labels_M)
    )
    return bank_KND, bank_labels_N, test_KMD, test_labels_M
