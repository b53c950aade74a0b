"""Outline of a plan for `--plan`, as plain values for JSON or as text: trial counts, axes, fixed values, changes."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, cast

from sweeper.packing.compilation import StudySteps
from sweeper.plan import cohorts
from sweeper.plan.changes import Changes, format_value
from sweeper.plan.cohorts import Cut
from sweeper.plan.plan import TO_RUN, GridPlan, Plan
from sweeper.search.search_plan import SearchPlan
from sweeper.spec import Space, Value
from sweeper.spec.sweep import subspaces
from sweeper.storage.rows import STATUSES

WIDTH, INDENT = 110, 13
"""Characters per line, and of its left margin."""


def outline_plan(
    plan: Plan,
    cuts: Sequence[Cut] | None,
    resources: str,
    study_steps: Mapping[str, StudySteps | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """Outline a plan in plain values. `cuts` is None if a run chooses them; `resources` is what a cohort takes.
    `study_steps` maps the ids of a search's studies to their steps, or to None if a run chooses them."""
    outline = {
        "sweep": plan.name,
        "preset": plan.preset,
        "request": plan.request,
        "about": plan.sweep.about,
        "trials": plan.total,
        **plan.counts,
    }
    space = cast(GridPlan | SearchPlan, plan).space
    outline |= outline_space(space, plan.changes) if space else {}
    if isinstance(plan, GridPlan):
        all_cohorts = cohorts.cut(plan.groups, cuts) if cuts else None
        left = cohorts.remaining(all_cohorts, plan.statuses) if all_cohorts else []
        return outline | {
            "groups": len(plan.groups),
            "cohorts": len(all_cohorts) if all_cohorts else None,
            "cohorts_to_run": len(left) if all_cohorts else None,
            "cohorts_compiled": sum(cohort.compiled for cohort in left) if all_cohorts else None,
            "cohort_sizes": sorted({len(cohort.trials) for cohort in all_cohorts}) if all_cohorts else None,
            "steps": None if plan.unsized else sorted(set(plan.steps)),
            "unsized": list(plan.unsized),
            "resources": resources,
        }
    studies = {}
    for study_run in cast(SearchPlan, plan).study_runs:
        search = study_run.study.search
        rule = search.pruner or search.population
        steps = study_steps.get(study_run.id)
        studies[study_run.study.name] = {
            "trials": search.trials,
            "wave": search.wave,
            "sampler": search.sampler,
            "space": {key: outline_distribution(value) for key, value in search.space.items()},
            "rule": {"name": type(rule).__name__, **asdict(rule)} if rule else None,
            "compiled": steps and (steps.every or bool(steps.shapes)),
        }
    objectives = {metric.name: metric.direction for metric in cast(SearchPlan, plan).space.objectives}
    return outline | {"studies": studies, "objectives": objectives, "resources": resources}


def outline_text(outline: Mapping[str, Any]) -> str:
    """Format the result of `outline_plan` as text."""
    counts = ", ".join(
        f"{outline[status]} {status}" for status in (*STATUSES, TO_RUN) if outline[status] or status != "pruned"
    )
    return "\n".join(
        [
            f"{outline['sweep']} ({outline['request']}): {outline['about']}",
            f"  trials     {outline['trials']}: {counts}",
            *(f"  driver     {driver}" for driver in outline.get("drivers", ())),
            *(space_lines(outline) if "axes" in outline else []),
            *(_search_lines(outline) if "studies" in outline else _grid_lines(outline)),
            f"  resources  {outline['resources']}",
            *([f"  set aside  {outline['set_aside']['text']}"] if "set_aside" in outline else []),
        ]
    )


def _grid_lines(outline: Mapping[str, Any]) -> list[str]:
    steps = f"{' or '.join(f'{steps:,}' for steps in outline['steps'] or ())} a trial"
    if outline["unsized"]:
        steps = f"unknown without the images of {', '.join(outline['unsized'])}"
    cohort_text = "cut by measurement when the run begins"
    if outline["cohorts"]:
        sizes = " or ".join(map(str, outline["cohort_sizes"]))
        compiled = f", {outline['cohorts_compiled']} with compiled steps" if outline["cohorts_compiled"] else ""
        cohort_text = f"{outline['cohorts']} of {sizes} trials, {outline['cohorts_to_run']} to run{compiled}"
    return [f"  steps      {steps}", f"  cohorts    {cohort_text}"]


