"""Every sentence about results: what a mean is over, what stands beside it, which setting is best and how sure that is.

The terminal, pages, pictures, tables and Python say the same by these. An interval stands in brackets, `[0.96, 0.99]`,
and a `±` is always a standard deviation, as papers print it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from sweeper.definition.metric import REPORTED, SPREADS, VALIDATION, Metric, Spread
from sweeper.definition.sweep import Repeats
from sweeper.planning.changes import format_value
from sweeper.results.best import BestSetting, NoneFeasible
from sweeper.results.estimates import improvement
from sweeper.results.replicates import replicate_columns, strata_means
from trainables.metrics.detection import Detection, Share
from trainables.metrics.meanings import CHOSEN

NOUNS: Mapping[str, tuple[str, str]] = {
    "seed": ("seed", "seeds"),
    "normal_class": ("class", "classes"),
    "held_out": ("held-out class", "held-out classes"),
    "dataset": ("data set", "data sets"),
}
"""Hyperparameter -> what one of its values is called, and several; others are `values of NAME`."""
MAX_BEST = 20
"""Most data sets or studies whose best setting is named."""
MOST_ALIKE = 3
"""Most settings that are not told apart from the best whose hyperparameters a sentence names."""
ValueText = Callable[[str, object], str]
"""Name of a hyperparameter and its value -> the value as text."""


def short_text(name: str, value: object) -> str:
    """Return the text of a hyperparameter's value, of a number with at most four significant figures."""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return format_value(value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Over:
    """What the cells of a figure are the mean over, as plural nouns."""

    replicates: str = "replicates"
    fixed: str = "fixed values"


NO_NOUNS = Over()


def averaged_over(rows: pd.DataFrame, axes: Sequence[str], repeats: Repeats, noun: str = "trials") -> Over:
    """Return what the replicates of a cell of these axes are, and the fixed values that each has the mean over. Of a
    hyperparameter without a noun it is the sweep's `noun`, unless that is the default."""
    within = repeats.without(axes)
    drawn, fixed = replicate_columns(rows, within), [name for name in within.fixed if name in rows]
    varying = [key for key in (*drawn, *fixed) if rows[key].nunique(dropna=False) > 1]
    if rows.empty or not varying or not {*axes} & {*rows}:
        return NO_NOUNS
    cells = rows.groupby([axis for axis in axes if axis in rows], dropna=False, observed=True)
    most = cells[varying].nunique(dropna=False).max()

    def noun_for(keys: Sequence[str], default: str) -> str:
        differing = [key for key in keys if key in varying and most[key] > 1]
        return noun_of(differing[0], noun) if len(differing) == 1 else default

    return Over(noun_for(drawn, Over.replicates), noun_for(fixed, Over.fixed))


def noun_of(key: str, noun: str = "trials") -> str:
    """Return what the values of a hyperparameter are, as a plural noun: the sweep's `noun`, unless that is the default,
    for one without its own."""
    return NOUNS[key][1] if key in NOUNS else f"values of {key}" if noun == "trials" else noun


def counted(count: int, keys: Sequence[str]) -> str:
    """Return e.g. `one seed`, `10 classes`, or `6 values of corruption` for keys without a noun of their own."""
    key = ", ".join(keys)
    return f"one {NOUNS.get(key, (f'value of {key}',))[0]}" if count == 1 else f"{count} {noun_of(key)}"


