"""Outline of a plan for `--plan`, as plain values for JSON or as text: trial counts, axes, fixed values, changes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from sweeper.plan import cohorts
from sweeper.plan.changes import Changes, format_value, subspaces
from sweeper.plan.cohorts import Cohort, Cut
from sweeper.plan.plan import TO_RUN, GridPlan, Plan
from sweeper.search.search_plan import SearchPlan
from sweeper.spec import Space, Value
from sweeper.spec.schedulers import Halving, Population
from sweeper.storage.schema import STATUSES

WIDTH, INDENT = 110, 13
"""Characters per line, and of its left margin."""
ATTRIBUTES = ("low", "high", "log", "step", "choices")
"""Attributes of Optuna's distributions that an outline shows."""


def describe(plan: Plan, cuts: Sequence[Cut] | None, resources: str) -> dict[str, object]:
    """Describe a plan in plain values. `cuts` is None if a run chooses them; `resources` is what a cohort takes."""
    plain = {"sweep": plan.name, "preset": plan.preset, "about": plan.sweep.about, "trials": plan.total, **plan.counts}
    space = cast(GridPlan | SearchPlan, plan).space
    shape = outline(space, plan.changes) if space else {}
    inner = _grid(plan, cuts) if isinstance(plan, GridPlan) else _search(cast(SearchPlan, plan))
    return {**plain, **shape, **inner, "resources": resources}


def _grid(plan: GridPlan, cuts: Sequence[Cut] | None) -> dict[str, object]:
    all_cohorts: tuple[Cohort, ...] | None = cohorts.cut(plan.groups, cuts) if cuts else None
    return {
        "groups": len(plan.groups),
        "cohorts": len(all_cohorts) if all_cohorts else None,
        "cohorts_to_run": len(cohorts.remaining(all_cohorts, plan.statuses)) if all_cohorts else None,
        "cohort_sizes": sorted({len(cohort.trials) for cohort in all_cohorts}) if all_cohorts else None,
        "steps": None if plan.unsized else sorted(set(plan.steps)),
        "unsized": list(plan.unsized),
    }


def _search(plan: SearchPlan) -> dict[str, object]:
    return {
        "studies": {
            study_run.study.name: {
                "trials": study_run.study.search.trials,
                "wave": study_run.study.search.wave,
                "sampler": study_run.study.search.sampler,
                "space": {key: distribution(value) for key, value in study_run.study.search.space.items()},
                "rule": _rule(study_run.study.search.pruner or study_run.study.search.population),
            }
            for study_run in plan.study_runs
        },
        "objectives": {metric.name: metric.direction for metric in plan.space.objectives},
    }


def _rule(rule: Halving | Population | None) -> dict[str, object] | None:
    """Class name and fields of a pruner or a population."""
    return {"name": type(rule).__name__, **asdict(rule)} if rule else None


def text(plain: Mapping[str, Any]) -> str:
    """Format the result of `describe` as text."""
    counts = ", ".join(
        f"{plain[status]} {status}" for status in (*STATUSES, TO_RUN) if plain[status] or status != "pruned"
    )
    inner = _search_lines(plain) if "studies" in plain else [_steps_line(plain), f"  cohorts    {_cohorts_line(plain)}"]
    return "\n".join(
        [
            f"{plain['sweep']} ({plain['preset']}): {plain['about']}",
            f"  trials     {plain['trials']}: {counts}",
            *(lines(plain) if "axes" in plain else []),
            *inner,
            f"  resources  {plain['resources']}",
            *([f"  set aside  {plain['set_aside']['text']}"] if "set_aside" in plain else []),
        ]
    )


def _cohorts_line(plain: Mapping[str, Any]) -> str:
    if not plain["cohorts"]:
        return "cut by measurement when the run begins"
    sizes = " or ".join(map(str, plain["cohort_sizes"]))
    return f"{plain['cohorts']} of {sizes} trials, {plain['cohorts_to_run']} to run"


def _steps_line(plain: Mapping[str, Any]) -> str:
    if plain["unsized"]:
        return f"  steps      unknown without the images of {', '.join(plain['unsized'])}"
    return f"  steps      {' or '.join(f'{steps:,}' for steps in plain['steps'])} a trial"


