"""Claims judged by their samples of the rows of a store: verdicts, and their table."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pandas as pd

from sweeper.errors import StoreError
from sweeper.plan.changes import changed_keys
from sweeper.report import verdicts
from sweeper.report.looks import Looks, decided_changes, read_looks, undecided_changes
from sweeper.report.samples import (
    DATASET,
    UNITS,
    MissingRows,
    SweepRows,
    chosen_rows,
    judging_rows,
    over_datasets,
    run_command,
    sample,
    units_of,
)
from sweeper.report.verdicts import ALPHA, LEVEL, Estimate, Extremes, Verdict
from sweeper.results.sentences import short_text
from sweeper.spec import Claim, Side, SpecError, Sweep, registry
from sweeper.storage.files import Files
from sweeper.storage.layout import claims_path
from sweeper.storage.load import load_history, select_request
from sweeper.storage.requests import request_name
from sweeper.storage.rows import plain_value
from sweeper.storage.store import StoreReader

NOT_RUN = "not run"
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Judged:
    """A claim and what the rows of a preset say of it."""

    sweep: str
    paper: str
    preset: str
    claim: Claim
    verdict: str
    reason: str = ""
    """Why there is no verdict, or which of several looks it is and what that costs."""
    command: str = ""
    """What would run the rows that are missing."""
    left: float = math.nan
    right: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """The interval of the difference at `level`; NaN if there is none."""
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
    data: str = ""
    """The data sets of the rows."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """The rows behind it: `side` (`left` or `right`), `trial`, `at` (its replicate, and its value along the key), and
    `value`, which is the mean over the epochs of a side that reads the history."""


def judge(files: Files, sweep: Sweep, preset: str, changes: str = "", *, alpha: float = ALPHA) -> list[Judged]:
    """Judge all claims of a preset by the rows of a request: the preset's, with `changes` such as `seed=3,4`. Rows that
    are of other data, methods or settings than the preset's are left out (`sweeper.spec.claim.judging`). A claim for
    which `--decide` has added seeds is judged on those and at the level of its last look.

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
        if not taken:
            return found
        level, p = 1 - alpha * share, min(1.0, found.p / share)
        cost = f"look {len(taken)} at {taken[-1]} seeds, paid for by an interval at {100 * level:.1f} %"
        return replace(found, level=level, looks=taken, p=p, reason="; ".join(filter(None, [found.reason, cost])))

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


def write(files: Files, sweep: Sweep, preset: str, changes: str = "") -> list[Judged]:
    """Judge all claims of a preset, and write the table of the request."""
    judged = with_holm(judge(files, sweep, preset, changes))
    write_table(files, sweep.name, request_name(preset, changes), judged)
    return judged


def write_table(files: Files, sweep: str, request: str, judged: Sequence[Judged]) -> None:
    """Write the table of a request. Without any of its rows, when there may be no store, only an earlier table is
    replaced."""
    path = claims_path(sweep, request)
    folder, _, file = path.rpartition("/")
    if any(each.verdict != NOT_RUN for each in judged) or file in files.list(folder):
        files.write(path, table(judged).to_parquet(index=False))


def counted(judged: Sequence[Judged]) -> str:
    """Return how many claims have each verdict, as text."""
    counts, reasons = Counter(each.verdict for each in judged), {each.reason for each in judged}
    text = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    return f"{text} ({reasons.pop()})" if counts[NOT_RUN] == len(judged) and len(reasons) == 1 else text


def wrong_by_chance(judged: Sequence[Judged], alpha: float = ALPHA) -> float:
    """Return the expected number of intervals that miss the truth, as wrong verdicts do: alpha for each interval."""
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
            "relation": each.claim.relation,
            "margin": each.claim.margin,
            **{name: getattr(each, name) for name in ("left", "right", "difference", "low", "high", "n", "paired")},
            **{name: getattr(each, name) for name in ("p", "holm", "reason", "command", "data", "level")},
            "looks": list(each.looks),
            "trials": list(each.trials),
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
    rows, history, left_out = pd.DataFrame(), pd.DataFrame(), tuple[str, ...]()
    if stored is not None:
        try:
            rows = select_request(files, sweep.name, stored.to_pandas(), preset, changes)
        except StoreError:  # none yet
            rows = pd.DataFrame()
        of_request, rows = rows, judging_rows(rows, sweep.parts(preset), changed_keys(changes))
        left_out = changed_keys(changes) if len(rows) < len(of_request) else ()
        if len(rows) and any(side.from_history for claim in sweep.claims for side in claim.sides):
            history = load_history(sweep.name, files)
            history = history[history["trial_id"].isin(rows["trial_id"])]
    finished = rows[rows["status"] == "finished"].reset_index(drop=True) if len(rows) else rows
    command = run_command(sweep.name, preset, files.display_uri, changes)
    return SweepRows(sweep, preset, finished, rows, history, command, left_out)


