"""The sentence about a best setting, the same wherever it is said."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from sweeper.plan.best_settings import NOUNS, BestSetting
from sweeper.plan.changes import format_value
from sweeper.report.verdicts import half_widths
from sweeper.spec.metric import SPREADS, VALIDATION, Spread

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
    """Return e.g. `best auroc_joint: 0.982 ± 0.012 (mean ± 95 % interval over 10 classes) at beta=0.5 nu=1; chosen by
    val_auroc_joint`. With `so_far` not all trials have ended."""
    question = ", ".join(
        f"study {value}" if key == "study" else f"{key}={value_text(key, value)}"
        for key, value in best.question.items()
    )
    name = f"best {best.metric.label}{f' for {question}' if question else ''}{' so far' if so_far else ''}"
    at = " ".join(f"{key}={value_text(key, value)}" for key, value in best.at.items())
    place = "".join((f" at {at}" if at else "", "" if best.number is None else f" (trial {best.number})"))
    left_out = best.settings - best.compared
    lacking = f"; {left_out} of {best.settings} settings lack replicates and are not compared" if left_out else ""
    return f"{name}: {_value(best, spread)}{place}; {chosen(best)}{lacking}"


def sentences(
    found: Sequence[BestSetting],
    most: int,
    *,
    so_far: bool = False,
    value_text: ValueText = short_text,
    spread: Spread = "interval",
) -> list[str]:
    """Return a sentence for each of the first `most` best settings, and how many more there are."""
    texts = [sentence(best, so_far=so_far, value_text=value_text, spread=spread) for best in found[:most]]
    return [*texts, f"and {len(found) - most} more"] if len(found) > most else texts


def chosen(best: BestSetting) -> str:
    """Return how it was chosen, e.g. `chosen by val_auroc_joint` or `chosen on test images`."""
    if best.criterion.startswith(VALIDATION):
        return f"chosen by {best.criterion}"
    return f"chosen on {best.metric.measured_on}"


def over(best: BestSetting) -> str:
    """Return what the mean is over, e.g. `10 classes` or `30 trials (10 classes x 3 seeds)`."""
    parts = [f"{n} {NOUNS.get(key, f'values of {key}')}" for key, n in best.replicates.items() if n > 1]
    if len(best.known) < len(best.values) or math.prod(best.replicates.values()) != len(best.values):
        return f"{len(best.known)} trials"
    return parts[0] if len(parts) == 1 else f"{len(best.values)} trials ({' x '.join(parts)})"


def _value(best: BestSetting, spread: Spread) -> str:
    scale, n = 100.0 if best.metric.percent else 1.0, len(best.known)
    mean, std = scale * best.mean, scale * float(np.std(best.known, ddof=1)) if n > 1 else math.nan
    beside = float(half_widths(np.array(std), np.array(n))) if spread == "interval" else std
    digits = _decimals(mean)

    def text(value: float) -> str:
        return f"{value:.3g}" if digits is None else f"{value:.{digits}f}"

    if n < 2:
        return f"{text(mean)}{' (one trial)' if best.number is None else ''}"  # the number of a study's trial is said
    if math.isnan(beside):
        return f"{text(mean)} (mean over {over(best)})"
    return f"{text(mean)} ± {text(beside)} (mean ± {SPREADS[spread]} over {over(best)})"


def _decimals(value: float) -> int | None:
    """Return the number of decimals that shows three significant figures; None for scientific notation."""
    if value == 0:
        return 3
    exponent = math.floor(math.log10(abs(value))) if math.isfinite(value) else 0
    return None if not -4 <= exponent < 6 else max(2 - exponent, 0)
