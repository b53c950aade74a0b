"""A study -> its trials, its front and what mattered as Parquet, Optuna's figures of it, and a few lines to read."""

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
"""What the names of pictures begin with."""
SAID = (*STATES.values(), DIVERGED)
"""States of trials in the order in which they are counted, complete first."""
SHOWN = 7
"""Trials of a front in the terminal."""
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
    """Write trials.parquet, front.parquet, importance.parquet and the pictures; returns a few lines for the terminal.

    With several objectives there is a picture for each, its name suffixed by the metric. A picture that the trials do
    not suffice for is left out, and an old one is deleted: importances and contours take LEAST complete trials.
    `contours`: pairs of parameters; where the study has none of them, the two most important numbers. StoreError if the
    store refuses; nothing else is raised.
    """
    trials = tabulate(study, objectives)
    said = count(trials)
    pictures: dict[str, bytes] = {}
    failures = []
    with figures.drawing():
        whole = read_in(study, objectives)
        ones = {metric: read_in(study, objectives, metric) for metric in objectives}
        weights = {metric.name: weigh(one) for metric, one in ones.items()}
        for name, drawn, draw in _wanted(whole, ones, weights, contours):
            cut = f"; {beyond(drawn)} worse than shown" if beyond(drawn) else ""
            try:  # Optuna's figures are experimental: none of them is worth a search
                pictures[f"{name}.png"] = figures.png(draw(), title, drawn_from(drawn, trials) + cut)
            except Exception as error:
                failures.append(f"no {name}.png: {type(error).__name__}: {' '.join(str(error).split())[:100]}")

    front = trials[trials["number"].isin(undominated(whole))]
    for name, table in (("trials", trials), ("front", front), ("importance", _long(weights))):
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        files.write(f"{folder}/{name}.parquet", buffer.getvalue())
    for name, picture in pictures.items():
        files.write(f"{folder}/{name}", picture)
    for name in files.list(folder):
        if name.endswith(".png") and name.startswith(KINDS) and name not in pictures:
            files.delete(f"{folder}/{name}")
    champions = _champions(front, trials, objectives, parameters(study))
    return "\n".join([f"{title}, {said}", *champions, *_mattered(weights), *_too_few(ones), *failures])


def count(trials: pd.DataFrame) -> str:
    """How many trials, by state."""
    states, earlier = trials["state"].value_counts(), int(trials["warm"].sum())
    parts = ", ".join(f"{states[state]} {state}" for state in SAID if state in states)
    whole = f"{len(trials)} trial{'s' if len(trials) != 1 else ''}{f' ({earlier} earlier)' if earlier else ''}"
    return f"{whole}: {parts}" if parts else whole


def drawn_from(drawn: optuna.Study, trials: pd.DataFrame) -> str:
    """How many complete trials a picture shows, and which it leaves out."""
    whole, states = len(complete(drawn)), trials["state"].value_counts()
    others = ", ".join(f"{states[state]} {state}" for state in SAID[1:] if state in states)
    return f"{whole} complete trial{'s' if whole != 1 else ''}" + (f"; left out: {others}" if others else "")


def _wanted(
    whole: optuna.Study,
    ones: Mapping[Metric, optuna.Study],
    weights: Weights,
    contours: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, optuna.Study, Callable[[], Figure]]]:
    """The name of each picture that there is enough for, the study it shows, and what draws it."""
    for metric, one in ones.items():
        suffix = f"_{metric.name}" if len(ones) > 1 else ""
        keys, mine = varied(one), weights[metric.name]
        if mine:
            yield f"importance{suffix}", one, partial(figures.importance, one, mine, _label(metric))
        if len(complete(one)) < 2:
            continue
        yield f"history{suffix}", one, partial(figures.history, one, _label(metric))
        if keys:
            yield f"parallel{suffix}", one, partial(figures.parallel, one, keys, _label(metric))
        if len(complete(one)) >= LEAST and len({trial.value for trial in complete(one)}) > 1:
            best = [key for key in mine if numeric(one, key)][:2]
            asked = [pair for pair in contours if set(pair) <= set(keys) and len(set(pair)) == 2]
            for pair in asked or ([(best[0], best[1])] if len(best) == 2 else []):
                draw = partial(figures.contour, one, pair, _label(metric))
                yield f"contour_{'_'.join(pair)}{suffix}", one, draw
    if len(ones) == 2 and len(complete(whole)) > 1:
        yield "pareto", whole, partial(figures.pareto, whole, [_label(metric) for metric in ones])


def _long(weights: Weights) -> pd.DataFrame:
    """A row for each objective and parameter."""
    rows = [(name, key, share) for name, mine in weights.items() for key, share in mine.items()]
    table = pd.DataFrame(rows, columns=["objective", "parameter", "importance"])
    return table.astype({"objective": "str", "parameter": "str", "importance": "float64"})


def _champions(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[Metric], keys: Sequence[str]
) -> list[str]:
    """The best trial, or the front as a table of ten lines at most."""
    if front.empty:
        lost = len(trials) > 0 and (trials["state"] == DIVERGED).all()
        return [f"all {len(trials)} trials diverged, so none is best" if lost else "no trial is complete yet"]
    front = front.sort_values(objectives[0].name, ascending=objectives[0].better == "minimize")
    trials = zip(front["number"], front["warm"], strict=True)
    cells = {"trial": [f"{number}{' (earlier)' if warm else ''}" for number, warm in trials]}
    cells |= {metric.name: [_read(value, metric.percent) for value in front[metric.name]] for metric in objectives}
    cells |= {key: [_read(value) for value in front[key]] for key in keys}
    if len(objectives) == 1:
        name = objectives[0].name
        where = ", ".join(f"{key}={cells[key][0]}" for key in keys)
        return [f"best {name} {cells[name][0]} by trial {cells['trial'][0]}: {where}"]
    keep = np.unique(np.linspace(0, len(front) - 1, min(len(front), SHOWN)).round().astype(int))
    lines = summary.text(pd.DataFrame(cells).iloc[keep]).splitlines()
    rest = len(front) - len(keep)
    return [*lines, *([f"and {rest} more on the front"] if rest else [])]


def _mattered(weights: Weights) -> list[str]:
    """The importances in one line."""
    told = {
        name: ", ".join(f"{key} {100 * share:.0f}%" for key, share in mine.items())
        for name, mine in weights.items()
        if mine
    }
    parts = told.values() if len(weights) == 1 else [f"for {name} {part}" for name, part in told.items()]
    return [f"importance: {'; '.join(parts)}"] if told else []


def _too_few(ones: Mapping[Metric, optuna.Study]) -> list[str]:
    """Why there is no importance and no contour, where there are some complete trials, but too few."""
    counts = [len(complete(one)) for one in ones.values()]
    if not 0 < min(counts) < LEAST:
        return []
    are = "is" if min(counts) == 1 else "are"
    return [f"no importance and no contours: they take {LEAST} complete trials, but there {are} {min(counts)}"]


def _label(metric: Metric) -> str:
    return f"{metric.name} (%)" if metric.percent else metric.name


def _read(value: Any, percent: bool = False) -> str:
    if percent and math.isfinite(value):
        return f"{100 * value:.4g}%"
    return f"{value:.4g}".replace("e-0", "e-") if isinstance(value, float) and math.isfinite(value) else label(value)
