"""Cross-entropy with smoothed labels, and what mixup draws.

Shapes: B images of a batch, L classes.
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from trainables.losses.classification import random_partners, smoothed_cross_entropy, symmetric_beta

SOURCE = torch.Generator().manual_seed(0)


@given(st.floats(0, 0.999), st.integers(1, 12), st.integers(0, 2**32))
def test_smoothed_cross_entropy_is_pytorchs(smoothing: float, classes: int, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    logits_BL = 5 * torch.randn(7, classes, generator=source, dtype=torch.float64)
    labels_B = torch.randint(classes, (7,), generator=source)
    expected_B = F.cross_entropy(logits_BL, labels_B, reduction="none", label_smoothing=smoothing)
    actual_B = smoothed_cross_entropy(logits_BL, labels_B, torch.tensor(smoothing, dtype=torch.float64))
    torch.testing.assert_close(actual_B, expected_B)


def _samples(alpha: float, uniforms: torch.Tensor) -> torch.Tensor:
    return torch.vmap(symmetric_beta, in_dims=(None, 0))(torch.tensor(alpha, dtype=uniforms.dtype), uniforms)


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 2.0, 8.0])
def test_the_weights_of_mixup_have_the_beta_distribution(alpha: float) -> None:
    """Compared at levels rather than by all samples: of a small alpha most are rounded to 0 or 1."""
    samples = _samples(alpha, torch.rand(40_000, 2, generator=torch.Generator().manual_seed(0)))
    assert samples.min() >= 0 and samples.max() <= 1
    for level in (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999):
        assert (samples <= level).double().mean().item() == pytest.approx(beta.cdf(level, alpha, alpha), abs=0.01)


def test_without_mixup_the_weight_is_exactly_1_and_nothing_is_nan_at_the_ends() -> None:
    ends = torch.tensor([[u, v] for u in (0.0, 1 - 2**-24) for v in (0.0, 0.25, 0.5, 0.75)])
    assert (_samples(0.0, torch.cat([ends, torch.rand(100, 2, generator=SOURCE)])) == 1).all()
    for alpha in (1e-3, 0.2, 1.0, 1e3):
        assert _samples(alpha, ends).isfinite().all()


@given(st.integers(1, 30), st.integers(0, 2**32))
def test_partners_are_others_and_each_image_is_the_partner_of_one(count: int, seed: int) -> None:
    uniforms_B = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    partners_B = random_partners(uniforms_B)
    assert sorted(partners_B.tolist()) == [*range(count)]
    assert count == 1 or (partners_B != torch.arange(count)).all()
    flipped_B = random_partners(uniforms_B.flip(0))  # they belong to the numbers, not to the order of the images
    assert torch.equal(count - 1 - flipped_B.flip(0), partners_B)
