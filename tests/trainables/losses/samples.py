"""Random inputs of the losses, in float64, and what counts as equal."""

import torch
from torch import Tensor

B, D = 6, 5
Inputs = tuple[Tensor, Tensor, Tensor]


def close(actual: Tensor, expected: object, rtol: float = 1e-11) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=1e-12)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit_normal(*shape: int, seed: int = 0) -> Tensor:
    """Unit vectors of all directions alike."""
    return torch.nn.functional.normalize(normal(*shape, seed=seed), dim=-1)


def covariance(*shape: int, seed: int = 0) -> Tensor:
    """Positive definite matrices with eigenvalues from about 0.3 on."""
    root = normal(*shape, shape[-1], seed=seed)
    return root @ root.mT / shape[-1] + 0.3 * torch.eye(shape[-1])
