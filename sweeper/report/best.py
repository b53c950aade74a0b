"""What is said of a best setting: a sentence, the same everywhere, and which others are not worse within error.

A setting is worse if the 95 % interval of its difference from the best one is on that side of 0: by Student's t of the
differences where both have the same replicates (classes, else seeds), else by Welch's t. Each setting is compared by
itself.
Where all differences are equal, their error is not known, and the difference decides. Fewer than `MIN_REPLICATES` have
no error, so nothing is said of the others. Of single trials on one class the error is that over test images, as if
these were others for each, which makes the interval wider than it is.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from sweeper.plan.best_settings import NOUNS, BestSetting, NoneFeasible, Sample
from sweeper.plan.changes import format_value
from sweeper.report.compare import improvement, probable
from sweeper.report.verdicts import ALPHA, EQUAL, MIN_REPLICATES, difference, half_widths, mean
from sweeper.spec.metric import SPREADS, VALIDATION, Metric, Spread
from sweeper.spec.space import SEED
from sweeper.storage.rows import plain_value
from trainables.metrics.meanings import CHOSEN

MAX_BEST = 20
"""Most data sets or studies whose best setting is named."""
MOST_NOT_WORSE = 3
"""Most settings that are not worse within error whose hyperparameters a sentence names."""
ValueText = Callable[[str, object], str]
"""Name of a hyperparameter and its value -> the value as text."""


def short_text(name: str, value: object) -> str:
    """Return the text of a hyperparameter's value, of a number with at most four significant figures."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return format_value(value)  # type: ignore[arg-type]


def sentence(
    best: BestSetting, *, so_far: bool = False, value_text: ValueText = short_text, spread: Spread = "interval"
) -> str:
    """Return e.g. `best auroc_joint: 0.982 ± 0.012 (mean ± 95 % interval over 10 classes) at beta=0.5 nu=1; chosen on
    validation images (val_auroc_joint 0.979 ± 0.010); 1 of 55 others not worse within error: beta=1 nu=1`. With
    `so_far` not all trials have ended."""
    name = f"best {best.metric.label}{_about(best, so_far, value_text)}"
    value, choice = _value(best, spread), _choice(best, spread)
    at = _at(best.at, value_text)
    number = "" if best.number is None else f" (trial {best.number})"
    place = f"{f' at {at}' if at else ''}{number}{_scores(best)}"
    left_out = best.settings - best.compared - best.infeasible
    beyond = f"; {best.infeasible} of {best.settings} settings are {_infeasible(best)}" if best.infeasible else ""
    lacking = f"; {left_out} of {best.settings} settings lack results and are not compared" if left_out else ""
    return f"{name}: {value}{place}; {choice}{_ties(best, value_text)}{_ahead(best, value_text)}{beyond}{lacking}"


def _about(answer: BestSetting | NoneFeasible, so_far: bool, value_text: ValueText) -> str:
    """Return ` for QUESTION so far`, as far as there is a question, and trials are still to come."""
    question = ", ".join(_question(key, value, value_text) for key, value in answer.question.items())
    return f"{f' for {question}' if question else ''}{' so far' if so_far else ''}"


def _infeasible(answer: BestSetting | NoneFeasible) -> str:
    """Return e.g. `infeasible (seconds <= 60)`."""
    return f"infeasible ({', '.join(constraint.text for constraint in answer.constraints)})"


def _question(key: str, value: object, value_text: ValueText) -> str:
    if key != "study":
        return f"{key}={value_text(key, value)}"
    return "the grid" if value is None else f"study {value}"


def _at(values: Mapping[str, object], value_text: ValueText) -> str:
    return " ".join(f"{key}={value_text(key, value)}" for key, value in values.items())


def _ahead(best: BestSetting, value_text: ValueText) -> str:
    """Return of `CHOSEN` how probably a run of the best setting is better than one of the next best by the criterion on
    the same class: `; better than method=vje with a probability of 0.62 [0.51, 0.75]`. One run of each says nothing."""
    if best.metric.name != CHOSEN or not best.others:
        return ""
    own, other = best.sample.runs, best.others[0].runs
    classes = [each for each in own if other.get(each)]
    if len(own) > len(classes) or sum(len(own[each]) * len(other[each]) for each in classes) < 2:
        return ""
    sign = -best.metric.cost(1.0)
    worse, better = ([sign * np.array([*runs[each].values()]) for each in classes] for runs in (other, own))
    probability = probable(*improvement(worse, better))
    return f"; better than {_at(best.others[0].at, value_text)} with a probability of {probability}"


