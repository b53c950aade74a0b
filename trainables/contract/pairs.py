"""What a method promises that learns the density of a number y given x.

Shapes: B pairs of a batch, X inputs, M components.
"""

from typing import NamedTuple, Protocol

from torch import Tensor

from trainables.contract.method import Method


class ConditionalDensity(NamedTuple):
    """The density of a number y given x, which `predict` returns: a mixture of Gaussians. Every method has its own
    number M of components, the same for every x."""

    log_weights_BM: Tensor
    """Logarithms, finite, of weights whose sum over M is one."""
    means_BM: Tensor
    sigmas_BM: Tensor
    """Standard deviations, above 0."""


class PairStatistics(Protocol):
    """What a method of the task `pairs` may know of the training pairs before it learns from them."""

    @property
    def count(self) -> int:
        """Number of training pairs."""
        ...

    @property
    def steps(self) -> int:
        """Number of steps of the whole training."""
        ...

    def target_quantiles(self, levels: Tensor) -> Tensor:
        """Quantiles of the targets y at these levels in [0, 1]."""
        ...


class PairsMethod(Method):
    """A method that learns from pairs (x, y). The entries of a batch are `x`, `[B, X]`, and `y`, `[B]`."""

    task = "pairs"
    capabilities = frozenset({"predict"})

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        """The density of y at each of these x, in float32 whatever the precision of the networks."""
        raise NotImplementedError
