"""Interim analyses of claims while seeds are added, and how they share the significance level.

Whoever adds seeds until an interval excludes the margin is wrong more often than the level of the interval says: with
analyses at 3, 5, 7 and 10 seeds 14 % of true nulls are decided at a level of 5 %. The interim analyses of a claim
therefore share its level alpha. An analysis at n_k seeds after one at n_(k-1), of at most N, has the interval at the
level

    alpha_k = alpha (n_k - n_(k-1)) / N.

This is the linear spending function (Lan and DeMets, Biometrika 70, 1983; of the family of Kim and DeMets, Biometrika
74, 1987, that with rho = 1) for repeated confidence intervals (Jennison and Turnbull, JRSS B 51, 1989), where each
analysis has what it spends as its level. The levels are fixed before the first one and sum up to alpha at most, so by
Boole's inequality all intervals of a claim together miss the truth with a probability of at most alpha. That needs no
joint distribution: it holds for every statistic of `estimates` whose interval is right at one analysis, also for an
argmax, an extreme and a correlation, in samples of 3, and whatever decides when to stop. Bounds from the joint
distribution of the t statistics of a mean would be narrower (a power of .69 where this rule has .62), but hold for that
alone.

A claim that an analysis decides is analysed no more. Its verdict stays that of the analysis: on those seeds, at that
level.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import interim_path
from sweeper.storage.requests import request_name
from trainables.json_input import Count, PositiveCount


@dataclass(frozen=True)
class InterimAnalyses:
    """The interim analyses of the claims of a request."""

    most: PositiveCount
    """Seeds at the last possible analysis: the level is split for so many."""
    first: PositiveCount
    """Seeds of the request itself."""
    seeds: tuple[Count, ...]
    """Those of the request, then those that are added, in their order."""
    taken: Mapping[str, tuple[PositiveCount, ...]]
    """Name of a claim -> number of seeds at each analysis."""

    @property
    def added(self) -> bool:
        """Whether there are analyses at more than the seeds of the request."""
        return any(counts[-1] > self.first for counts in self.taken.values())

    def share(self, claim: str) -> float:
        """Return the share of the claim's level that its last analysis may spend; all of it without an analysis."""
        counts = self.taken.get(claim, ())
        before = counts[-2] if len(counts) > 1 else 0
        return (counts[-1] - before) / self.most if counts else 1.0

    def share_at(self, count: int) -> float:
        """Return about the share of a claim's level that an analysis at this number of seeds may spend. They are two
        fifths apart, so it is 2/7 of the seeds, of as many as are possible."""
        return (count - 5 * count / 7) / max(count, self.most)

    def seeds_of(self, claim: str) -> tuple[int, ...]:
        """Return the seeds of the last analysis of a claim; those of the request without one."""
        return self.seeds[: self.taken.get(claim, (self.first,))[-1]]

    def plus(self, counts: Mapping[str, int]) -> "InterimAnalyses":
        """Return the analyses with one more at these numbers of seeds, by the name of the claim."""
        later = {claim: (*self.taken.get(claim, ()), count) for claim, count in counts.items()}
        return replace(self, taken={**self.taken, **later})


def next_count(count: int, most: int) -> int:
    """Return the seeds of the analysis after one at `count`: two fifths more, so that there are few: 3, 5, 7, 10."""
    return min(most, (7 * count + 4) // 5)


def read_analyses(files: Files, sweep: str, preset: str, changes: str = "") -> InterimAnalyses | None:
    """Return the interim analyses of the claims of a request; None if there are none, or their record is damaged."""
    return read_record(files, interim_path(sweep, request_name(preset, changes)), InterimAnalyses)


def write_analyses(files: Files, sweep: str, request: str, analyses: InterimAnalyses) -> None:
    files.write(interim_path(sweep, request), json.dumps(asdict(analyses), indent=1).encode())
