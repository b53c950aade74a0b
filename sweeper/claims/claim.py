"""What a paper claims of a sweep's rows: one side compared with another or with a number, so that rows can judge it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sweeper.definition.field_types import check_types
from sweeper.definition.judging import equal
from sweeper.definition.space import Grid, Search, Value, part_keys
from sweeper.definition.sweep import Sweep
from sweeper.errors import SpecError
from trainables.metrics.meanings import FAMILIES, family_of
from trainables.validation import unknown

Take = Literal["mean", "correlation", "range", "deviation", "largest", "smallest", "argmax", "argmin", "settled"]
Relation = Literal[">", "<", "~"]
EPOCH = "epoch"
"""Key of a side that reads the history: the epochs of the reports."""
WITH_NUMBER: tuple[Take, ...] = ("correlation", "argmax", "argmin")
"""What is compared with a number alone."""
SHORT: Mapping[str, str] = {
    "correlation": "r", "deviation": "std", "largest": "max", "smallest": "min",
}  # fmt: skip


@dataclass(frozen=True)
class Filter:
    """A condition on the value of a key other than equality: `Filter("!=", "simvae")`, `Filter(">", 500)`."""

    sign: Literal["!=", ">", "<"]
    value: Value

    def __post_init__(self) -> None:
        check_types(self)
        if self.sign not in ("!=", ">", "<"):
            raise SpecError(f"the sign of a condition must be '!=', '>' or '<', but is {self.sign!r}")
        if self.sign != "!=" and not _is_number(self.value):
            raise SpecError(f"a condition with {self.sign} needs a number, but got {self.value!r}")


Where = Mapping[str, Value | tuple[Value, ...] | Filter]
"""Key -> its value, one of several values, or a condition."""


@dataclass(frozen=True)
class Side:
    """A number of the rows of a sweep: what is taken of a metric over selected rows, along a key or as their mean.

    Example: `Side("probe_z", {"method": ("simclr", "byol")}, "largest", "method")` is the probe of the better method.
    """

    metric: str
    """The column. A side that selects or goes along epochs reads the history of the metric instead."""
    where: Where = field(default_factory=dict)
    """The rows. What is said of the data set is left out in a preset that has one alone."""
    take: Take = "mean"
    """What is taken over the rows. All but the mean goes along a key. `settled` goes along epochs: it is the epoch of
    the first report from which on the metric stays within a twentieth of its whole change of its last value."""
    along: str = ""
    """A hyperparameter, `epoch`, several hyperparameters joined by `+`, or for a correlation another metric, over the
    combinations of the hyperparameters that vary."""
    sweep: str = ""
    """The sweep of the rows, if it is not that of the claim: its preset of the same name."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.take not in get_args(Take):
            raise SpecError(unknown("statistic of a side", str(self.take), get_args(Take)))
        if (self.take == "mean") == bool(self.along):
            needs = "goes along no key" if self.take == "mean" else "needs a key along which it is taken"
            raise SpecError(f"the {self.take} of {self.metric} {needs}, but got along={self.along!r}")
        if self.take == "settled" and self.along != EPOCH:
            raise SpecError(f"`settled` goes along {EPOCH!r}, but that of {self.metric} has along={self.along!r}")

    @property
    def keys(self) -> tuple[str, ...]:
        """The hyperparameters along which it is taken; none for a mean, or where it goes along epochs or a metric."""
        return () if self.along == EPOCH or self.of_metric else tuple(filter(None, self.along.split("+")))

    @property
    def of_metric(self) -> bool:
        """Whether it is the correlation of two metrics."""
        return self.take == "correlation" and self.along != EPOCH and family_of(self.along) is not None

    @property
    def from_history(self) -> bool:
        return self.along == EPOCH or EPOCH in self.where

    @property
    def text(self) -> str:
        """For example `max[method] probe_z{method=simclr/byol}`."""
        taken = "" if self.take == "mean" else f"{SHORT.get(self.take, self.take)}[{self.along}] "
        where = ", ".join(_condition_text(key, wanted) for key, wanted in self.where.items())
        return f"{f'{self.sweep}: ' if self.sweep else ''}{taken}{self.metric}{f'{{{where}}}' if where else ''}"

    def wanted(self, parts: Sequence[Grid | Search]) -> Where:
        """Return the conditions on the rows of a preset: those of `where`, without that on its only data set."""
        datasets = {value for part in parts for value in part.values("dataset")}
        return {key: wanted for key, wanted in self.where.items() if key != "dataset" or len(datasets) > 1}

    def wanted_of_trials(self, parts: Sequence[Grid | Search]) -> Where:
        """Return those of the conditions that trials meet: all but that on the epoch, which reports meet."""
        return {key: wanted for key, wanted in self.wanted(parts).items() if key != EPOCH}


