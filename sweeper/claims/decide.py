"""`--decide`: the rounds of a run that adds seeds until claims are decided. The rule is in `sweeper.claims.interim`.

A round is a plan as any other, of the trials that the open claims' sides select, with the seeds up to each claim's next
interim analysis. Its rows belong to the request `PRESET, decided`. An analysis is recorded once the rows of its round
are there, so an interrupted round is planned again, with the same cohorts, and no analysis is counted twice.

A claim whose seeds show a spread has a number of seeds that it is expected to need (`verdicts.replicates_expected`). It
gets seeds only if that is at most `--most-seeds`. One with fewer than `MIN_REPLICATES` seeds gets so many first, also
where its classes have decided it with one seed: that says nothing of other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sweeper.claims.claim import check_claims, meets
from sweeper.claims.interim import InterimAnalyses, next_count, read_analyses, write_analyses
from sweeper.claims.judging import Judged, judge_at
from sweeper.claims.verdicts import MOST_EXPECTED, replicates_expected
from sweeper.definition import Value
from sweeper.definition.judging import JUDGING, judging
from sweeper.definition.space import SEED
from sweeper.errors import SpecError
from sweeper.planning.changes import changed_keys
from sweeper.planning.plan import Plan
from sweeper.planning.prepare import with_replicates
from sweeper.request import Request
from sweeper.results.estimates import ALPHA, EQUAL, MIN_REPLICATES
from sweeper.storage.requests import changes_named, decided_changes, request_name
from sweeper.storage.store import Store
from trainables.validation import unknown

Config = Mapping[str, Value]


@dataclass
class Decision:
    """The claims of a request that are to be decided."""

    request: Request
    plan: Plan
    """That of the request itself."""
    store: Store
    say: Callable[[str], None]
    _trained: set[str] = field(default_factory=set)
    """Trials of the rounds that this run has trained: a failed one is not tried again by the next round."""
    _said: dict[str, str] = field(default_factory=dict)
    """Claim -> the last line about the seeds that it is expected to need."""

    def __post_init__(self) -> None:
        """Raise SpecError if there is nothing to decide, or for a claim that does not fit the preset."""
        plan = self.plan
        if plan.study_runs:
            raise SpecError(f"--decide needs a grid, but {plan.name} ({plan.preset}) is a search, without claims")
        self._known = known = {claim.name: claim for claim in plan.sweep.claims_of(plan.preset)}
        if not known:
            raise SpecError(
                f"--decide needs claims that the preset can judge, but {plan.name} ({plan.preset}) has none"
            )
        check_claims(plan.sweep, plan.preset)
        wanted = [str(name) for name in self.request.decide or ()]
        for name in wanted:
            if not any(name in (claim.name, claim.row) for claim in known.values()):
                rows = [claim.row for claim in known.values() if claim.row != claim.name]
                raise SpecError(unknown("claim", name, list(dict.fromkeys([*known, *rows]))))
        self.claims = [name for name, claim in known.items() if not wanted or {name, claim.row} & {*wanted}]
        changed = changed_keys(plan.changes.text)
        judges = judging(plan.sweep.parts(plan.preset), changed)
        self._judging = [trial for trial in plan.grid_trials if judges(trial.config)]
        if not self._judging:
            raise SpecError(f"{JUDGING}, but the request changes {', '.join(changed)}: --decide decides none")
        if not self._base:
            raise SpecError(f"--decide adds seeds, but the trials of {plan.name} ({plan.preset}) have none")
        analyses = read_analyses(self.store.files, plan.name, plan.preset, self._changes)
        if analyses and analyses.seeds[: analyses.first] != self._base:
            seeds = ",".join(map(str, analyses.seeds[: analyses.first]))
            raise SpecError(f"the claims of '{plan.request}' were first analysed with seeds {seeds}; ask for the same")
        if analyses and self.request.most_seeds > analyses.most:
            raise SpecError(
                f"`--most-seeds <= {analyses.most}` must hold, for which the interim analyses of '{plan.request}' are "
                f"planned, but got {self.request.most_seeds}"
            )
        self.analyses = analyses or self._new_analyses

    @cached_property
    def _base(self) -> tuple[int, ...]:
        """The seeds of the request's trials."""
        return tuple(sorted({int(str(trial.config[SEED])) for trial in self.plan.grid_trials if SEED in trial.config}))

    @property
    def _new_analyses(self) -> InterimAnalyses:
        base, most = self._base, max(self.request.most_seeds, len(self._base))
        further = range(base[-1] + 1, base[-1] + 1 + most - len(base))
        return InterimAnalyses(most, len(base), (*base, *further), {})

    @property
    def _changes(self) -> str:
        return changes_named(self.plan.request, self.plan.preset)

    @property
    def most(self) -> int:
        """Seeds of the last analysis that this run may do."""
        return max(self.analyses.first, min(self.request.most_seeds, self.analyses.most))

    def next(self) -> Plan | None:
        """Do the interim analyses whose rows are there, and return the plan of the next round; None if no claim is
        open, or all seeds are used. The rows of the request, and of the plan that was returned last, are there."""
        self._analyse(self._first_counts)
        while counts := self._next_counts(self._planned(self._open())):
            plan = self._round(counts)
            trials = [trial for group in plan.groups for stream in group for trial in stream]
            ids = {trial.id for trial in trials}
            left = {trial for trial in ids if plan.grid_statuses.get(trial, "failed") == "failed"} - self._trained
            if left:
                self._trained |= ids
                seeds = sorted({int(str(trial.config[SEED])) for trial in trials})
                self.say(f"{len(left)} trials with seeds {','.join(map(str, seeds))} for {names_text([*counts])}")
                return plan
            self._analyse(counts)
        return None

    def summary(self) -> list[str]:
        """A line for each claim: its verdict, and the seeds that it took."""
        judged = self._judged(self.analyses)
        return [_line(judged[name]) for name in self.claims]

    def outline(self) -> dict[str, Any]:
        """What would be run first and at most, in plain values. Nothing is recorded."""
        complete, opened, lines = not self.plan.trials_left, self._helpable(self.claims), dict[str, str]()
        if complete:
            self.analyses, _ = self._analysed(self._first_counts)
            of_open = self._open()
            opened = [name for name, needed in of_open.items() if needed.planned]
            lines = {name: needed.line(name, self.most) for name, needed in of_open.items()}
        counts = self._next_counts(opened)
        first = self._configs({name: (self._count(name), count) for name, count in counts.items()})
        most = self._configs({name: (self._count(name), self.most) for name in opened})
        seeds = sorted({int(str(config[SEED])) for config in first.values()})
        return {
            "claims": [*self.claims],
            "open": opened if complete else None,
            "expected": [*lines.values()],
            "first": len(first) if complete else self.plan.trials_left,
            "first_seeds": seeds if complete else [],
            "at_most": self.plan.trials_left + len(most),
            "most_seeds": self.most,
        }

    @property
    def _first_counts(self) -> dict[str, int]:
        """Claims without an analysis so far -> the seeds of the request."""
        return {name: self.analyses.first for name in self.claims if name not in self.analyses.taken}

    def _judged(self, analyses: InterimAnalyses) -> dict[str, Judged]:
        """Name -> the claim as judged at its last analysis."""
        plan = self.plan
        found = judge_at(self.store.files, plan.sweep, plan.preset, self._changes, analyses)
        return {each.claim.name: each for each in found}

    def _analysed(self, counts: Mapping[str, int]) -> tuple[InterimAnalyses, list[Judged]]:
        """Return the analyses with one more at these numbers of seeds, and its results. A claim whose rows have no
        value is not analysed."""
        judged = self._judged(self.analyses.plus(counts))
        own = [judged[name] for name in counts if judged[name].n]
        return self.analyses.plus({each.claim.name: counts[each.claim.name] for each in own}), own

    def _analyse(self, counts: Mapping[str, int]) -> None:
        """Do interim analyses, record them, and print their results."""
        self.analyses, judged = self._analysed(counts)
        if judged:
            write_analyses(self.store.files, self.plan.name, self.plan.request, self.analyses)
        for count in sorted({each.analyses[-1] for each in judged}):
            own = [each for each in judged if each.analyses[-1] == count]
            left = [each.claim.name for each in own if _is_open(each)]
            opened = f", open: {names_text(left)}" if left else ""
            self.say(
                f"interim analysis at {count} seeds: {len(own) - len(left)} of {len(own)} claims are decided{opened}"
            )

    def _open(self) -> dict[str, Needed]:
        """The open claims that read further seeds -> the seeds that they need."""
        judged = self._judged(self.analyses)
        helpable = self._helpable([name for name in self.claims if _is_open(judged[name])])
        return {name: self._needed(judged[name]) for name in helpable}

    def _needed(self, judged: Judged) -> Needed:
        """The seeds that an open claim needs."""
        seeds = self._count(judged.claim.name)
        if judged.over or judged.n < MIN_REPLICATES:
            return Needed(True, f"{MIN_REPLICATES} seeds first, to see their spread")
        if judged.n > seeds:
            names = ", ".join(self.plan.sweep.random)
            return Needed(False, f"its replicates are values of {names}, which further seeds do not add")
        if math.isnan(judged.low):  # it lacks something else than seeds
            return Needed(False, judged.reason)
        if _at_margin(judged):
            return Needed(False, "the value is at the margin, which no number of seeds decides")
        if math.isinf(judged.low) and math.isinf(judged.high):
            return Needed(True, "no spread seen yet")
        expected = replicates_expected(
            judged.p_of_analysis, judged.n, lambda count: ALPHA * self.analyses.share_at(count)
        )
        if expected is None:
            return Needed(False, f"more than {MOST_EXPECTED} seeds expected: it is too near to its margin")
        return Needed(expected <= self.most, f"about {expected} seeds expected", expected)

    def _planned(self, needed: Mapping[str, Needed]) -> list[str]:
        """Those of the open claims that get seeds. Says of each what it needs, where that has changed."""
        for name, each in needed.items():
            line = each.line(name, self.most)
            if self._said.get(name) != line and self._count(name) < self.most:
                self._said[name] = line
                self.say(line)
        return [name for name, each in needed.items() if each.planned]

    def _helpable(self, names: Sequence[str]) -> list[str]:
        """Those of the claims that read all seeds of trials that have some."""
        seeded = [
            name for name in names if all(SEED not in (*side.where, *side.keys) for side in self._known[name].sides)
        ]
        return [name for name in seeded if self._configs({name: (0, 1)})]

    def _count(self, name: str) -> int:
        """Seeds at the last analysis of a claim."""
        return self.analyses.taken.get(name, (self.analyses.first,))[-1]

    def _next_counts(self, names: Sequence[str]) -> dict[str, int]:
        """Claim -> seeds at its next analysis, where there is one."""
        counts = {name: self._count(name) for name in names}
        return {
            name: min(self.most, max(MIN_REPLICATES, next_count(count, self.most)))
            for name, count in counts.items()
            if count < self.most
        }

    def _round(self, counts: Mapping[str, int]) -> Plan:
        """The plan of a round: all trials with the seeds that were added so far, and those that are added now."""
        now = self._configs({name: (self._count(name), count) for name, count in counts.items()})
        earlier = self._configs({name: (self.analyses.first, self._count(name)) for name in self._known})
        every = {**now, **{key: config for key, config in earlier.items() if key not in now}}
        name = request_name(self.plan.preset, decided_changes(self._changes))
        return with_replicates(self.request, self.store, self.plan, name, [*every.values()], len(now))

    def _configs(self, spans: Mapping[str, tuple[int, int]]) -> dict[Any, Config]:
        """The configs of the trials that the claims' sides select, each with the seeds of the claim's span, by keys of
        their own."""
        parts, found = self.plan.sweep.parts(self.plan.preset), dict[Any, Config]()
        for name, (start, stop) in spans.items():
            for side in self._known[name].sides if start < stop else ():
                where = side.wanted_of_trials(parts)
                for trial in self._judging if not side.sweep else ():
                    config = trial.config
                    if config.get(SEED) == self._base[0] and all(meets(config.get(key), where[key]) for key in where):
                        for seed in self.analyses.seeds[start:stop]:
                            found.setdefault((trial.id, seed), {**config, SEED: seed})
        return found


