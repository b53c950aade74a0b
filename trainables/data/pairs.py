"""Synthetic pairs (x, y) with a known conditional density: y lies on one of three curves, plus noise (GJE, section
5.1).

Shapes: N pairs, F = 3 branches.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

NOISE = 0.05
"""Standard deviation of y around its branch."""


@dataclass(frozen=True)
class Branches:
    """The branches of a data set: equally likely functions of x in [-1, 1]."""

    about: str
    functions: tuple[Callable[[Tensor], Tensor], ...]

    def at(self, x_N: Tensor) -> Tensor:
        """The values `[N, F]` of the branches."""
        return torch.stack([function(x_N) for function in self.functions], dim=-1)


class Pairs(NamedTuple):
    """Inputs and their targets, in float64."""

    x_N: Tensor
    y_N: Tensor


BRANCHES: Mapping[str, Branches] = MappingProxyType(
    {
        "synthetic_a": Branches(
            "Separate branches: x^2 + 0.5, -x^2 - 0.5 and x^3.",
            (lambda x_N: x_N**2 + 0.5, lambda x_N: -(x_N**2) - 0.5, lambda x_N: x_N**3),
        ),
        "synthetic_b": Branches(
            "Branches that cross at the origin: sin(3x), -sin(3x) and 0.",
            (lambda x_N: torch.sin(3 * x_N), lambda x_N: -torch.sin(3 * x_N), torch.zeros_like),
        ),
    }
)
"""Name of a data set -> its branches."""


def draw_pairs(dataset: str, count: int, generator: torch.Generator) -> Pairs:
    """Draw pairs: x uniform on [-1, 1], a random branch, and normal noise."""
    x_N = 2 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
    branches_NF = BRANCHES[dataset].at(x_N)
    drawn_N = torch.randint(branches_NF.shape[1], (count,), generator=generator)
    noise_N = NOISE * torch.randn(count, generator=generator, dtype=torch.float64)
    return Pairs(x_N, branches_NF[torch.arange(count), drawn_N] + noise_N)
