import pytest
import torch

from tests.trainables.losses.samples import B, D, Inputs


@pytest.fixture
def zsv() -> Inputs:
    """Embedding, sample and variance, `[B, D]` each."""
    generator = torch.Generator().manual_seed(0)
    z, s, raw = torch.randn(3, B, D, dtype=torch.float64, generator=generator) * 2
    return z, s, raw.exp()