def sentences(
    found: Sequence[BestSetting],
    most: int,
    *,
    so_far: bool = False,
    value_text: ValueText = short_text,
    spread: Spread = "interval",
    none_feasible: Sequence[NoneFeasible] = (),
) -> list[str]:
    """Return a sentence for each of the first `most` best settings, and how many more there are; then one for each of
    the first questions of which none is best."""
    texts = [sentence(best, so_far=so_far, value_text=value_text, spread=spread) for best in found[:most]]
    without = [
        f"no best {answer.metric.label}{_about(answer, so_far, value_text)}: all {answer.infeasible} settings with a "
        f"value are {_infeasible(answer)}"
        for answer in none_feasible[:most]
    ]
    return [*texts, *([f"and {len(found) - most} more"] if len(found) > most else []), *without]


def chosen(best: BestSetting) -> str:
    """Return how it was chosen: `chosen on test images`, or `chosen on validation images (val_auroc_joint)`. The metric
    declares the data."""
    by = f" ({best.criterion})" if best.criterion.startswith(VALIDATION) else ""
    return f"chosen on {Metric(best.criterion).measured_on}{by}"


def _choice(best: BestSetting, spread: Spread) -> str:
    """Return how it was chosen, with the value by which it was where another one is shown: `chosen on validation images
    (val_auroc_joint 0.979 ± 0.010)`."""
    if best.choice is None:
        return chosen(best)
    mean, beside = estimate(best.choice, spread)
    return f"{chosen(best).removesuffix(')')} {_text(mean, beside, best.metric.percent)})"


def _scores(best: BestSetting) -> str:
    """Return the anomaly scores that the trials have chosen: `, score knn1_z`, or `, scores knn1_z (7), kde_z (3)`."""
    if len(best.scores) < 2:
        return f", score {next(iter(best.scores))}" if best.scores else ""
    return f", scores {', '.join(f'{name} ({count})' for name, count in best.scores.items())}"


def _ties(best: BestSetting, value_text: ValueText) -> str:
    """Return how many others are not worse within error, and the first of them; of `CHOSEN` also that none is, where
    errors are known."""
    alike, others = not_worse(best), len(best.others)
    if alike:
        names = [_at(other.at, value_text) for other in alike if other.at][:MOST_NOT_WORSE]
        rest = [f"{len(alike) - len(names)} more"] if names and len(alike) > len(names) else []
        named = f": {' and '.join(filter(None, [', '.join(names), *rest]))}" if names else ""
        return f"; {len(alike)} of {others} others not worse within error{named}"
    known = len(best.sample.values) >= MIN_REPLICATES or math.isfinite(best.sample.margin)
    if not others or best.metric.name != CHOSEN or not known:
        return ""
    return f"; {f'all {others} others are' if others > 1 else 'the other is'} worse beyond error"


def not_worse(best: BestSetting) -> list[Sample]:
    """Return the other settings that are not worse than the best one within error; none where errors are unknown."""
    own, sign = best.sample, best.metric.cost(1.0)
    several = len(own.values) >= MIN_REPLICATES
    paired = [other for other in best.others if several and other.values.keys() == own.values.keys()]
    found = {id(other): False for other in paired}
    found |= {id(other): _by_itself(own, other, sign) for other in best.others if id(other) not in found}
    if paired:
        values = np.array([[each.values[key] for key in own.values] for each in (own, *paired)])
        deltas = sign * (values[1:] - values[0])
        halves = half_widths(deltas.std(axis=1, ddof=1), np.array(len(own.values)))
        worse = deltas.mean(axis=1) - np.nan_to_num(halves) > EQUAL
        found |= {id(other): not is_worse for other, is_worse in zip(paired, worse, strict=True)}
    return [other for other in best.others if found[id(other)]]


def _by_itself(own: Sample, other: Sample, sign: float) -> bool:
    """Whether a setting with other replicates is not worse than the best one. A fixed value is a number."""
    first, second = (sign * np.array([*each.values.values()]) for each in (other, own))
    if math.isfinite(margin := math.hypot(own.margin, other.margin)):
        return float(first[0] - second[0]) <= margin
    if own.is_fixed and not other.is_fixed:
        estimate = difference(mean(first), None).minus(float(second[0]))
    elif other.is_fixed and not own.is_fixed:
        estimate = difference(mean(-second), None).minus(-float(first[0]))
    else:
        estimate = difference(mean(first), mean(second), paired=False)
    if estimate.bounds is None:
        return False
    low = estimate.bounds(ALPHA)[0]
    return not (low if math.isfinite(low) else estimate.value) > EQUAL


