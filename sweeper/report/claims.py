"""Claims judged by the rows of a store: their samples, verdicts, and table."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from sweeper.errors import StoreError
from sweeper.report import verdicts
from sweeper.report.looks import Looks, decided_changes, read_looks, undecided_changes
from sweeper.report.verdicts import ALPHA, LEVEL, Estimate, Extremes
from sweeper.spec import Claim, Grid, Search, Side, SpecError, Sweep, registry
from sweeper.spec.claim import EPOCH, meets, values_along
from sweeper.spec.sweep import REPLICATES
from sweeper.storage.files import Files
from sweeper.storage.load import load_history, select_request
from sweeper.storage.rows import plain_value
from sweeper.storage.store import StoreReader

UNITS = ("dataset", *REPLICATES)
"""Columns whose values repeat an experiment: trials pair by them."""
Parts = Sequence[Grid | Search]


class MissingRows(Exception):
    """Rows that a claim needs are not in the store: what is missing, as text."""


@dataclass(frozen=True)
class Judged:
    """A claim and what the rows of a preset say of it."""

    sweep: str
    paper: str
    preset: str
    claim: Claim
    verdict: str
    reason: str = ""
    """Why there is no verdict."""
    command: str = ""
    """What would run the rows that are missing."""
    left: float = math.nan
    right: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """The interval of the difference at `level`; NaN for fewer than two replicates."""
    level: float = LEVEL
    """Confidence level of the interval: 95 %, or more where several looks are paid for."""
    looks: tuple[int, ...] = ()
    """Seeds at each look of `--decide`, the last of which has given the verdict."""
    n: int = 0
    """Replicates, or pairs of them."""
    paired: bool = False
    p: float = 1.0
    """The smallest level at which the verdict is given, the looks paid for."""
    holm: float = 1.0
    """The same, adjusted for all claims that were judged together."""
    samples: tuple[pd.DataFrame, ...] = ()
    """Of each side a row for each replicate, a column for each value along which it is taken."""


@dataclass(frozen=True)
class SweepRows:
    """The finished rows of a request of a sweep, and its history."""

    sweep: Sweep
    preset: str
    rows: pd.DataFrame
    ended: pd.DataFrame
    """The rows of all trials, also of those that did not finish."""
    history: pd.DataFrame

    def with_seeds(self, seeds: Collection[int]) -> "SweepRows":
        """Return the rows with one of these seeds, and those without any."""
        if "seed" not in self.ended:
            return self
        rows, ended = (frame[frame["seed"].isna() | frame["seed"].isin(seeds)] for frame in (self.rows, self.ended))
        return replace(self, rows=rows.reset_index(drop=True), ended=ended)

    @property
    def parts(self) -> Parts:
        return self.sweep.parts(self.preset)

    @property
    def command(self) -> str:
        return f"python -m sweeper.run {self.sweep.name} --preset {self.preset}"


def judge(files: Files, sweep: Sweep, preset: str, changes: str = "", *, alpha: float = ALPHA) -> list[Judged]:
    """Judge all claims of a preset by the rows of a request: the preset's, with `changes` such as `epochs=5`. A claim
    for which `--decide` has added seeds is judged on those and at the level of its last look.

    Rows of another sweep are those of its preset of the same name. Raises StoreError for a store that cannot be read.
    """
    changes = undecided_changes(changes)
    looks = read_looks(files, sweep.name, preset, changes)
    return judge_at(files, sweep, preset, changes, looks, alpha=alpha)


def judge_at(
    files: Files, sweep: Sweep, preset: str, changes: str, looks: Looks | None, *, alpha: float = ALPHA
) -> list[Judged]:
    """Judge as `judge` at these looks."""
    known: dict[str, SweepRows] = {}

    def rows_of(side: Side, claim: Claim) -> SweepRows:
        if side.sweep not in known:
            other = registry.find(side.sweep) if side.sweep else sweep
            further = not side.sweep and looks and looks.added
            known[side.sweep] = _read(files, other, preset, decided_changes(changes) if further else changes)
        source = known[side.sweep]
        return source if side.sweep or not looks else source.with_seeds(looks.seeds_of(claim.name))

    def judged(claim: Claim) -> Judged:
        sources = [rows_of(side, claim) for side in claim.sides]
        share = looks.share(claim.name) if looks else 1.0
        found = _judged(claim, sweep, preset, sources, alpha * share)
        taken = looks.taken.get(claim.name, ()) if looks else ()
        return replace(found, level=1 - alpha * share, looks=taken, p=min(1.0, found.p / share))

    return [judged(claim) for claim in sweep.claims_of(preset)]


def with_holm(judged: Sequence[Judged]) -> list[Judged]:
    """Return the claims with their p-values adjusted for the number of those that have an interval."""
    tested = [index for index, each in enumerate(judged) if not math.isnan(each.low)]
    adjusted = dict(zip(tested, verdicts.holm([judged[index].p for index in tested]), strict=True))
    return [replace(each, holm=adjusted.get(index, 1.0)) for index, each in enumerate(judged)]


def corrected(judged: Iterable[Judged], alpha: float = ALPHA) -> list[Judged]:
    """Return the claims with the verdicts that Holm's correction leaves."""
    return [
        replace(each, verdict="undecided", reason="by Holm's correction")
        if _decided(each) and each.holm > alpha
        else each
        for each in judged
    ]