def _judged(claim: Claim, sweep: Sweep, preset: str, sources: Sequence[SweepRows], alpha: float) -> Judged:
    about: dict[str, Any] = {"sweep": sweep.name, "paper": claim.paper or sweep.paper, "preset": preset, "claim": claim}
    wanted = [side.wanted(source.parts) for side, source in zip(claim.sides, sources, strict=True)]
    pinned = {key for where in wanted for key in where} | {key for side in claim.sides for key in side.keys}
    try:
        chosen = [chosen_rows(side, source) for side, source in zip(claim.sides, sources, strict=True)]
        units = units_of(chosen, pinned)
        samples = [
            sample(side, source, units, rows) for side, source, rows in zip(claim.sides, sources, chosen, strict=True)
        ]
    except MissingRows as missing:
        lacking = [source.command for source in sources if _lacks_rows(source)] or [sources[0].command]
        again = " --fresh" if missing.outdated else ""
        commands = " && ".join(f"{command}{again}" for command in dict.fromkeys(lacking))
        return Judged(**about, verdict=NOT_RUN, reason=str(missing), command=commands)
    except ValueError as error:
        return Judged(**about, verdict="undecided", reason=str(error))
    paired = len(samples) > 1 and sources[0].sweep.name == sources[1].sweep.name
    if paired:
        shared = samples[0].index.intersection(samples[1].index)
        paired = len(shared) > 0
        samples = [sample.loc[shared] for sample in samples] if paired else samples
    samples = [over_datasets(sample) for sample in samples]
    estimate, ends = _compare(claim, sources, samples, paired)
    found: dict[str, Any] = {**about, "left": ends[0], "right": ends[1], "difference": estimate.value, "n": estimate.n}
    data = dict.fromkeys(str(value) for rows in chosen if DATASET in rows for value in rows[DATASET].dropna())
    found |= {"paired": paired, "data": ", ".join(data), "trials": _behind(claim.sides, chosen)}
    verdict = verdicts.verdict(estimate, claim.relation, claim.margin, alpha)
    if estimate.bounds is None:
        return Judged(**found, verdict=verdict, reason=f"{estimate.reason}: no interval")
    low, high = estimate.bounds(alpha)
    p = verdicts.p_value(estimate, claim.relation, claim.margin)
    equal = "all replicates are equal: they show no spread" if math.isinf(low) and math.isinf(high) else ""
    reason = "; ".join(filter(None, [equal, _stand_in(claim, list(data))]))
    return Judged(**found, verdict=verdict, reason=reason, low=low, high=high, p=p)


def _stand_in(claim: Claim, data: Sequence[str]) -> str:
    """Return which data sets were judged in place of those that the claim is about, if they are others."""
    named = {str(side.where[DATASET]) for side in claim.sides if DATASET in side.where} - set(data)
    return f"on {', '.join(data)} in place of {', '.join(sorted(named))}" if named and data else ""


def _lacks_rows(source: SweepRows) -> bool:
    return len(source.ended) < sum(part.count for part in source.parts)


def _behind(sides: Sequence[Side], chosen: Sequence[pd.DataFrame]) -> tuple[Mapping[str, Any], ...]:
    """Return the rows behind a verdict, those of each side in their order."""
    found: list[Mapping[str, Any]] = []
    for name, side, rows in zip(("left", "right"), sides, chosen, strict=False):
        keys = [key for key in dict.fromkeys((*side.keys, *UNITS)) if key in rows]
        varying = [key for key in keys if rows[key].nunique(dropna=False) > 1]
        shown = [key for key in keys if key in varying or (key == "seed" and rows[key].notna().all())]
        means = rows.groupby("trial_id", sort=False).agg({**dict.fromkeys(shown, "first"), "value": "mean"})
        for trial, record in zip(means.index, means.to_dict("records"), strict=True):
            at = ", ".join(f"{key}={short_text(key, plain_value(record[key]))}" for key in shown)
            found.append({"side": name, "trial": str(trial), "at": at, "value": float(record["value"])})
    return tuple(found)


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
        both = (sample[name].to_numpy(float).reshape(len(sample), -1) for name in ("value", "other"))
        return verdicts.correlation_of_metrics(*both)
    if side.take == "correlation":
        return verdicts.correlation(values, np.array([float(key) for key in sample.columns]))
    if side.take == "deviation" and set(side.keys) & set(UNITS):
        return verdicts.deviation(values.mean(axis=0))
    return verdicts.difference(_extremes(side, sample), None)


def _extremes(side: Side, sample: pd.DataFrame) -> Extremes:
    values = sample.to_numpy(dtype=float)
    if side.take == "deviation":
        return verdicts.mean(values.std(axis=1, ddof=1))
    if side.take == "settled":
        return verdicts.mean(verdicts.settled(values, np.array([float(key) for key in sample.columns])))
    if side.take == "mean":
        return verdicts.mean(values.mean(axis=1))
    take = {"largest": verdicts.largest, "smallest": verdicts.smallest, "range": verdicts.value_range}
    return take[side.take](values)
