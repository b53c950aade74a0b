"""Random embeddings and covariances of the joint embeddings' tests, in float64."""

import torch
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit_normal(*shape: int, seed: int = 0) -> Tensor:
    """Unit vectors of all directions alike."""
    return torch.nn.functional.normalize(normal(*shape, seed=seed), dim=-1)


def covariance(*shape: int, seed: int = 0) -> Tensor:
    """Positive definite matrices with eigenvalues from about 0.3 on."""
    root = normal(*shape, shape[-1], seed=seed)
    return root @ root.mT / shape[-1] + 0.3 * torch.eye(shape[-1])
