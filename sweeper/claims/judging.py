"""Claims judged by their samples of the rows of a store: verdicts, and their table."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pandas as pd

from sweeper.claims import verdicts
from sweeper.claims.claim import Claim, Side, check_claims, value_text
from sweeper.claims.interim import InterimAnalyses, read_analyses
from sweeper.claims.samples import (
    DATASET,
    MissingRows,
    Sample,
    SweepRows,
    chosen_rows,
    missing_fixed,
    replicate_names,
    run_command,
    sample,
)
from sweeper.claims.verdicts import Verdict
from sweeper.definition import Metric, SpecError, Sweep, registry
from sweeper.errors import StoreError
from sweeper.planning.changes import changed_keys
from sweeper.results import estimates
from sweeper.results.estimates import ALPHA, LEVEL, MIN_REPLICATES, Bounds, Estimate, Extremes
from sweeper.results.judging import judging_rows
from sweeper.results.sentences import counted
from sweeper.storage.files import Files
from sweeper.storage.layout import claims_path
from sweeper.storage.load import load_history, select_request
from sweeper.storage.requests import decided_changes, request_name, undecided_changes
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
    """Why there is no verdict, or which of several interim analyses it is, and the level of its interval."""
    command: str = ""
    """What would run the rows that are missing."""
    left: float = math.nan
    right: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    """The interval of the difference at `level`; NaN if there is none."""
    level: float = LEVEL
    """Confidence level of the interval: 95 %, or more where several interim analyses share the level."""
    analyses: tuple[int, ...] = ()
    """Seeds at each interim analysis of `--decide`, the last of which has given the verdict."""
    n: int = 0
    """Replicates, or pairs of them; where there are too few of these, what is named in `over`."""
    over: str = ""
    """What its interval is over, if that is not replicates: `10 classes of one seed`."""
    paired: bool = False
    p: float = 1.0
    """The smallest alpha at which the verdict is given, over all interim analyses."""
    p_of_analysis: float = 1.0
    """The same of the last analysis alone."""
    holm: float = 1.0
    """The same, adjusted for all claims that were judged together."""
    data: str = ""
    """The data sets of the rows."""
    trials: tuple[Mapping[str, Any], ...] = ()
    """The rows behind it: `side` (`left` or `right`), `trial`, `at` (its replicate, and its value along the key), and
    `value`, which is the mean over the epochs of a side that reads the history."""


def judge(files: Files, sweep: Sweep, preset: str, changes: str = "", *, alpha: float = ALPHA) -> list[Judged]:
    """Judge all claims of a preset by the rows of a request: the preset's, with `changes` such as `seed=3,4`. Rows that
    are of other data, methods or settings than the preset's are left out (`sweeper.definition.judging`). A claim for
    which `--decide` has added seeds is judged on those and at the level of its last interim analysis.

    Rows of another sweep are those of its preset of the same name. Raises SpecError for a claim that does not fit the
    preset, and StoreError for a store that cannot be read.
    """
    check_claims(sweep, preset)
    changes = undecided_changes(changes)
    analyses = read_analyses(files, sweep.name, preset, changes)
    return judge_at(files, sweep, preset, changes, analyses, alpha=alpha)


def judge_at(
    files: Files, sweep: Sweep, preset: str, changes: str, analyses: InterimAnalyses | None, *, alpha: float = ALPHA
) -> list[Judged]:
    """Judge as `judge` at these interim analyses."""
    known: dict[str, SweepRows] = {}

    def rows_of(side: Side, claim: Claim) -> SweepRows:
        if side.sweep not in known:
            other = registry.find(side.sweep) if side.sweep else sweep
            further = not side.sweep and analyses and analyses.added
            known[side.sweep] = _read(files, other, preset, decided_changes(changes) if further else changes)
        source = known[side.sweep]
        return source if side.sweep or not analyses else source.with_seeds(analyses.seeds_of(claim.name))

    def judged(claim: Claim) -> Judged:
        sources = [rows_of(side, claim) for side in claim.sides]
        share = analyses.share(claim.name) if analyses else 1.0
        found = _judged(claim, sweep, preset, sources, alpha * share)
        taken = analyses.taken.get(claim.name, ()) if analyses else ()
        if not taken:
            return found
        level, p = 1 - alpha * share, min(1.0, found.p / share)
        analysed = f"interim analysis {len(taken)} at {taken[-1]} seeds, with an interval at {100 * level:.1f} %"
        return replace(
            found, level=level, analyses=taken, p=p, reason="; ".join(filter(None, [found.reason, analysed]))
        )

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


def counts_text(judged: Sequence[Judged]) -> str:
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
            "looks": list(each.analyses),
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
    try:
        chosen = [chosen_rows(side, source) for side, source in zip(claim.sides, sources, strict=True)]
        samples = _samples(claim, sources, chosen)
    except MissingRows as missing:
        lacking = [source.command for source in sources if _lacks_rows(source)] or [sources[0].command]
        again = " --fresh" if missing.outdated else ""
        commands = " && ".join(f"{command}{again}" for command in dict.fromkeys(lacking))
        return Judged(**about, verdict=NOT_RUN, reason=str(missing), command=commands)
    except ValueError as error:
        return Judged(**about, verdict="undecided", reason=str(error))
    lacks = dict.fromkeys(map(missing_fixed, claim.sides, sources, samples))
    samples, paired = _aligned(claim, sources, samples)
    estimate, ends = _compare(claim, samples, paired)
    if estimate.n < MIN_REPLICATES and (of_fixed := _over_fixed(claim, sources, samples, alpha)):
        estimate, ends = of_fixed
    found: dict[str, Any] = {**about, "left": ends[0], "right": ends[1], "difference": estimate.value, "n": estimate.n}
    data = dict.fromkeys(str(value) for rows in chosen if DATASET in rows for value in rows[DATASET].dropna())
    found |= {
        "paired": paired or bool(estimate.over),
        "data": ", ".join(data),
        "trials": _behind(claim.sides, sources, chosen),
    }
    found |= {"over": estimate.over}
    verdict = verdicts.verdict(estimate, claim.relation, claim.margin, alpha)
    if estimate.bounds is None:
        return Judged(**found, verdict=verdict, reason="; ".join(filter(None, [_lack(estimate, samples), *lacks])))
    low, high = estimate.bounds(alpha)
    p = verdicts.p_value(estimate, claim.relation, claim.margin)
    equal = "all replicates are equal: they show no spread" if math.isinf(low) and math.isinf(high) else ""
    over = f"over {estimate.over}: it says nothing of other seeds" if estimate.over else ""
    reason = "; ".join(filter(None, [equal, over, _substituted_data(claim, list(data)), *lacks]))
    return Judged(**found, verdict=verdict, reason=reason, low=low, high=high, p=p, p_of_analysis=p)


def _samples(claim: Claim, sources: Sequence[SweepRows], chosen: Sequence[pd.DataFrame]) -> list[Sample]:
    """Return the samples of the sides. Those of one sweep have the same replicates."""
    keys = {key for side in claim.sides for key in side.keys}
    found = []
    for side, source, rows in zip(claim.sides, sources, chosen, strict=True):
        same = [other for other, own in zip(chosen, sources, strict=True) if own.sweep.name == source.sweep.name]
        found.append(sample(side, source, rows, replicate_names(source.sweep, keys, same)))
    return found


def _aligned(claim: Claim, sources: Sequence[SweepRows], samples: list[Sample]) -> tuple[list[Sample], bool]:
    """Return the samples of two sides of one sweep over what both have, and whether their replicates are pairs."""
    if len(samples) < 2 or sources[0].sweep.name != sources[1].sweep.name:
        return samples, False
    names = _compared(claim, sources, samples)
    both = {*samples[0].fixed_at(names)} & {*samples[1].fixed_at(names)}
    samples = [each.of_fixed(names, both) for each in samples] if both else samples
    shared = [label for label in samples[0].replicates if label in samples[1].replicates]
    return ([each.of_replicates(shared) for each in samples], True) if shared else (samples, False)


def _compared(claim: Claim, sources: Sequence[SweepRows], samples: Sequence[Sample]) -> list[str]:
    """Return the fixed columns that both sides have the mean over: those that no condition of the claim selects."""
    selected = {key for side, source in zip(claim.sides, sources, strict=True) for key in side.wanted(source.parts)}
    return [name for name in samples[0].fixed_names if name in samples[-1].fixed_names and name not in selected]


def _over_fixed(
    claim: Claim, sources: Sequence[SweepRows], samples: Sequence[Sample], alpha: float
) -> tuple[Estimate, tuple[float, float]] | None:
    """Return the difference of two means over what is fixed, such as classes, and the means, if it has an interval."""
    if len(samples) < 2 or any(side.take != "mean" for side in claim.sides):
        return None
    names = _compared(claim, sources, samples)
    left, right = (each.by_fixed(names) for each in samples)
    both = [label for label in left if label in right]
    varying = [name for place, name in enumerate(names) if len({label[place] for label in both}) > 1]
    of_seeds = counted(max(len(each.replicates) for each in samples), ["seed"])
    what = f"{counted(len(both), varying)} of {of_seeds}"
    lefts, rights = (np.array([means[label] for label in both]) for means in (left, right))
    estimate = estimates.over_fixed(lefts - rights, what)
    if estimate.bounds is None or not any(map(math.isfinite, estimate.bounds(alpha))):
        return None
    return estimate, (float(lefts.mean()), float(rights.mean()))


def _lack(estimate: Estimate, samples: Sequence[Sample]) -> str:
    """Return why an estimate has no interval, and how many replicates would give it one."""
    if estimate.n >= MIN_REPLICATES:
        return f"{estimate.reason}: no interval"
    if all(each.takes_no_seed for each in samples):
        return f"{estimate.reason}: no interval, because the method takes no seed"
    return f"{estimate.reason}: an interval needs {counted(MIN_REPLICATES, samples[0].replicate_names or ['seed'])}"


def _substituted_data(claim: Claim, data: Sequence[str]) -> str:
    """Return which data sets were judged in place of those that the claim is about, if they are others."""
    named = {str(side.where[DATASET]) for side in claim.sides if DATASET in side.where} - set(data)
    return f"on {', '.join(data)} in place of {', '.join(sorted(named))}" if named and data else ""


def _lacks_rows(source: SweepRows) -> bool:
    return len(source.ended) < sum(part.count for part in source.parts)


def _behind(
    sides: Sequence[Side], sources: Sequence[SweepRows], chosen: Sequence[pd.DataFrame]
) -> tuple[Mapping[str, Any], ...]:
    """Return the rows behind a verdict, those of each side in their order."""
    found: list[Mapping[str, Any]] = []
    for name, side, source, rows in zip(("left", "right"), sides, sources, chosen, strict=False):
        keys = [key for key in dict.fromkeys((*side.keys, *source.repeating)) if key in rows]
        varying = [key for key in keys if rows[key].nunique(dropna=False) > 1]
        shown = [key for key in keys if key in varying or (key == "seed" and rows[key].notna().all())]
        means = rows.groupby("trial_id", sort=False).agg({**dict.fromkeys(shown, "first"), "value": "mean"})
        for trial, record in zip(means.index, means.to_dict("records"), strict=True):
            at = ", ".join(f"{key}={value_text(plain_value(record[key]))}" for key in shown)
            found.append({"side": name, "trial": str(trial), "at": at, "value": float(record["value"])})
    return tuple(found)


def _compare(claim: Claim, samples: Sequence[Sample], paired: bool) -> tuple[Estimate, tuple[float, float]]:
    """Return the difference of the sides of a claim, and the value of each. What a method scores that takes no seed is
    a number, without an error."""
    values = [each.means_MNK for each in samples]
    known = [~np.isnan(means_MNK).any((0, 2)) for means_MNK in values]
    if paired:  # a replicate that one side lacks is no pair
        known = [known[0] & known[1]] * 2
    values = [means_MNK[:, own] for means_MNK, own in zip(values, known, strict=True)]
    if not isinstance(claim.right, Side):
        alone = _alone(claim.left, samples[0], values[0])
        return alone.minus(claim.right), (alone.value, float(claim.right))
    left, right = (
        _extremes(side, each, of_side) for side, each, of_side in zip(claim.sides, samples, values, strict=True)
    )
    ends = (estimates.difference(left, None).value, estimates.difference(right, None).value)
    if paired and (itself := _itself(claim, samples)):
        number, column, sign = itself
        others = np.delete(values[number], column, axis=2)
        of_others = _extremes(claim.sides[number], samples[number], others)
        sides = (of_others, right) if number == 0 else (left, of_others)
        return _one_sided(estimates.difference(*sides), sign), ends
    exact = [each.takes_no_seed and not math.isnan(end) for each, end in zip(samples, ends, strict=True)]
    if exact[0] == exact[1]:
        return estimates.difference(left, right, paired), ends
    if exact[1]:
        return estimates.difference(left, None).minus(ends[1]), ends
    return estimates.difference(right.negated, None).minus(-ends[0]), ends


def _itself(claim: Claim, samples: Sequence[Sample]) -> tuple[int, int, int] | None:
    """Return where one side is the largest or smallest of several means, of which one is the other side by the same
    trials: the number of the first, the column of the other in it, and 1 if the difference is therefore at least 0, or
    -1 if it is at most 0. What is compared with itself differs by 0, without an error."""
    for number, side in enumerate(claim.sides):
        other = claim.sides[1 - number]
        same = (side.metric, side.from_history, side.sweep) == (other.metric, False, other.sweep)
        if side.take in ("largest", "smallest") and other.take == "mean" and same:
            found = [
                place for place, trials in enumerate(samples[number].trials) if trials == samples[1 - number].trials[0]
            ]
            if found and len(samples[number].trials) > 1:
                return number, found[0], 1 if (side.take == "largest") == (number == 0) else -1
    return None


def _one_sided(estimate: Estimate, sign: int) -> Estimate:
    """Return the estimate of the larger of 0 and a number for the `sign` 1, or of the smaller for -1."""
    inner = estimate.bounds
    lowest, highest = (0.0, math.inf) if sign > 0 else (-math.inf, 0.0)

    def bounds(alpha: float) -> Bounds:
        assert inner
        low, high = inner(alpha)
        return min(max(low, lowest), highest), min(max(high, lowest), highest)

    return replace(estimate, value=min(max(estimate.value, lowest), highest), bounds=inner and bounds)


def _alone(side: Side, found: Sample, values_MNK: np.ndarray) -> Estimate:
    """Return what a side is by itself."""
    if side.of_metric:
        return estimates.correlation_of_metrics(*values_MNK)
    (values,) = values_MNK
    if side.take in ("argmax", "argmin"):
        return estimates.argmax(values if side.take == "argmax" else -values, [float(key) for key in found.columns])
    if side.take == "correlation":
        return estimates.correlation(values, np.array([float(key) for key in found.columns]))
    return estimates.difference(_extremes(side, found, values_MNK), None)


def _extremes(side: Side, found: Sample, values_MNK: np.ndarray) -> Extremes:
    """Return the number that a side is, by the means of its replicates. A deviation is that of each replicate, then the
    mean over the replicates."""
    (values,) = values_MNK
    share = Metric(side.metric).bounds is not None
    match side.take:
        case "deviation":
            return estimates.mean(values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.full(len(values), math.nan))
        case "settled":
            return estimates.mean(estimates.settled(values, np.array([float(key) for key in found.columns])))
        case "range":
            return estimates.value_range(values)
        case "largest":
            return estimates.largest(values, share)
        case "smallest":
            return estimates.smallest(values, share)
        case _:
            return estimates.mean(values.mean(axis=1), share)
