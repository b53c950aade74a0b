"""Repeated looks at claims while seeds are added, and what a look costs.

Who adds seeds until an interval excludes the margin is wrong more often than the level of the interval says: with looks
at 3, 5, 7 and 10 seeds 14 % of true nulls are decided at a level of 5 %. So the looks share the level alpha of a claim.
A look at n_k seeds after one at n_(k-1), of at most N, has the interval at the level

    alpha_k = alpha (n_k - n_(k-1)) / N.

This is the linear spending function (Lan and DeMets, Biometrika 70, 1983; of the family of Kim and DeMets, Biometrika
74, 1987, that with rho = 1) for repeated confidence intervals (Jennison and Turnbull, JRSS B 51, 1989), where each look
has what it spends as its level. The levels are fixed before the first look and sum up to alpha at most, so by Boole's
inequality all intervals of a claim together miss the truth with a probability of at most alpha. That needs no joint
distribution: it holds for every statistic of `verdicts` whose interval is right at one look, also for an argmax, an
extreme and a correlation, in samples of 3, and whatever decides when to stop. Bounds from the joint distribution of the
t statistics of a mean would be narrower (a power of .69 where this rule has .62), but hold for that alone.

A claim that a look decides is looked at no more. Its verdict stays that of the look: on those seeds, at that level.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import looks_path
from sweeper.storage.requests import request_name
from trainables.json_input import Count, PositiveCount

DECIDED = "decided"
"""What the name of a request has in addition where its claims' trials have further seeds: `digits, decided`."""


@dataclass(frozen=True)
class Looks:
    """The looks at the claims of a request."""

    most: PositiveCount
    """Seeds at the last look that is possible, by which the looks are paid for."""
    first: PositiveCount
    """Seeds of the request itself."""
    seeds: tuple[Count, ...]
    """Those of the request, then those that are added, in their order."""
    taken: Mapping[str, tuple[PositiveCount, ...]]
    """Name of a claim -> number of seeds at each look."""

    @property
    def added(self) -> bool:
        """Whether there are looks at more than the seeds of the request."""
        return any(counts[-1] > self.first for counts in self.taken.values())

    def share(self, claim: str) -> float:
        """Return the share of the claim's level that its last look may spend; all of it without a look."""
        counts = self.taken.get(claim, ())
        before = counts[-2] if len(counts) > 1 else 0
        return (counts[-1] - before) / self.most if counts else 1.0

    def seeds_of(self, claim: str) -> tuple[int, ...]:
        """Return the seeds of the last look at a claim; those of the request without a look."""
        return self.seeds[: self.taken.get(claim, (self.first,))[-1]]

    def plus(self, counts: Mapping[str, int]) -> "Looks":
        """Return the looks with one at these numbers of seeds, by the name of the claim."""
        later = {claim: (*self.taken.get(claim, ()), count) for claim, count in counts.items()}
        return replace(self, taken={**self.taken, **later})


def next_count(count: int, most: int) -> int:
    """Return the seeds of the look after one at `count`: two fifths more, so that looks are few: 3, 5, 7, 10."""
    return min(most, (7 * count + 4) // 5)


def read_looks(files: Files, sweep: str, preset: str, changes: str = "") -> Looks | None:
    """Return the looks at the claims of a request; None if there are none, or their record is damaged."""
    return read_record(files, looks_path(sweep, request_name(preset, changes)), Looks)


def write_looks(files: Files, sweep: str, request: str, looks: Looks) -> None:
    files.write(looks_path(sweep, request), json.dumps(asdict(looks), indent=1).encode())


def decided_changes(changes: str) -> str:
    """Return the changes of the request that has the further seeds of a request with these `changes`."""
    return ", ".join(filter(None, [undecided_changes(changes), DECIDED]))


def undecided_changes(changes: str) -> str:
    """Return the changes of the request whose further seeds the request with these `changes` has; else its own."""
    return changes.removesuffix(DECIDED).removesuffix(", ") if changes.split(", ")[-1] == DECIDED else changes


def names_text(names: Sequence[str], most: int = 6) -> str:
    """Return the names, or the first of many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
