"""Writes a study's trials, front and importances as Parquet, with Optuna's figures, and summarises it as text."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pandas as pd

from sweeper.report import summary
from sweeper.report.heatmap import label
from sweeper.report.studies import figures
from sweeper.report.studies.tables import (
    DIVERGED,
    LEAST,
    STATES,
    beyond,
    complete,
    numeric,
    parameters,
    read_in,
    tabulate,
    undominated,
    varied,
    weigh,
)
from sweeper.spec.metric import Metric
from sweeper.storage.io.files import Files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("importance", "parallel", "history", "contour", "pareto")
"""Prefixes of the names of figures."""
SAID = (*STATES.values(), DIVERGED)
"""States of trials in the order in which `count` lists them."""
SHOWN = 7
"""Maximum number of trials of a front in the text."""
Weights = Mapping[str, Mapping[str, float]]
"""Objective -> parameter -> importance, descending."""


def write(
    files: Files,
    folder: str,
    title: str,
    study: optuna.Study,
    objectives: Sequence[Metric],
    contours: Sequence[tuple[str, str]] = (),
) -> str:
    """Write trials.parquet, front.parquet, importance.parquet and the figures. Returns a few lines for the terminal.

    With several objectives each has its own figures, whose names end with the metric. A figure that needs more trials
    is left out, and an older one of that name is deleted: importances and contours need `LEAST` complete trials.
    `contours` are pairs of parameters; if the study has none of the pairs, the two most important numeric parameters
    are drawn. A figure that cannot be drawn becomes a line of the text. Raises StoreError if writing fails.
    """
    trials = tabulate(study, objectives)
    counts = count(trials)
    pictures: dict[str, bytes] = {}
    failures = []
    with figures.drawing():
        whole = read_in(study, objectives)
        single = {metric: read_in(study, objectives, metric) for metric in objectives}
        weights = {metric.name: weigh(one_objective) for metric, one_objective in single.items()}
        for name, shown, draw in _figures(whole, single, weights, contours):
            cut = f"; {beyond(shown)} worse than shown" if beyond(shown) else ""
            try:  # Optuna's figures are experimental, and a failure must not end the search
                pictures[f"{name}.png"] = figures.png(draw(), title, drawn_from(shown, trials) + cut)
            except Exception as error:
                failures.append(f"no {name}.png: {type(error).__name__}: {' '.join(str(error).split())[:100]}")

    front = trials[trials["number"].isin(undominated(whole))]
    for name, table in (("trials", trials), ("front", front), ("importance", _importance_table(weights))):
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        files.write(f"{folder}/{name}.parquet", buffer.getvalue())
    for name, picture in pictures.items():
        files.write(f"{folder}/{name}", picture)
    for name in files.list(folder):
        if name.endswith(".png") and name.startswith(KINDS) and name not in pictures:
            files.delete(f"{folder}/{name}")
    best = _best_lines(front, trials, objectives, parameters(study))
    return "\n".join([f"{title}, {counts}", *best, *_importance_lines(weights), *_too_few_lines(single), *failures])


def count(trials: pd.DataFrame) -> str:
    """Return the number of trials by state, e.g. `64 trials (8 earlier): 40 complete, 24 pruned`."""
    states, earlier = trials["state"].value_counts(), int(trials["warm"].sum())
    parts = ", ".join(f"{states[state]} {state}" for state in SAID if state in states)
    total = f"{len(trials)} trial{'s' if len(trials) != 1 else ''}{f' ({earlier} earlier)' if earlier else ''}"
    return f"{total}: {parts}" if parts else total


def drawn_from(drawn: optuna.Study, trials: pd.DataFrame) -> str:
    """Return which trials a figure shows, e.g. `40 complete trials; left out: 24 pruned`."""
    number, states = len(complete(drawn)), trials["state"].value_counts()
    others = ", ".join(f"{states[state]} {state}" for state in SAID[1:] if state in states)
    return f"{number} complete trial{'s' if number != 1 else ''}" + (f"; left out: {others}" if others else "")


def _figures(
    whole: optuna.Study,
    single: Mapping[Metric, optuna.Study],
    weights: Weights,
    contours: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, optuna.Study, Callable[[], Figure]]]:
    """Yield each figure for which there are enough trials: its name, the study that it shows, and how to draw it.

    `whole` is the study with all objectives, and `single` has a study for each objective.
    """
    for metric, study in single.items():
        suffix = f"_{metric.name}" if len(single) > 1 else ""
        keys, importances = varied(study), weights[metric.name]
        if importances:
            yield f"importance{suffix}", study, partial(figures.importance, study, importances, _label(metric))
        if len(complete(study)) < 2:
            continue
        yield f"history{suffix}", study, partial(figures.history, study, _label(metric))
        if keys:
            yield f"parallel{suffix}", study, partial(figures.parallel, study, keys, _label(metric))
        if len(complete(study)) >= LEAST and len({trial.value for trial in complete(study)}) > 1:
            top = [key for key in importances if numeric(study, key)][:2]
            requested = [pair for pair in contours if set(pair) <= set(keys) and len(set(pair)) == 2]
            for pair in requested or ([(top[0], top[1])] if len(top) == 2 else []):
                draw = partial(figures.contour, study, pair, _label(metric))
                yield f"contour_{'_'.join(pair)}{suffix}", study, draw
    if len(single) == 2 and len(complete(whole)) > 1:
        yield "pareto", whole, partial(figures.pareto, whole, [_label(metric) for metric in single])


def _importance_table(weights: Weights) -> pd.DataFrame:
    """Return a row for each objective and parameter."""
    rows = [(name, key, share) for name, importances in weights.items() for key, share in importances.items()]
    table = pd.DataFrame(rows, columns=["objective", "parameter", "importance"])
    return table.astype({"objective": "str", "parameter": "str", "importance": "float64"})


def _best_lines(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[Metric], keys: Sequence[str]
) -> list[str]:
    """Return a line about the best trial, or with several objectives the front as a table of at most `SHOWN` trials."""
    if front.empty:
        all_diverged = len(trials) > 0 and (trials["state"] == DIVERGED).all()
        return [f"all {len(trials)} trials diverged, so none is best" if all_diverged else "no trial is complete yet"]
    front = front.sort_values(objectives[0].name, ascending=objectives[0].better == "minimize")
    numbers = zip(front["number"], front["warm"], strict=True)
    cells = {"trial": [f"{number}{' (earlier)' if warm else ''}" for number, warm in numbers]}
    cells |= {metric.name: [_text(value, metric.percent) for value in front[metric.name]] for metric in objectives}
    cells |= {key: [_text(value) for value in front[key]] for key in keys}
    if len(objectives) == 1:
        name = objectives[0].name
        values = ", ".join(f"{key}={cells[key][0]}" for key in keys)
        return [f"best {name} {cells[name][0]} by trial {cells['trial'][0]}: {values}"]
    shown = np.unique(np.linspace(0, len(front) - 1, min(len(front), SHOWN)).round().astype(int))
    lines = summary.text(pd.DataFrame(cells).iloc[shown]).splitlines()
    rest = len(front) - len(shown)
    return [*lines, *([f"and {rest} more on the front"] if rest else [])]


def _importance_lines(weights: Weights) -> list[str]:
    """Return one line with all importances, or no line if there are none."""
    texts = {
        name: ", ".join(f"{key} {100 * share:.0f}%" for key, share in importances.items())
        for name, importances in weights.items()
        if importances
    }
    parts = texts.values() if len(weights) == 1 else [f"for {name} {text}" for name, text in texts.items()]
    return [f"importance: {'; '.join(parts)}"] if texts else []


def _too_few_lines(single: Mapping[Metric, optuna.Study]) -> list[str]:
    """Return a line if there are complete trials, but too few for importances and contours."""
    counts = [len(complete(study)) for study in single.values()]
    if not 0 < min(counts) < LEAST:
        return []
    are = "is" if min(counts) == 1 else "are"
    return [f"no importance and no contours: they need {LEAST} complete trials, but there {are} {min(counts)}"]


def _label(metric: Metric) -> str:
    return f"{metric.name} (%)" if metric.percent else metric.name


def _text(value: Any, percent: bool = False) -> str:
    """Return a value with four significant figures; a share as a percentage if `percent`."""
    if percent and math.isfinite(value):
        return f"{100 * value:.4g}%"
    return f"{value:.4g}".replace("e-0", "e-") if isinstance(value, float) and math.isfinite(value) else label(value)
