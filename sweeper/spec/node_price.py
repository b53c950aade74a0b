"""The price of a node per hour: one for all nodes, or one for each kind of GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

OTHERS = ""
"""Key of the price of all nodes that have no price of their own."""


@dataclass(frozen=True)
class NodePrice:
    """Prices of nodes per hour, in any currency."""

    prices: Mapping[str, float]
    """Ray's name of a node's GPUs, e.g. `H100`, or `OTHERS` -> price."""

    def of(self, kind: str) -> float | None:
        """Return the price of a node with GPUs of this kind (empty: without GPUs); None if it has none."""
        return self.prices.get(kind, self.prices.get(OTHERS))

    @property
    def plain(self) -> float | dict[str, float]:
        """The prices as JSON: a number if all nodes have the same, else kind -> price, with `OTHERS` as a kind."""
        return self.prices[OTHERS] if self.prices.keys() == {OTHERS} else dict(self.prices)

    @property
    def text(self) -> str:
        """The prices as the command line takes them, e.g. `2.5` or `2.5,H100=9`."""
        return ",".join(f"{kind}={price:g}" if kind else f"{price:g}" for kind, price in self.prices.items())
