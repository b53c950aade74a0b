"""Text of `--describe` for a sweep: its question, its presets, which of their settings are ours and not the paper's,
and what it draws. And the list of such settings of all sweeps (`--describe ours`), which is in
`search_spaces/README.md`, too."""

import inspect
import textwrap
from collections.abc import Iterator, Sequence

from sweeper.cli.outline import distribution_text, outline_distribution
from sweeper.plan.changes import format_value
from sweeper.spec import Assumption, Metric, Search, Space, Sweep, Value, registry
from sweeper.spec.sweep import subspaces

WIDTH = 110
"""Characters per line."""
MOST = 12
"""Most values of an axis that are shown."""
OURS = "ours"
"""The name by which `--describe` lists the settings of all sweeps that are no settings of a paper."""


def describe_sweep(reference: str) -> str:
    """Describe a sweep. Raises SpecError, with one line, if there is none."""
    sweep, module = registry.definition(reference)
    lines = [*_wrapped(f"{sweep.name}: {sweep.about}", "", "  "), ""]
    for paragraph in (inspect.getdoc(module) or "").split("\n\n"):
        lines += [*_wrapped(paragraph, "  ", "  "), ""]
    lines += ["presets, the first by default, and what varies in them:"]
    shown: dict[str, str] = {}
    for name, space in sweep.presets.items():
        metric, varied = sweep.headline(name), dict(_varied(space))
        lines += _wrapped(f"{name}: {space.count} trials, ranked by {metric.name} ({metric.direction})", "  ", "    ")
        earlier = shown.setdefault(str(varied), name)
        for key, text in varied.items() if earlier == name else [("varied", f"as in {earlier}")]:
            lines += _wrapped(f"{key}: {text}", "    ", "      ")
    assumed = {preset: sweep.assumptions[preset] for preset in sweep.presets if preset in sweep.assumptions}
    for preset, assumptions in assumed.items():
        lines += ["", f"settings of {preset} that are ours, and not those of {sweep.paper or 'the paper'}:"]
        for assumption in assumptions:
            lines += _wrapped(_assumption_text(assumption), "  ", "    ")
    if assumed and (others := [preset for preset in sweep.presets if preset not in assumed]):
        lines += ["", *_wrapped(f"all settings of {' and '.join(others)} are ours", "", "  ")]
    lines += ["", "figures and tables:"]
    for text in _views(sweep):
        lines += _wrapped(text, "  ", "    ")
    plan = f"python -m sweeper.run {reference} --preset {next(iter(sweep.presets))} --plan"
    return "\n".join([*lines, "", f"`{plan}` shows what is fixed, too."])


def describe_ours() -> str:
    """List the settings of all sweeps that ship which are not those of their papers, as Markdown."""
    by_paper: dict[str, list[Sweep]] = {}
    for sweep in map(registry.find, registry.names()):
        if sweep.assumptions:
            by_paper.setdefault(sweep.paper, []).append(sweep)
    parts = []
    for paper, sweeps in by_paper.items():
        found: dict[Assumption, list[str]] = {}
        for sweep in sweeps:
            for preset, assumptions in sweep.assumptions.items():
                name = sweep.name if preset == next(iter(sweep.presets)) else f"{sweep.name}:{preset}"
                for assumption in assumptions:
                    found.setdefault(assumption, []).append(name)
        items = [f"{_assumption_text(assumption, '`')} ({_all(names, sweeps)})" for assumption, names in found.items()]
        parts.append("\n".join([f"{paper}:", "", *(line for item in items for line in _wrapped(item, "- ", "  "))]))
    return "\n\n".join(parts)


def _all(names: Sequence[str], sweeps: Sequence[Sweep]) -> str:
    """The sweeps, or "all but ..." where few are missing."""
    missing = [sweep.name for sweep in sweeps if sweep.name not in names]
    others = [name for name in names if ":" in name]
    if len(missing) > 1 or len(sweeps) < 4:
        return ", ".join(names)
    return "; ".join([f"all but {missing[0]}" if missing else "all", *others])


def _assumption_text(assumption: Assumption, quote: str = "") -> str:
    """Text such as `tau, ema of moco_v2: the paper gives none`."""
    keys, methods = (
        ", ".join(f"{quote}{name}{quote}" for name in names) for names in (assumption.keys, assumption.methods)
    )
    subject = " of ".join(filter(None, (keys, methods)))
    return f"{subject}: {assumption.why}" if subject else assumption.why


def _varied(space: Space) -> Iterator[tuple[str, str]]:
    """Yield each key in which trials of a space differ, and its values."""
    parts = subspaces(space)
    for key in dict.fromkeys(key for part in parts for key in ("method", *part.axes)):
        values = tuple(dict.fromkeys(value for part in parts for value in part.values(key)))
        if len(values) > 1:
            yield key, _joined(values)
    searches = [part for part in parts if isinstance(part, Search)]
    for key in dict.fromkeys(key for search in searches for key in search.space):
        texts = [
            distribution_text(outline_distribution(search.space[key])) for search in searches if key in search.space
        ]
        yield f"{key} (searched)", "; or ".join(dict.fromkeys(texts))


def _joined(values: tuple[Value, ...]) -> str:
    shown = ", ".join(map(format_value, values[:MOST]))
    return f"{shown} and {len(values) - MOST} more" if len(values) > MOST else shown


def _views(sweep: Sweep) -> Iterator[str]:
    """Yield a line for each view, and the presets that alone have it."""
    for heatmap in sweep.heatmaps:
        over = f"heatmap of {heatmap.metric.name} over {heatmap.rows} and {heatmap.columns}, mean over {sweep.over}"
        yield f"{over}{_only(heatmap.presets)}"
    for table in sweep.tables:
        across = f" and {table.columns}" if table.columns else ""
        axes = f"{', '.join(table.rows)}{across}"
        yield f"table {table.name} of {_names(table.metrics)} by {axes}{_only(table.presets)}"
    for trajectory in sweep.trajectories:
        yield f"curves {trajectory.name} of {_names(trajectory.metrics)} over the epochs by {trajectory.key}"
    if sweep.breakdown:
        yield f"table of the best cell for each {sweep.breakdown}"
    for pair in sweep.correlations:
        yield f"correlation of {' and '.join(pair)} over the cells"
    for keys in sweep.contours:
        yield f"contour plot of a search's objective over {' and '.join(keys)}"
    if any(isinstance(part, Search) for space in sweep.presets.values() for part in subspaces(space)):
        yield "of each study of a search its history and the importance of its hyperparameters"


def _names(metrics: tuple[Metric, ...]) -> str:
    return ", ".join(metric.name for metric in metrics)


def _only(presets: tuple[str, ...]) -> str:
    return f" (preset {' and '.join(presets)} alone)" if presets else ""


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=first, subsequent_indent=rest)