def wrong_by_chance(judged: Sequence[Judged], alpha: float = ALPHA) -> float:
    """Return the most verdicts that are expected to be wrong: alpha for each claim with an interval."""
    return alpha * sum(not math.isnan(each.low) for each in judged)


def table(judged: Sequence[Judged]) -> pd.DataFrame:
    """Return the claims as a frame, one row each."""
    records = [
        {
            "claim": each.claim.name,
            "row": each.claim.row,
            "preset": each.preset,
            "verdict": each.verdict,
            "sentence": each.claim.sentence,
            "judge": each.claim.text,
            "paper": each.paper,
            "place": each.claim.place,
            "published": each.claim.published,
            **{name: getattr(each, name) for name in ("left", "right", "difference", "low", "high", "n", "paired")},
            **{name: getattr(each, name) for name in ("p", "holm", "reason", "command", "level")},
            "looks": list(each.looks),
        }
        for each in judged
    ]
    columns = ["claim", "row", "preset", "verdict"]
    return pd.DataFrame(records) if records else pd.DataFrame({name: pd.Series(dtype="str") for name in columns})


def by_row(judged: Sequence[Judged]) -> dict[str, str]:
    """Return row of the ledger -> the verdict over its parts."""
    rows: dict[str, list[Any]] = {}
    for each in judged:
        rows.setdefault(each.claim.row, []).append(each.verdict)
    return {row: verdicts.together(found) for row, found in rows.items()}


def _decided(judged: Judged) -> bool:
    return judged.verdict in ("holds", "refuted")


def _read(files: Files, sweep: Sweep, preset: str, changes: str) -> SweepRows:
    if preset not in sweep.presets:
        raise SpecError(
            f"a claim compares with preset {preset} of sweep {sweep.name}, which has: {', '.join(sweep.presets)}"
        )
    stored = StoreReader(files).rows(sweep.name)
    rows, history = pd.DataFrame(), pd.DataFrame()
    if stored is not None:
        try:
            rows = select_request(files, sweep.name, stored.to_pandas(), preset, changes)
        except StoreError:  # none yet
            rows = pd.DataFrame()
        if len(rows) and any(side.from_history for claim in sweep.claims for side in claim.sides):
            history = load_history(sweep.name, files)
            history = history[history["trial_id"].isin(rows["trial_id"])]
    finished = rows[rows["status"] == "finished"].reset_index(drop=True) if len(rows) else rows
    return SweepRows(sweep, preset, finished, rows, history)