def described(cells: pd.DataFrame, over: Over, spread: Spread = "interval") -> str:
    """Return what cells show, e.g. `mean [95 % interval] over 3 to 5 seeds, each the mean of 10 classes`; `mean ±
    standard deviation over 10 classes` where no cell has an interval; an empty text for one run a cell."""
    known = cells[cells["replicates"] > 0]
    if known.empty or (known["replicates"].max() == 1 and known["fixed"].max() == 1):
        return ""
    replicates, fixed = _span(known["replicates"]), _span(known["fixed"])
    by_seed = known["low"].notna() if spread == "interval" else known["std"].notna()
    several = known["fixed"].max() > 1
    if by_seed.any() or not several:
        kind = f" {SPREADS[spread]}" if by_seed.any() else ""
        each = f"{fixed} {over.fixed}" if several else "several trials" if _differ(known) else ""
        text = f"mean{kind} over {replicates} {over.replicates}{f', each the mean of {each}' if each else ''}"
        few = several and (~by_seed & known["fixed_std"].notna()).any()
        return f"{text}; without that {SPREADS['deviation']} over {over.fixed}" if few else text
    each = f", each the mean of {replicates} {over.replicates}" if known["replicates"].max() > 1 else ""
    kind = f" {SPREADS['deviation']}" if known["fixed_std"].notna().any() else ""
    return f"mean{kind} over {fixed} {over.fixed}{each}"


def _span(counts: pd.Series) -> str:
    least, most = counts.min(), counts.max()
    return str(least) if least == most else f"{least} to {most}"


def _differ(cells: pd.DataFrame) -> bool:
    """Whether a replicate of some cell is the mean of several trials."""
    return bool((cells["count"] > cells["replicates"] * cells["fixed"]).any())


def beside_text(beside: Sequence[float], text: Callable[[float], str]) -> str:
    """Return what stands beside a mean, ` [0.96, 0.99]` or ` ± 0.02`, with numbers written by `text`."""
    if len(beside) == 2:
        return f" [{text(beside[0])}, {text(beside[1])}]"
    return f" ± {text(beside[0])}" if beside else ""


def sentence(
    best: BestSetting, *, so_far: bool = False, value_text: ValueText = short_text, spread: Spread = "interval"
) -> str:
    """Return e.g. `best auroc_joint: 0.982 [0.961, 0.990] (mean [95 % interval] over 5 seeds, each the mean of 10
    classes, the choice among 56 counted) at beta=0.5 nu=1; chosen on validation images (val_auroc_joint 0.979); 1 of 55
    others not told apart from it: beta=1 nu=1`. With `so_far` not all trials have ended."""
    name = f"best {best.metric.label}{_about(best, so_far, value_text)}"
    value, choice = _value(best, spread), _choice(best)
    at = _at(best.at, value_text)
    number = "" if best.number is None else f" (trial {best.number})"
    place = f"{f' at {at}' if at else ''}{number}{_scores(best)}"
    left_out = best.settings - best.compared - best.infeasible
    beyond = f"; {best.infeasible} of {best.settings} settings are {_infeasible(best)}" if best.infeasible else ""
    lacking = f"; {left_out} of {best.settings} settings lack results and are not compared" if left_out else ""
    return f"{name}: {value}{place}; {choice}{_alike(best, value_text)}{_ahead(best, value_text)}{beyond}{lacking}"


def detection_sentences(best: BestSetting, value_text: ValueText = short_text) -> list[str]:
    """Return for each false-alarm rate what the best trial of a setting flags, e.g. `at a false-alarm rate of 1 % (at
    most 3.6 %) trial 3f2a flags 53 % [27, 79] of bent and 0 % [0, 22] of scratch; of normal test images 2.5 % [0.1, 13]
    (95 % intervals over images)`; or how many held-out images the rate needs. `value_text` names classes."""
    trial = next(iter(best.values), "")
    return [_detection(each, trial, value_text) for each in best.detection]


def _detection(found: Detection, trial: str, value_text: ValueText) -> str:
    rate = f"at a false-alarm rate of {percent_text(found.rate)}"
    if found.normal is None or found.anomalous is None:
        needed = math.ceil(1 / Fraction(str(found.rate))) - 1
        return f"{rate} nothing is known of trial {trial}: that needs at least {needed} held-out normal images"
    shares = [f"{share_text(share)} of {value_text('normal_class', number)}" for number, share in found.classes.items()]
    named = " and ".join(filter(None, [", ".join(shares[:-1]), *shares[-1:]])) or share_text(found.anomalous)
    normal = f"of normal test images {share_text(found.normal)} (95 % intervals over images)"
    return f"{rate} (at most {percent_text(found.bound)}) trial {trial} flags {named}; {normal}"


