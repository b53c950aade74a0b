"""Geometry of embeddings against NumPy in float64, known spectra and the bounds of unit vectors.

Shapes: K members, N images, D dimensions.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.metrics import embeddings


def _gaussian(members: int = 2, images: int = 40, size: int = 5) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randn(members, images, size, generator=source) * torch.arange(1.0, size + 1) + 0.7


def test_spectrum_volume_and_trace_are_those_of_the_covariance_of_unit_vectors() -> None:
    """With NumPy's own covariance and determinant."""
    z_KND = _gaussian()
    eigenvalues_KD = embeddings.spectrum(z_KND)
    for member, z_ND in enumerate(z_KND.double().numpy()):
        unit_ND = z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True)
        covariance_DD = np.cov(unit_ND.T, bias=True)
        np.testing.assert_allclose(eigenvalues_KD[member], np.linalg.eigvalsh(covariance_DD), rtol=1e-9)
        mixed_DD = (1 - 1e-6) * covariance_DD + 1e-6 * np.eye(5) / 5
        assert embeddings.volume(eigenvalues_KD)[member] == pytest.approx(np.linalg.slogdet(mixed_DD)[1], rel=1e-9)
        assert embeddings.volume(eigenvalues_KD)[member] == pytest.approx(np.linalg.slogdet(covariance_DD)[1], abs=1e-3)
        assert embeddings.trace(eigenvalues_KD)[member] == pytest.approx(np.trace(covariance_DD), rel=1e-9)
        assert embeddings.trace(eigenvalues_KD)[member] == pytest.approx(1 - (unit_ND.mean(0) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("size", [2, 32, 128])
def test_axes_in_both_directions_reach_the_bounds_of_volume_trace_and_rank(size: int) -> None:
    """`-D log D`, 1 and D: no unit vectors fill the sphere more. The length of embeddings does not matter."""
    axes_ND = torch.cat([torch.eye(size), -3 * torch.eye(size)])
    eigenvalues_KD = embeddings.spectrum(axes_ND[None])
    assert embeddings.volume(eigenvalues_KD)[0] == pytest.approx(-size * math.log(size), rel=1e-12)
    assert embeddings.trace(eigenvalues_KD)[0] == pytest.approx(1, rel=1e-12)
    assert embeddings.effective_rank(eigenvalues_KD)[0] == pytest.approx(size, rel=1e-12)
    other = embeddings.volume(embeddings.spectrum(_gaussian(size=size)))
    assert (other < -size * math.log(size)).all()


def test_the_effective_rank_of_known_spectra_is_exact() -> None:
    spectra_KD = np.array([[0, 0, 0.3, 0.3], [0, 0, 0, 0.9], [0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1e-15]])
    entropy = -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4))
    np.testing.assert_allclose(embeddings.effective_rank(spectra_KD), [2, 1, math.exp(entropy), 1], rtol=1e-12)


def test_collapsed_embeddings_have_rank_1_no_trace_and_the_least_volume() -> None:
    """Also where they differ in length."""
    z_KND = torch.tensor([0.3, 0.4, 1.2]).expand(1, 50, 3) * torch.rand(1, 50, 1).add(0.5)
    eigenvalues_KD = embeddings.spectrum(z_KND)
    assert embeddings.effective_rank(eigenvalues_KD).tolist() == [1]
    assert embeddings.trace(eigenvalues_KD)[0] == pytest.approx(0, abs=1e-12)
    assert embeddings.volume(eigenvalues_KD)[0] == pytest.approx(3 * math.log(1e-6 / 3), rel=1e-6)


def test_the_cosine_is_the_mean_over_images_of_that_of_their_two_embeddings() -> None:
    first_ND = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    second_ND = torch.tensor([[5.0, 0.0], [0.0, -1.0], [1.0, 0.0]])
    expected = (1 - 1 + math.sqrt(0.5)) / 3
    assert embeddings.cosine(first_ND[None], second_ND[None]).tolist() == pytest.approx([expected])


def test_a_member_that_is_not_finite_has_nan_and_the_others_have_their_values() -> None:
    z_KND = _gaussian(3)
    clean_KD = embeddings.spectrum(z_KND)
    z_KND[1, 4, 2] = math.nan
    eigenvalues_KD = embeddings.spectrum(z_KND)
    np.testing.assert_array_equal(eigenvalues_KD[[0, 2]], clean_KD[[0, 2]])
    for values_K in (
        embeddings.volume(eigenvalues_KD),
        embeddings.trace(eigenvalues_KD),
        embeddings.effective_rank(eigenvalues_KD),
        embeddings.cosine(z_KND, z_KND),
    ):
        assert np.isnan(values_K).tolist() == [False, True, False]
