"""Tiny data sets for tests of evaluators."""

import pytest

from tests.trainables.metrics.evaluated import tiny
from trainables.tasks.images import task


@pytest.fixture
def tiny_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are evaluated on `tiny` data sets."""
    monkeypatch.setattr(task, "dataset_of", lambda config, data: tiny(config.data.dataset))