def share_text(share: Share) -> str:
    """Return e.g. `53 % [27, 79]`."""
    low, high = (percent_text(bound).removesuffix(" %") for bound in (share.low, share.high))
    return f"{percent_text(share.share)} [{low}, {high}]"


def percent_text(share: float) -> str:
    """Return a share with two significant figures, e.g. `53 %` or `3.6 %`."""
    return f"{float(f'{100 * share:.2g}'):g} %"


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
    """Return how the best setting stands to the next best by the criterion. Of `CHOSEN` how probably a run of it is
    better than one of the other on the same class: `; better than method=vje with a probability of 0.62 [0.51, 0.75]`;
    one run of each says nothing. With few replicates else in how many classes: `; better than nu=3 in 9 of 10
    classes`."""
    if not best.others:
        return ""
    sign, other = -best.metric.cost(1.0), best.others[0]
    own_CN, other_CN = sign * best.sample.runs_CN, sign * other.runs_CN
    name = f"; better than {_at(other.at, value_text)}"
    if best.metric.name == CHOSEN:
        known = ~np.isnan(own_CN).all(1)
        runs = (~np.isnan(own_CN)).sum(1) * (~np.isnan(other_CN)).sum(1)
        if not (runs[known] > 0).all() or runs.sum() < 2 or best.sample.is_fixed:
            return ""
        return f"{name} with a probability of {probable(*improvement(other_CN, own_CN))}"
    if best.compared_over != "fixed":
        return ""
    means_C, others_C = (strata_means(runs_CN) for runs_CN in (own_CN, other_CN))
    known = ~np.isnan(means_C - others_C)
    count = int((means_C[known] > others_C[known]).sum())
    return f"{name} in {count} of {int(known.sum())} {_fixed_noun(best)}"


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
    declares the data; of one that the user's code reports only the name is known."""
    if best.is_reported:
        return f"chosen by the reported {best.criterion}"
    by = f" ({best.criterion})" if best.criterion.startswith(VALIDATION) else ""
    return f"chosen on {measured_on(best)}{by}"


def measured_on(best: BestSetting) -> str:
    """Return the data of the metric by which it was chosen, e.g. `validation images`; `reported values` of a user's
    function, whatever its metrics are called."""
    return REPORTED if best.is_reported else Metric(best.criterion).measured_on


def _choice(best: BestSetting) -> str:
    """Return how it was chosen, with the value by which it was where another one is shown: `chosen on validation images
    (val_auroc_joint 0.979)`."""
    if best.criterion == best.metric.name:
        return chosen(best)
    if best.is_reported:
        return f"{chosen(best)} ({_text(best.choice[0], (), best.metric.percent)})"
    return f"{chosen(best).removesuffix(')')} {_text(best.choice[0], (), best.metric.percent)})"


def _scores(best: BestSetting) -> str:
    """Return the anomaly scores that the trials have chosen: `, score knn1_z`, or `, scores knn1_z (7), kde_z (3)`."""
    if len(best.scores) < 2:
        return f", score {next(iter(best.scores))}" if best.scores else ""
    return f", scores {', '.join(f'{name} ({count})' for name, count in best.scores.items())}"


def _alike(best: BestSetting, value_text: ValueText) -> str:
    """Return how many others are not told apart from the best, and the first of them; that none is, where that can be
    said."""
    if not best.compared_over:
        return ""
    alike, others = best.alike, len(best.others)
    over = f" over {_fixed_noun(best)}" if best.compared_over == "fixed" else ""
    if not alike:
        return f"; {f'all {others} others are' if others > 1 else 'the other is'} told apart from it{over}"
    names = [_at(other.at, value_text) for other in alike if other.at][:MOST_ALIKE]
    rest = [f"{len(alike) - len(names)} more"] if names and len(alike) > len(names) else []
    named = f": {' and '.join(filter(None, [', '.join(names), *rest]))}" if names else ""
    return f"; {len(alike)} of {others} others not told apart from it{over}{named}"


