"""Finds nodes whose GPU makes cohorts fail that would train elsewhere."""

from collections import defaultdict
from collections.abc import Sequence

FAILURES = 2
"""Cohorts that must fail on a node in a row, and none elsewhere, before it is left out."""


class Suspects:
    """Judges nodes by the failures of cohorts on them.

    A failure on another node begins a new row, and a cohort that ends well on the node ends its row. While no cohort
    reports from another node, nothing is said: what fails everywhere is no node's fault. A cohort counts once, and not
    at all after it has failed on two nodes, for then it is itself at fault; a node that was left out for it is cleared.
    """

    def __init__(self) -> None:
        self._node, self._row = "", list[str]()
        """The node of the present row, and the cohorts that failed there."""
        self._trains_elsewhere = False
        """Whether a cohort has reported from another node since the row began."""
        self._nodes: defaultdict[str, set[str]] = defaultdict(set)
        """Cohort -> the nodes on which it has failed."""
        self._left_out: dict[str, tuple[str, ...]] = {}
        """Node -> the cohorts for which it was left out."""

    def reported(self, node: str) -> None:
        """A cohort has reported from a node."""
        self._trains_elsewhere |= node != self._node

    def succeeded(self, node: str) -> None:
        """A cohort has ended well on a node."""
        if node == self._node:
            self._node, self._row = "", []

    def failed(self, node: str, cohort: str) -> Sequence[str]:
        """A cohort has failed on a node. Returns the cohorts that have failed there if it is to be left out for
        them, else an empty sequence."""
        if node != self._node:
            self._node, self._row, self._trains_elsewhere = node, [], False
        self._nodes[cohort].add(node)
        self._row = [each for each in dict.fromkeys([*self._row, cohort]) if self._nodes[each] == {node}]
        if not self._trains_elsewhere or len(self._row) < FAILURES:
            return ()
        self._left_out[node] = tuple(self._row)
        return self._left_out[node]

    def cleared(self, cohort: str) -> Sequence[str]:
        """Return the nodes that were left out for a cohort that has failed on another node since. They count as new."""
        itself = len(self._nodes[cohort]) > 1
        cleared = [node for node, cohorts in self._left_out.items() if itself and cohort in cohorts]
        for node in cleared:
            del self._left_out[node]
        return cleared