@dataclass(frozen=True)
class Needed:
    """The seeds that an open claim needs."""

    planned: bool
    """Whether it gets further seeds."""
    reason: str
    expected: int | None = None
    """Seeds, the present ones included; None if they are not known."""

    def line(self, claim: str, most: int) -> str:
        """Return e.g. `VJE-11: about 8 seeds expected`; `most` are those that a claim may have."""
        if self.planned:
            return f"{claim}: {self.reason}"
        more = f", more than --most-seeds {most}" if self.expected is not None else ""
        return f"{claim} left out: {self.reason}{more}"


def names_text(names: Sequence[str], most: int = 6) -> str:
    """Return the names, or the first of many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _is_open(judged: Judged) -> bool:
    """Whether further seeds may decide a claim: it has rows, and no verdict that is of seeds."""
    return bool(judged.n) and (judged.verdict == "undecided" or bool(judged.over))


def _at_margin(judged: Judged) -> bool:
    """Whether the difference is at the margin of the claim but for rounding."""
    claim, difference = judged.claim, judged.difference
    distance = {"~": abs(difference), ">": difference, "<": -difference}[claim.relation] - claim.margin
    return abs(distance) <= EQUAL


def _line(judged: Judged) -> str:
    """For example `VJE-30a holds: the full loss beats ... (interim analysis 2 at 5 seeds, ...)`."""
    reason = f" ({judged.reason})" if judged.reason else ""
    return f"{judged.claim.name} {judged.verdict}: {judged.claim.sentence}{reason}"
