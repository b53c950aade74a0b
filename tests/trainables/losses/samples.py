"""Random inputs of the densities, and what counts as equal in float64."""

import torch
from torch import Tensor

B, D = 6, 5
Inputs = tuple[Tensor, Tensor, Tensor]


def close(actual: Tensor, expected: object, rtol: float = 1e-11) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=1e-12)