def _judged(claim: Claim, sweep: Sweep, preset: str, sources: Sequence[SweepRows], alpha: float) -> Judged:
    about: dict[str, Any] = {"sweep": sweep.name, "paper": claim.paper or sweep.paper, "preset": preset, "claim": claim}
    wanted = [side.wanted(source.parts) for side, source in zip(claim.sides, sources, strict=True)]
    pinned = {key for where in wanted for key in where} | {key for side in claim.sides for key in side.keys}
    units = [name for name in UNITS if name not in pinned]
    try:
        samples = [_sample(side, source, units) for side, source in zip(claim.sides, sources, strict=True)]
    except MissingRows as missing:
        commands = " && ".join(dict.fromkeys(source.command for source in sources if _lacks_rows(source)))
        return Judged(**about, verdict="not run", reason=str(missing), command=commands or sources[0].command)
    except ValueError as error:
        return Judged(**about, verdict="undecided", reason=str(error))
    paired = len(samples) > 1 and sources[0].sweep.name == sources[1].sweep.name
    if paired:
        shared = samples[0].index.intersection(samples[1].index)
        paired = len(shared) > 0
        samples = [sample.loc[shared] for sample in samples] if paired else samples
    estimate, ends = _compare(claim, sources, samples, paired)
    found: dict[str, Any] = {**about, "left": ends[0], "right": ends[1], "difference": estimate.value, "n": estimate.n}
    found |= {"paired": paired, "samples": tuple(samples)}
    verdict = verdicts.verdict(estimate, claim.relation, claim.margin, alpha)
    if estimate.bounds is None:
        return Judged(**found, verdict=verdict, reason=f"{'one replicate' if estimate.n else 'no pairs'}: no interval")
    low, high = estimate.bounds(alpha)
    p = verdicts.p_value(estimate, claim.relation, claim.margin)
    return Judged(**found, verdict=verdict, low=low, high=high, p=p)


def _lacks_rows(source: SweepRows) -> bool:
    return len(source.ended) < sum(part.count for part in source.parts)