@dataclass(frozen=True)
class Claim:
    """A statement about rows that they confirm or refute: `left > right + margin`, `left < right - margin`, or
    `left ~ right`, which is within `margin` of it."""

    name: str
    """Its name in the ledger, e.g. `VJE-12`; with a letter, e.g. `VJE-12b`, if it is one of several parts of a row."""
    sentence: str
    """What is claimed, in our words."""
    place: str
    """Where the paper says so, e.g. `Table 2`."""
    left: Side
    relation: Relation
    right: Side | float
    margin: float = 0.0
    """By how much a side has to be larger, negative if it may be smaller by so much; for `~` the tolerance."""
    presets: tuple[str, ...] = ()
    """The presets whose rows can judge it; empty means all. One that the sweep does not have is ignored, so that a
    variant can have others."""
    published: str = ""
    """The paper's figures."""
    paper: str = ""
    """The paper that claims it, if it is not the sweep's."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.relation not in get_args(Relation):
            raise SpecError(f"the relation of claim {self.name} must be '>', '<' or '~', but is {self.relation!r}")
        if not self.name or not self.sentence:
            raise SpecError("a claim must have a name and a sentence, but lacks one")
        if self.relation == "~" and not self.margin >= 0:
            raise SpecError(f"`tolerance >= 0` must hold, but claim {self.name} has {self.margin}")
        for side in self.sides:
            if side.take in WITH_NUMBER and len(self.sides) > 1:
                raise SpecError(f"a {side.take} is compared with a number, but claim {self.name} has two sides")

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.left, self.right) if isinstance(self.right, Side) else (self.left,)

    @property
    def row(self) -> str:
        """Its row in the ledger: the name without the letter of a part."""
        return self.name[:-1] if self.name[-1:].islower() and self.name[-2:-1].isdigit() else self.name

    @property
    def text(self) -> str:
        """For example `probe_z{method=vje} > probe_z{method=simclr} + 0.01`."""
        right = self.right.text if isinstance(self.right, Side) else f"{self.right:g}"
        added = self.margin if self.relation == ">" else -self.margin
        sign = "±" if self.relation == "~" else "+" if added > 0 else "-"
        margin = f" {sign} {abs(self.margin):g}" if self.margin or self.relation == "~" else ""
        return f"{self.left.text} {self.relation} {right}{margin}"

    def check(self, sweep: Sweep, preset: str) -> None:
        """Raise SpecError for a metric that is neither known nor shown by the sweep, for a key or value that no trial
        of the preset has, as far as its parts say, and for the deviation of replicates. What the parts leave at its
        default, or search, can have any value."""
        metrics = sweep.axes_by_metric
        for side in self.sides:
            names = [side.metric, *([side.along] if side.of_metric else [])]
            for name in names:
                if family_of(name) is None and name not in metrics:
                    raise SpecError(f"claim {self.name}: {unknown('metric', name, [*FAMILIES, *metrics])}")
            drawn = [key for key in side.keys if key in sweep.repeats.drawn]
            if side.take == "deviation" and drawn:
                raise SpecError(
                    f"claim {self.name}: the deviation along {drawn[0]} is the spread of the replicates, which has no "
                    f"interval; take it along a fixed key, such as normal_class"
                )
            if not side.sweep:
                self._check_rows(side, preset, sweep.parts(preset))

    def _check_rows(self, side: Side, preset: str, parts: Sequence[Grid | Search]) -> None:
        sets = dict.fromkeys(key for part in parts for key in part_keys(part))
        where = f"claim {self.name}, preset {preset}"
        wanted = side.wanted_of_trials(parts)
        for key in (*wanted, *side.keys):
            if key not in sets:
                raise SpecError(f"{where}: {unknown('key', key, list(sets))}")
        for key, condition in wanted.items():
            for value in condition if isinstance(condition, tuple) else (condition,):
                if not any(may_meet(part, {key: value}, parts) for part in parts):
                    values = dict.fromkeys(str(each) for part in parts for each in part.values(key))
                    raise SpecError(
                        f"{where}: no trial has {_condition_text(key, value)}; {key} is: {', '.join(values)}"
                    )
        if not any(may_meet(part, wanted, parts) for part in parts):
            raise SpecError(f"{where}: no trial has all of {Side(side.metric, wanted).text.partition('{')[2][:-1]}")


def check_claims(sweep: Sweep, preset: str) -> None:
    """Raise SpecError for two claims of a preset that have one name, and for a claim that does not fit the preset."""
    claims = sweep.claims_of(preset)
    for name, count in Counter(claim.name for claim in claims).items():
        if count > 1:
            raise SpecError(f"claims of a preset must have different names, but {preset} has {name} twice")
    for claim in claims:
        claim.check(sweep, preset)


def meets(value: Any, wanted: Value | tuple[Value, ...] | Filter) -> bool:
    """Whether a value of a trial meets a condition. Null equals None alone."""
    if isinstance(wanted, tuple):
        return any(meets(value, each) for each in wanted)
    if not isinstance(wanted, Filter):
        return equal(value, wanted)
    if wanted.sign == "!=":
        return not meets(value, wanted.value)
    return _is_number(value) and (value > wanted.value if wanted.sign == ">" else value < wanted.value)


def may_meet(part: Grid | Search, where: Where, parts: Sequence[Grid | Search]) -> bool:
    """Whether trials of a part, one of `parts`, may meet all conditions. A key that the part does not set may have any
    value if another part of the same method sets it, or if it is searched; else it is null."""
    methods = set(part.values("method"))

    def is_free(key: str) -> bool:
        """Whether trials of this part may have any value of the key."""
        others = (other for other in parts if key in part_keys(other))
        return not part.values(key) and any(other is part or methods & set(other.values("method")) for other in others)

    return all(
        any(meets(value, wanted) for value in part.values(key) or (None,)) or is_free(key)
        for key, wanted in where.items()
        if key != EPOCH
    )


def values_along(parts: Sequence[Grid | Search], where: Where, key: str) -> list[Value]:
    """Return the values of a key that those trials of a preset have that meet the conditions, as far as its parts
    say."""
    values = [value for part in parts if may_meet(part, where, parts) for value in part.values(key)]
    return [value for value in dict.fromkeys(values) if key not in where or meets(value, where[key])]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _condition_text(key: str, wanted: Value | tuple[Value, ...] | Filter) -> str:
    if isinstance(wanted, Filter):
        return f"{key}{wanted.sign}{value_text(wanted.value)}"
    values = wanted if isinstance(wanted, tuple) else (wanted,)
    return f"{key}={'/'.join(map(value_text, values))}"


def value_text(value: Value) -> str:
    """Return the text of a value, of a number with at most six significant figures: `0.5`, `true`, `vje`."""
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
