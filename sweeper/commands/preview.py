"""`--plan`: what would run, on which devices, for how long and at what cost, as text or as plain values for JSON."""

import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import Any

from sweeper.commands.other_drivers import describe_driver
from sweeper.definition import Space, SpecError, Value
from sweeper.definition.space import parts_of
from sweeper.errors import DAMAGED, ClusterError
from sweeper.execution.session import check_address, connected
from sweeper.execution.signals import StopSignal
from sweeper.option_values import NodePrice, memory_text
from sweeper.packing.allocate import Allocator
from sweeper.packing.cluster import is_local, profile_devices, read_devices, write_devices
from sweeper.packing.compilation import StudySteps, requested_steps
from sweeper.packing.cuts import describe_cuts, settled_cuts
from sweeper.packing.packer import Packing
from sweeper.planning import cohorts
from sweeper.planning.changes import Changes, format_value
from sweeper.planning.cohorts import Cut
from sweeper.planning.plan import TO_RUN, Plan
from sweeper.printing import print, printable
from sweeper.request import Request
from sweeper.storage.archive import ArchiveSummary
from sweeper.storage.files import say_few
from sweeper.storage.lease import Drivers
from sweeper.storage.rows import STATUSES
from sweeper.storage.store import Store, check_writable
from trainables.catalog import is_function

WIDTH, INDENT = 110, 13
"""Characters per line, and of its left margin."""


def outline(
    request: Request, plan: Plan, store: Store, address: str | None, archived: ArchiveSummary | None = None
) -> dict[str, Any]:
    """Outline a plan in plain values. Nothing is trained; `--measure` measures on the devices.

    `archived` is what a run with `--fresh` would archive.
    """
    share = "one" if request.gpu_fraction is None else f"{request.gpu_fraction:g} of a"
    if request.gpu_memory is not None:
        share = f"{memory_text(request.gpu_memory)} of a"
    groups = [*plan.groups, *([study_run.trials] for study_run in plan.study_runs)]
    workers = sorted({cohorts.worker_count(group) for group in groups})
    per = "a cohort" if workers == [1] else f"for each of {' or '.join(map(str, workers))} workers a cohort"
    resources = f"{share} GPU (without GPUs: CPU core) {per}"
    state: dict[str, Any] = {}
    if archived:
        state["archived"] = {"rows": archived.rows, "files": archived.files, "text": archived.text}
    if others := Drivers(store.files, plan.name).living():
        state["drivers"] = list(map(describe_driver, others))
    if request.measure and not plan.groups:
        raise SpecError(
            f"--measure requires a grid, but {plan.name} ({plan.preset}) is a search, which needs no measurement"
        )
    steps = {run.id: requested_steps(request, store.files, plan.name, run.id) for run in plan.study_runs}
    if not plan.groups:
        return outline_plan(plan, None, resources, steps) | state | limits(request, plan, {})
    pack_on = _on_measured_devices if request.measure else _on_recorded_devices
    packing = None if plan.unsized else pack_on(request, plan, store, address)
    cuts = packing.cuts if packing else settled_cuts(request, plan, store.files)
    expected = expectation(packing, plan, request.node_price)
    return outline_plan(plan, cuts, resources, steps) | state | expected | limits(request, plan, expected)


def text(outline: Mapping[str, Any], price: NodePrice | None = None) -> str:
    """Format the result of `outline` as text. `price` is per node and hour."""
    expected = _expectation_lines(outline, price) if "places" in outline else []
    limit_lines = map(_limit_line, outline.get("limits", ()))
    return "\n".join([outline_text(outline), *expected, *limit_lines, *_decide_lines(outline.get("decide"))])


def _decide_lines(deciding: Mapping[str, Any] | None) -> list[str]:
    """Format what `--decide` would run."""
    if deciding is None:
        return []
    count, opened = len(deciding["claims"]), deciding["open"]
    state = "judged when the trials have run" if opened is None else f"{len(opened)} open"
    seeds = f" with seeds {','.join(map(str, deciding['first_seeds']))}" if deciding["first_seeds"] else ""
    most = f"at most {deciding['at_most']} with up to {deciding['most_seeds']} seeds"
    first = f"  decide     {count} claims, {state}; {deciding['first']} trials{seeds} first, {most}"
    return [first, *(f"             {line}" for line in deciding["expected"])]