def _selected(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    for key, wanted in where.items():
        if key not in rows:
            return rows.iloc[:0]
        rows = rows[[meets(plain_value(value), wanted) for value in rows[key]]]
    return rows


def _sample(side: Side, source: SweepRows, units: Sequence[str]) -> pd.DataFrame:
    """Return the values of a side: a row for each replicate that has all of them, a column for each value along which
    it is taken. For a correlation of metrics a column is a pair of the metric and a cell.

    Raises MissingRows for rows that are not there, and ValueError if they have no value.
    """
    where = {key: wanted for key, wanted in side.wanted(source.parts).items() if key != EPOCH}
    rows = _selected(source.rows, where)
    if rows.empty:
        _raise_missing(side, source, where)
    if side.from_history:
        metric = source.history[source.history["metric"] == side.metric] if len(source.history) else source.history
        reports = (
            metric[["trial_id", "epoch", "value"]]
            if len(metric)
            else pd.DataFrame(columns=["trial_id", "epoch", "value"])
        )
        if EPOCH in side.where:
            reports = reports[[meets(int(epoch), side.where[EPOCH]) for epoch in reports["epoch"]]]
        rows = rows.drop(columns=["epoch", "value"], errors="ignore").merge(reports, on="trial_id")
        if rows.empty:
            raise ValueError(f"no report of {side.metric} at these epochs")
    names, columns = ["value"], [EPOCH] if side.along == EPOCH else list(side.keys)
    if not side.from_history:
        rows = rows.assign(value=rows.get(side.metric, math.nan))
    if side.of_metric:
        rows = rows.assign(other=rows.get(side.along, math.nan))
        names, columns = ["value", "other"], _varying(source.parts, rows, units)
    rows = rows.dropna(subset=names)
    if rows.empty:
        raise ValueError(
            f"no trial has a value of {f'{side.metric} and {side.along}' if side.of_metric else side.metric}"
        )
    found = set(rows[side.keys[0]].map(plain_value)) if len(side.keys) == 1 else set()
    lacking = [value for value in values_along(source.parts, side) if found and value not in found]
    if lacking:
        ended = _selected(source.ended, {**where, side.keys[0]: tuple(lacking)})
        text = f"no finished trial of {side.keys[0]}={'/'.join(map(str, lacking))}"
        raise ValueError(text) if len(ended) else MissingRows(text)
    own = [name for name in units if name in rows]
    index = (
        pd.MultiIndex.from_frame(rows[own].astype(object).where(rows[own].notna(), ""))
        if own
        else pd.Index([0] * len(rows))
    )
    grouped = rows.set_index(index) if own else rows.set_axis(index, axis=0)
    levels: list[Any] = list(range(len(own))) if own else [0]
    if not columns:
        return grouped.groupby(level=levels, sort=True)[names].mean()
    cells = grouped[columns].apply(tuple, axis=1) if len(columns) > 1 else grouped[columns[0]].map(plain_value)
    keyed = grouped.assign(cell=list(cells))
    wide = (
        keyed.groupby([*(keyed.index.get_level_values(level) for level in levels), "cell"])[names]
        .mean()
        .unstack("cell")
    )
    wide = wide.dropna(axis=0)
    return wide if side.of_metric else wide["value"]


def _raise_missing(side: Side, source: SweepRows, where: Mapping[str, Any]) -> None:
    """Raise MissingRows, or ValueError if the trials have ended without a result."""
    text = Side(side.metric, where).text.partition("{")[2].rstrip("}")
    ended = _selected(source.ended, where)
    if len(ended):
        counts = ", ".join(f"{count} {status}" for status, count in ended["status"].value_counts().items())
        raise ValueError(f"no finished trial of {text}: {counts}")
    raise MissingRows(f"no rows of {text}" if text and len(source.ended) else "no rows")


def _varying(parts: Parts, rows: pd.DataFrame, units: Sequence[str]) -> list[str]:
    """Return the hyperparameters that make the cells of a correlation of metrics: those that vary in the preset."""
    keys = dict.fromkeys(key for part in parts for key in (*part.axes, *part.fixed))
    return [key for key in keys if key in rows and key not in units and rows[key].nunique(dropna=False) > 1]


def _compare(
    claim: Claim, sources: Sequence[SweepRows], samples: Sequence[pd.DataFrame], paired: bool
) -> tuple[Estimate, tuple[float, float]]:
    """Return the difference of the sides of a claim, and the value of each."""
    alone = [_alone(side, sample) for side, sample in zip(claim.sides, samples, strict=True)]
    if not isinstance(claim.right, Side):
        return alone[0].minus(claim.right), (alone[0].value, float(claim.right))
    left, right = (_extremes(side, sample) for side, sample in zip(claim.sides, samples, strict=True))
    return verdicts.difference(left, right, paired), (alone[0].value, alone[1].value)


def _alone(side: Side, sample: pd.DataFrame) -> Estimate:
    """Return what a side is by itself."""
    values = sample.to_numpy(dtype=float)
    if side.take in ("argmax", "argmin"):
        return verdicts.argmax(values if side.take == "argmax" else -values, [float(key) for key in sample.columns])
    if side.of_metric:
        return verdicts.correlation_of_metrics(sample["value"].to_numpy(float), sample["other"].to_numpy(float))
    if side.take == "correlation":
        return verdicts.correlation(values, np.array([float(key) for key in sample.columns]))
    if side.take == "deviation" and set(side.keys) & set(UNITS):
        return verdicts.deviation(values.mean(axis=0))
    return verdicts.difference(_extremes(side, sample), None)


def _extremes(side: Side, sample: pd.DataFrame) -> Extremes:
    values = sample.to_numpy(dtype=float)
    if side.take == "deviation":
        return verdicts.mean(values.std(axis=1, ddof=1))
    if side.take == "mean":
        return verdicts.mean(values.mean(axis=1))
    take = {"largest": verdicts.largest, "smallest": verdicts.smallest, "range": verdicts.value_range}
    return take[side.take](values)