BEST, NOT_WORSE = "*", "°"
"""Marks of cells with a best setting, and of those with one that is not worse within error."""
LEGEND = f"{NOT_WORSE} not worse than the best: the 95 % interval of the difference has 0 or better"


def marks(cells: pd.DataFrame, rows: pd.DataFrame, axes: Sequence[str], best: Sequence[BestSetting]) -> list[str]:
    """Return the mark of each cell, or an empty text."""
    found = [""] * len(cells)
    alike = {trial for setting in best for other in not_worse(setting) for trial in other.trials}
    for trials, mark in ((alike, NOT_WORSE), ({trial for setting in best for trial in setting.values}, BEST)):
        for index in positions(cells, rows, axes, trials):
            found[index] = mark
    return found


def positions(
    cells: pd.DataFrame, rows: pd.DataFrame, axes: Sequence[str], trials: Collection[Hashable], by: str = "trial_id"
) -> list[int]:
    """Return the positions of the cells that have some of these trials, which the column `by` names. A trial that is in
    several rows, with several labels, counts for the first."""
    if by not in rows or not trials:
        return []
    chosen = rows[rows[by].isin(trials)].drop_duplicates(by)[[*axes]].drop_duplicates()
    keys = {tuple(map(plain_value, key)) for key in zip(*(chosen[axis] for axis in axes), strict=True)}
    places = zip(*(cells[axis] for axis in axes), strict=True)
    return [index for index, key in enumerate(places) if tuple(map(plain_value, key)) in keys]


def over(best: BestSetting) -> str:
    """Return what the mean is over, e.g. `10 classes`, or `10 classes, each the mean of 3 seeds`."""
    parts = {key: f"{n} {NOUNS.get(key, f'values of {key}')}" for key, n in best.replicates.items() if n > 1}
    count = sum(map(len, best.sample.runs.values()))
    if count < len(best.values) or math.prod(best.replicates.values()) != count:
        return f"{len(best.sample.values)} classes" if len(best.sample.runs) > 1 else f"{count} trials"
    each = f", each the mean of {parts.pop(SEED)}" if len(parts) > 1 and SEED in parts else ""
    return " x ".join(parts.values()) + each


def estimate(sample: Sample, spread: Spread = "interval") -> tuple[float, float]:
    """Return the mean over replicates and what stands beside it: half its 95 % interval, or the standard deviation; NaN
    if that is not known. Of a single value that is its margin over test images."""
    values = np.array([*sample.values.values()])
    n = len(values)
    if n < 2:
        return float(values.mean()) if n else math.nan, sample.margin
    std = float(np.std(values, ddof=1))
    return float(values.mean()), float(half_widths(np.array(std), np.array(n))) if spread == "interval" else std


def _text(mean: float, beside: float, percent: bool) -> str:
    """Return e.g. `0.982 ± 0.012`, or the mean alone."""
    scale = 100.0 if percent else 1.0
    digits = _decimals(scale * mean)
    texts = [f"{scale * each:.3g}" if digits is None else f"{scale * each:.{digits}f}" for each in (mean, beside)]
    return texts[0] if math.isnan(beside) else " ± ".join(texts)


def _value(best: BestSetting, spread: Spread) -> str:
    mean, beside = estimate(best.sample, spread)
    text, n = _text(mean, beside, best.metric.percent), len(best.sample.values)
    if n > 1:
        return f"{text} (mean{'' if math.isnan(beside) else f' ± {SPREADS[spread]}'} over {over(best)})"
    if not math.isnan(beside):
        return f"{text} (one trial, ± 95 % interval over test images)"
    return f"{text}{' (one trial)' if best.number is None else ''}"  # the number of a study's trial is said


def _decimals(value: float) -> int | None:
    """Return the number of decimals that shows three significant figures; None for scientific notation."""
    if value == 0:
        return 3
    exponent = math.floor(math.log10(abs(value))) if math.isfinite(value) else 0
    return None if not -4 <= exponent < 6 else max(2 - exponent, 0)
