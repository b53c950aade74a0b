"""The Frechet distance between Gaussians fitted to two sets of features.

Shapes: N samples, M test images, D features. Leading dimensions of the samples, such as that of the members, are kept.
"""

import torch
from torch import Tensor


def frechet_distance(samples_ND: Tensor, test_MD: Tensor) -> Tensor:
    """Squared Frechet distance `|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))` between Gaussians with the means m and the
    unbiased covariances S of both sets, in float64. NaN if a feature is not finite. Raises ValueError unless both sets
    have at least two vectors.

    With factors `S = R^T R` the eigenvalues of `S1 S2` are the squares of the singular values of `R1 R2^T`, whose sum
    is therefore the trace of the root. No matrix square root is computed.
    """
    for vectors_ND in (samples_ND, test_MD):
        if vectors_ND.shape[-2] < 2:
            raise ValueError(f"a Frechet distance needs at least 2 vectors of each set, but got {vectors_ND.shape[-2]}")
    finite = samples_ND.isfinite().all(-1).all(-1) & test_MD.isfinite().all()
    sample_mean_D, sample_factor_DD = _mean_and_factor(torch.where(finite[..., None, None], samples_ND, 0.0))
    test_mean_D, test_factor_DD = _mean_and_factor(torch.where(finite.any(), test_MD, 0.0))
    traces = sample_factor_DD.square().sum((-2, -1)) + test_factor_DD.square().sum()
    root_trace = torch.linalg.svdvals(sample_factor_DD @ test_factor_DD.mT).sum(-1)
    distance = (sample_mean_D - test_mean_D).square().sum(-1) + traces - 2 * root_trace
    return torch.where(finite, distance, torch.nan)


def _mean_and_factor(vectors_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The mean `[D]`, and an R `[min(N, D), D]` for which `R^T R` is the unbiased covariance, in float64."""
    vectors_ND = vectors_ND.double()
    mean_1D = vectors_ND.mean(-2, keepdim=True)
    centred_ND = (vectors_ND - mean_1D) / (vectors_ND.shape[-2] - 1) ** 0.5
    return mean_1D.squeeze(-2), torch.linalg.qr(centred_ND, mode="r").R