def _search_lines(outline: Mapping[str, Any]) -> list[str]:
    lines = [f"  objective  {', '.join(f'{direction} {name}' for name, direction in outline['objectives'].items())}"]
    for name, study in outline["studies"].items():
        rule = dict(study["rule"] or {})
        rule_text = (
            f", {rule.pop('name')}({', '.join(f'{key}={value}' for key, value in rule.items())})" if rule else ""
        )
        lines.append(
            f"  study      {name}: {study['trials']} trials in waves of {study['wave']}, {study['sampler']}{rule_text}"
            f"{', with compiled steps' if study['compiled'] else ''}"
        )
        width = max(16, *map(len, study["space"]))
        lines += [f"    {key:<{width}} {distribution_text(value)}" for key, value in study["space"].items()]
    return lines


def outline_space(space: Space, changes: Changes) -> dict[str, Any]:
    """Outline a space in plain values, under four keys.

    - `axes` and `fixed`: what all grids or searches of the space share.
    - `parts`: what each grid or search has of its own; empty if there is only one.
    - `changed`: key -> its `values` in the request and those of the `preset`.
    """
    parts: list[dict[str, dict[str, Any]]] = [
        {
            "axes": {key: list(map(json_value, values)) for key, values in part.axes.items()},
            "fixed": {key: json_value(value) for key, value in part.fixed.items()},
        }
        for part in subspaces(space)
    ]
    shared = {
        name: {
            key: value
            for key, value in parts[0][name].items()
            if all(key in part[name] and part[name][key] == value for part in parts[1:])
        }
        for name in ("axes", "fixed")
    }
    own: list[dict[str, Any]] = [
        {
            **{name: {key: value for key, value in part[name].items() if key not in shared[name]} for name in shared},
            "trials": subspace.count,
        }
        for part, subspace in zip(parts, subspaces(space), strict=True)
    ]
    return {
        **shared,
        "parts": own if len(own) > 1 else [],
        "changed": {
            key: {"values": list(map(json_value, change.values)), "preset": list(map(json_value, change.preset))}
            for key, change in changes.keys.items()
        },
    }


def outline_distribution(distribution: Any) -> dict[str, Any]:
    """Plain values of one of Optuna's distributions: its class as `name`, and its attributes."""
    names = ("low", "high", "log", "step", "choices")
    values = {name: getattr(distribution, name) for name in names if hasattr(distribution, name)}
    choices = {"choices": list(map(json_value, values["choices"]))} if "choices" in values else {}
    return {"name": type(distribution).__name__, **values, **choices}


def space_lines(outline: Mapping[str, Any]) -> list[str]:
    """Format the result of `outline_space` as lines of text."""
    parts = [
        " ".join([*_pairs(part["fixed"]), *(f"{key}={_join(values, ',')}" for key, values in part["axes"].items())])
        for part in outline["parts"]
    ]
    changed = [
        f"{key}: {_join(change['values'])}" + (f" (preset: {_join(change['preset'])})" if change["preset"] else "")
        for key, change in outline["changed"].items()
    ]
    texts_by_name = {
        "axes": [f"{key}: {_join(values)}" for key, values in outline["axes"].items()],
        "fixed": [" ".join(_pairs(outline["fixed"]))],
        "each of": parts,
        "changed": changed,
    }
    lines = []
    for name, texts in texts_by_name.items():
        wrapped = [line for text in texts for line in textwrap.wrap(text, WIDTH - INDENT, break_long_words=False)]
        lines += [f"  {'' if index else name:<{INDENT - 2}}{line}" for index, line in enumerate(wrapped)]
    return lines


def distribution_text(outline: Mapping[str, Any]) -> str:
    """Format the result of `outline_distribution`, for example `0.03 to 3, log`."""
    if "choices" in outline:
        return f"one of {_join(outline['choices'])}"
    steps = f", in steps of {format_value(outline['step'])}" if outline.get("step") not in (None, 1) else ""
    return (
        f"{format_value(outline['low'])} to {format_value(outline['high'])}{', log' if outline['log'] else ''}{steps}"
    )


def json_value(value: Value) -> Value:
    """Value in a form that JSON can represent: infinity becomes the text `inf`."""
    return format_value(value) if isinstance(value, float) and not math.isfinite(value) else value


def _pairs(fixed: Mapping[str, Value]) -> list[str]:
    return [f"{key}={format_value(value)}" for key, value in fixed.items()]


def _join(values: Sequence[Value], separator: str = ", ") -> str:
    return separator.join(map(format_value, values))