BEST, ALIKE = "*", "°"
"""Marks of cells with a best setting, and of those with one that is not told apart from it."""
LEGEND = f"{ALIKE} not told apart from the best: with it they have the truly best one with a probability of 95 %"


def over(best: BestSetting, *, fixed_first: bool = False) -> str:
    """Return what the mean is over, e.g. `3 seeds`, or `3 seeds, each the mean of 10 classes`, or `10 classes`; with
    `fixed_first` rather `10 classes, each the mean of 3 seeds`, which is the same mean."""
    counts = {key: n for key, n in best.replicates.items() if n > 1}
    runs, n = int((~np.isnan(best.sample.runs_CN)).sum()), len(best.sample.values)
    if runs < len(best.values) or math.prod(counts.values()) != len(best.values):
        return f"{n} replicates of {len(best.values)} trials" if n > 1 else f"{len(best.values)} trials"
    of_replicates = [key for key in counts if key not in best.fixed]
    texts = [
        [counted(counts[key], [key]) for key in counts if (key in of_replicates) is own]
        for own in (not fixed_first, fixed_first)
    ]
    return ", each the mean of ".join(" x ".join(own) for own in texts if own)


def _fixed_noun(best: BestSetting) -> str:
    """Return what the fixed values are over which settings are compared, as a plural noun."""
    keys = [key for key in best.fixed if best.replicates.get(key, 0) > 1]
    return noun_of(keys[0]) if len(keys) == 1 else "fixed values"


def beside(best: BestSetting, spread: Spread = "interval") -> tuple[float, ...]:
    """Return what stands beside the mean of a best setting: its interval, with the choice in it, or a standard
    deviation: of its replicates where that is asked for and there are several, else of its classes."""
    low, high = best.interval
    if spread == "interval" and not math.isnan(low):
        return low, high
    values, of_classes = best.sample.values, strata_means(best.sample.runs_CN)
    several = values if spread == "deviation" and len(values) > 1 else of_classes[~np.isnan(of_classes)]
    return (float(np.std(several, ddof=1)),) if len(several) > 1 else ()


def _text(mean: float, beside: Sequence[float], percent: bool) -> str:
    """Return e.g. `0.982 [0.961, 0.990]` or `0.982 ± 0.012`, or the mean alone."""
    scale = 100.0 if percent else 1.0
    digits = _decimals(scale * mean)

    def text(value: float) -> str:
        return f"{scale * value:.3g}" if digits is None else f"{scale * value:.{digits}f}"

    return text(mean) + beside_text(beside, text)


def _value(best: BestSetting, spread: Spread) -> str:
    numbers, n = beside(best, spread), len(best.sample.values)
    text, trials = _text(best.mean, numbers, best.metric.percent), len(best.sample.trials)
    if trials > 1:
        of_classes = len(numbers) == 1 and not (spread == "deviation" and n > 1)
        kind = f" {SPREADS['interval' if len(numbers) == 2 else 'deviation']}" if numbers else ""
        where = f" over {over(best, fixed_first=of_classes)}"
        counted = f", the choice among {best.compared} counted" if len(numbers) == 2 and best.compared > 1 else ""
        return f"{text} (mean{kind}{where}{counted})"
    if numbers:
        return f"{text} (one trial, {SPREADS['interval']} over test images)"
    return f"{text}{' (one trial)' if best.number is None else ''}"  # the number of a study's trial is said


def _decimals(value: float) -> int | None:
    """Return the number of decimals that shows three significant figures; None for scientific notation."""
    if value == 0:
        return 3
    exponent = math.floor(math.log10(abs(value))) if math.isfinite(value) else 0
    return None if not -4 <= exponent < 6 else max(2 - exponent, 0)


def probable(improved: float, low: float, high: float) -> str:
    """Return text such as `0.83 [0.61, 0.97]`, without the interval if it is unknown."""
    if math.isnan(improved):
        return "\N{EN DASH}"
    return f"{improved:.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")