def _search_lines(plain: Mapping[str, Any]) -> list[str]:
    goals = ", ".join(f"{direction} {name}" for name, direction in plain["objectives"].items())
    lines = [f"  objective  {goals}"]
    for name, study in plain["studies"].items():
        rule = _rule_text(study["rule"]) if study["rule"] else ""
        lines.append(
            f"  study      {name}: {study['trials']} trials in waves of {study['wave']}, {study['sampler']}{rule}"
        )
        lines += [f"    {key:<16} {distribution_text(value)}" for key, value in study["space"].items()]
    return lines


def _rule_text(rule: Mapping[str, Any]) -> str:
    """Text such as `, Halving(first=10, factor=2, brackets=1)`."""
    return f", {rule['name']}({', '.join(f'{key}={value}' for key, value in rule.items() if key != 'name')})"


def outline(space: Space, changes: Changes) -> dict[str, Any]:
    """Outline a space in plain values, under four keys.

    - `axes` and `fixed`: what all grids or searches of the space share.
    - `parts`: what each grid or search has of its own; empty if there is only one.
    - `changed`: key -> its `values` in the request and those of the `preset`.
    """
    parts = subspaces(space)
    axes, fixed = (_shared([settings(part) for part in parts]) for settings in (_axes, _fixed))
    differences = [
        {"axes": _without(_axes(part), axes), "fixed": _without(_fixed(part), fixed), "trials": part.count}
        for part in parts
    ]
    return {
        "axes": axes,
        "fixed": fixed,
        "parts": differences if len(parts) > 1 else [],
        "changed": {
            key: {"values": list(map(plain, change.values)), "preset": list(map(plain, change.preset))}
            for key, change in changes.keys.items()
        },
    }


def distribution(optuna_distribution: Any) -> dict[str, Any]:
    """Plain values of one of Optuna's distributions: its class as `name`, and those of `ATTRIBUTES` that it has."""
    attributes = {name: getattr(optuna_distribution, name) for name in ATTRIBUTES if hasattr(optuna_distribution, name)}
    choices = {"choices": list(map(plain, attributes["choices"]))} if "choices" in attributes else {}
    return {"name": type(optuna_distribution).__name__, **attributes, **choices}


def lines(plain: Mapping[str, Any]) -> list[str]:
    """Format the result of `outline` as lines of text."""
    axes = [f"{key}: {_values(values)}" for key, values in plain["axes"].items()]
    parts = [
        " ".join([*_pairs(part["fixed"]), *(f"{key}={_values(values, ',')}" for key, values in part["axes"].items())])
        for part in plain["parts"]
    ]
    changed = [
        f"{key}: {_values(change['values'])}" + (f" (preset: {_values(change['preset'])})" if change["preset"] else "")
        for key, change in plain["changed"].items()
    ]
    return [
        *_block("axes", axes),
        *_block("fixed", [" ".join(_pairs(plain["fixed"]))]),
        *_block("each of", parts),
        *_block("changed", changed),
    ]


def distribution_text(plain: Mapping[str, Any]) -> str:
    """Format the result of `distribution`, for example `0.03 to 3, log`."""
    if "choices" in plain:
        return f"one of {_values(plain['choices'])}"
    steps = f", in steps of {format_value(plain['step'])}" if plain.get("step") not in (None, 1) else ""
    return f"{format_value(plain['low'])} to {format_value(plain['high'])}{', log' if plain['log'] else ''}{steps}"


def plain(value: Value) -> Value:
    """Value in a form that JSON can represent: infinity becomes the text `inf`."""
    return format_value(value) if isinstance(value, float) and not math.isfinite(value) else value


def _axes(part: Any) -> dict[str, Any]:
    return {key: list(map(plain, values)) for key, values in part.axes.items()}


def _fixed(part: Any) -> dict[str, Any]:
    return {key: plain(value) for key, value in part.fixed.items()}


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Items that are the same in every mapping."""
    first, *others = settings
    return {key: value for key, value in first.items() if all(key in other and other[key] == value for other in others)}


def _without(settings: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in shared}


def _pairs(fixed: Mapping[str, Value]) -> list[str]:
    return [f"{key}={format_value(value)}" for key, value in fixed.items()]


def _values(values: Sequence[Value], separator: str = ", ") -> str:
    return separator.join(map(format_value, values))


def _block(name: str, texts: Sequence[str]) -> list[str]:
    """Wrapped lines of all texts, with the name in the margin of the first line."""
    wrapped = [line for text in texts for line in textwrap.wrap(text, WIDTH - INDENT, break_long_words=False)]
    return [f"  {name if index == 0 else '':<{INDENT - 2}}{line}" for index, line in enumerate(wrapped)]