def limits(request: Request, plan: Plan, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Say of `--hours` and `--cost` whether what is left of a plan fits them, by what is `expected`; nothing without.

    `fits` is None if it is not known. Trials of searches are not measured.
    """
    known = [] if plan.study_runs and not all(study_run.ended for study_run in plan.study_runs) else ["hours", "cost"]
    given = {name: limit for name in ("hours", "cost") if (limit := getattr(request, name)) is not None}
    own = {name: expected.get(name) if name in known else None for name in given}
    found = [
        {"limit": name, "most": most, "expected": own[name], "fits": None if own[name] is None else own[name] <= most}
        for name, most in given.items()
    ]
    return {"limits": found} if found else {}


def _limit_line(limit: Mapping[str, Any]) -> str:
    """Text such as `limit      --hours 2: what is left fits`."""
    if limit["fits"] is None:
        found = "whether what is left fits is not known before it is measured"
    elif limit["fits"]:
        found = "what is left fits"
    else:
        found = f"what is left does not fit: about {limit['most'] / limit['expected']:.0%} of it does"
    return f"  limit      --{limit['limit']} {limit['most']:g}: {found}"


def print_damaged(store: Store) -> None:
    """Print which files a run would move away. `--plan` itself writes nothing."""
    remedy = f"a run moves it to '{DAMAGED}' and trains its trials again"
    lines = [printable(f"'{path}' is damaged: {reason}; {remedy}") for path, reason in store.damaged.items()]
    say_few(lines, partial(print, file=sys.stderr))


def expectation(packing: Packing | None, plan: Plan, price: NodePrice | None) -> dict[str, Any]:
    """Describe a packing in plain values.

    `hours` and `cost` are those of the grids' trials that are left, None if they are unknown; those of eager steps
    unless `compiled_measured`. `price` is per node and hour.
    """
    share_left = plan.share_left([plan.grid_trials])
    slots = packing.slots[min(packing.slots)] if packing else None
    timed = packing if packing and packing.time_known else None
    cost = timed.cost if timed else None
    return {
        "places": slots and [
            {"resources": dict(slot.resources), "at_a_time": slot.count, "memory": slot.memory}
            for slot in slots.by_kind
        ],
        "devices": slots and [slot.device for slot in slots.by_kind],
        "devices_counted_upon": packing and ([devices.count for devices in packing.devices] or None),
        "at_a_time": slots and slots.count,
        "cuts": packing and describe_cuts(packing.cuts),
        "stack_widths": packing and sorted({cut.width for cut in packing.cuts}),
        "hours": timed and timed.hours * share_left,
        "compiled_measured": packing and packing.compiled_time_known,
        "node_price": price.plain if price else None,
        "cost": None if cost is None else cost * share_left,
    }  # fmt: skip


def _expectation_lines(plain: Mapping[str, Any], price: NodePrice | None) -> list[str]:
    unknown = "  expected   not measured yet; --plan --measure measures now"
    if not plain["places"]:
        return [unknown]
    lines = [
        f"  place      {_share(slot['resources'])} of {device}, {slot['at_a_time']} at a time"
        f", {slot['memory'] / 2**30:.1f} GiB each"
        for slot, device in zip(plain["places"], plain["devices"], strict=True)
    ]
    if (devices := sum(plain["devices_counted_upon"] or ())) > plain["at_a_time"]:
        lines.append(f"  nodes      come when cohorts wait; {devices} devices are counted upon")
    lines.append(f"  cut        {' or '.join(plain['cuts'])}")
    if plain["hours"] is None:
        return [*lines, unknown]
    cost = f", {plain['cost']:.2f} at {price.text} a node hour" if price and plain["cost"] is not None else ""
    eager = "" if plain["compiled_measured"] else "; less with compiled steps, which are not measured yet"
    besides = " of the grids" if "studies" in plain else ""
    return [*lines, f"  expected   {_hours(plain['hours'])} of training{besides}{cost}{eager}"]


def _share(resources: Mapping[str, float]) -> str:
    """Text such as `one GPU`, `1/4 GPU` or `2 core`."""
    gpu = resources.get("GPU")
    if gpu is None:
        return f"{resources['CPU']:g} core"
    return "one GPU" if gpu == 1 else f"1/{1 / gpu:.0f} GPU"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes ({hours:.3f} hours)"


def _on_recorded_devices(request: Request, plan: Plan, store: Store, address: str | None) -> Packing | None:
    """Packing on the devices that an earlier run recorded in the store.

    None if no devices are recorded, they are too few for the workers, or a measurement is missing.
    """
    devices = read_devices(store.files, address, request.devices)
    if not devices:
        return None
    try:
        return Allocator(request, plan, store.files, devices, is_local(address)).grids()
    except ClusterError:  # too few devices for the workers: a run reports it, or finds other devices
        return None


def _on_measured_devices(request: Request, plan: Plan, store: Store, address: str | None) -> Packing | None:
    """Packing on the devices there are now, after measuring what the store does not know yet."""
    check_address(address)
    check_writable(store.files)
    stopping = StopSignal()
    with stopping.on_signals(), connected(address):
        from sweeper.execution import ray_backend  # here: it imports Ray, whose environment `connected` sets

        log = partial(print, file=sys.stderr, flush=True)
        cluster = ray_backend.ray_cluster(address, request.data, stopping, log, request.devices)
        devices = profile_devices(cluster)
        write_devices(store.files, address, devices, request.devices)
        return Allocator(request, plan, store.files, devices, cluster.local, cluster.measure).grids()


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
    outline |= outline_space(plan.space, plan.changes) if plan.space else {}
    if plan.groups:
        all_cohorts = cohorts.cut(plan.groups, cuts) if cuts else None
        left = cohorts.remaining(all_cohorts, plan.statuses) if all_cohorts else []
        outline |= {
            "groups": len(plan.groups),
            "cohorts": len(all_cohorts) if all_cohorts else None,
            "cohorts_to_run": len(left) if all_cohorts else None,
            "cohorts_compiled": sum(cohort.compiled for cohort in left) if all_cohorts else None,
            "cohort_sizes": sorted({len(cohort.trials) for cohort in all_cohorts}) if all_cohorts else None,
            "steps": None if plan.unsized else sorted(set(plan.steps)),
            "functions": all(is_function(str(trial.config.get("method"))) for trial in plan.grid_trials),
            "unsized": list(plan.unsized),
        }
    studies = {}
    for study_run in plan.study_runs:
        search = study_run.study.search
        rule = search.pruner or search.population
        steps = study_steps.get(study_run.id)
        studies[study_run.study.name] = {
            "trials": search.trials,
            "replicates": {key: list(map(json_value, values)) for key, values in search.replicates.items()},
            "wave": search.wave,
            "sampler": search.proposer,
            "space": {key: outline_distribution(value) for key, value in search.space.items()},
            "conditions": [
                {"when": on.text, "space": {key: outline_distribution(value) for key, value in on.space.items()}}
                for on in search.conditions
            ],
            "rule": {"name": type(rule).__name__, **asdict(rule)} if rule else None,
            "compiled": steps and (steps.every or bool(steps.shapes)),
        }
    if studies:
        objectives = {metric.name: metric.direction for metric in plan.study_runs[0].study.search.objectives}
        constraints = [constraint.text for constraint in plan.sweep.constraints(plan.preset)]
        outline |= {"studies": studies, "objectives": objectives, "constraints": constraints}
    return outline | {"resources": resources}


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
            *(_grid_lines(outline) if "groups" in outline else ()),
            *(_search_lines(outline) if "studies" in outline else ()),
            f"  resources  {outline['resources']}",
            *([f"  archived   {outline['archived']['text']}"] if "archived" in outline else []),
        ]
    )


def _grid_lines(outline: Mapping[str, Any]) -> list[str]:
    steps = f"{' or '.join(f'{steps:,}' for steps in outline['steps'] or ())} a trial"
    if outline["unsized"]:
        steps = f"unknown without the images of {', '.join(outline['unsized'])}"
    in_turn = outline["functions"]
    cohort_text = "in turn, as many trials each as is balanced" if in_turn else "cut by measurement when the run begins"
    if outline["cohorts"]:
        sizes = " or ".join(map(str, outline["cohort_sizes"]))
        compiled = f", {outline['cohorts_compiled']} with compiled steps" if outline["cohorts_compiled"] else ""
        cohort_text = f"{outline['cohorts']} of {sizes} trials, {outline['cohorts_to_run']} to run{compiled}"
    return [*([] if in_turn else [f"  steps      {steps}"]), f"  cohorts    {cohort_text}"]


def _search_lines(outline: Mapping[str, Any]) -> list[str]:
    lines = [f"  objective  {', '.join(f'{direction} {name}' for name, direction in outline['objectives'].items())}"]
    lines += [f"  constraint {', '.join(outline['constraints'])}"] if outline["constraints"] else []
    for name, study in outline["studies"].items():
        rule = dict(study["rule"] or {})
        rule_text = (
            f", {rule.pop('name')}({', '.join(f'{key}={value}' for key, value in rule.items())})" if rule else ""
        )
        lines.append(
            f"  study      {name}: {_proposals(study)} in waves of {study['wave']}, {study['sampler']}{rule_text}"
            f"{', with compiled steps' if study['compiled'] else ''}"
        )
        width = max(16, *map(len, study["space"]))
        lines += [f"    {key:<{width}} {distribution_text(value)}" for key, value in study["space"].items()]
        for on in study["conditions"]:
            lines.append(f"    {on['when']}")
            lines += [f"      {key:<{width - 2}} {distribution_text(value)}" for key, value in on["space"].items()]
    return lines


def _proposals(study: Mapping[str, Any]) -> str:
    """Text such as `64 trials`, or with replicates `64 proposals x 3 replicates (seed=0,1,2)`."""
    replicates = study["replicates"]
    if not replicates:
        return f"{study['trials']} trials"
    each = " ".join(f"{key}={_join(values, ',')}" for key, values in replicates.items())
    return f"{study['trials']} proposals x {math.prod(map(len, replicates.values()))} replicates ({each})"


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
        for part in parts_of(space)
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
        for part, subspace in zip(parts, parts_of(space), strict=True)
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
