"""Writes a study's trials, front and importances as Parquet, with Optuna's figures, and summarises it as text."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
import pandas as pd
from matplotlib.figure import Figure

from sweeper.report.formatting import format_value, text_table
from sweeper.report.studies import figures, tables
from sweeper.report.studies.tables import DIVERGED, MIN_TRIALS, complete_trials
from sweeper.spec.metric import Metric
from sweeper.storage.files import Files

PREFIXES = ("importance", "parallel", "history", "contour", "pareto")
"""Prefixes of the names of figures."""
STATE_ORDER = (*tables.STATES.values(), DIVERGED)
"""States of trials in the order in which `count` lists them."""
MAX_FRONT_ROWS = 7
"""Maximum number of trials of a front in the text."""
Importances = Mapping[str, Mapping[str, float]]
"""Objective -> parameter -> importance, descending."""
NamedFigure = tuple[str, optuna.Study, Callable[[], Figure]]
"""Name of a figure, the study that it shows, and a function that draws it."""


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
    is left out, and an older one of that name is deleted: importances and contours need `MIN_TRIALS` complete trials.
    `contours` are pairs of parameters; if the study has none of the pairs, the two most important numeric parameters
    are drawn. A figure that cannot be drawn becomes a line of the text. Raises StoreError if writing fails.
    """
    trials = tables.trials_dataframe(study, objectives)
    pictures: dict[str, bytes] = {}
    failures = []
    with figures.drawing():
        shown = tables.copy_for_figures(study, objectives)
        single = {metric: tables.copy_for_figures(study, objectives, metric) for metric in objectives}
        shares = {metric.name: tables.importances(one_objective) for metric, one_objective in single.items()}
        for name, drawn, draw in _figures(shown, single, shares, contours):
            cut_count = sum(bool(trial.user_attrs.get(tables.CUT)) for trial in complete_trials(drawn))
            cut = f"; {cut_count} worse than shown" if cut_count else ""
            try:  # Optuna's figures are experimental, and a failure must not end the search
                pictures[f"{name}.png"] = figures.png(draw(), title, drawn_from(drawn, trials) + cut)
            except Exception as error:
                failures.append(f"no {name}.png: {type(error).__name__}: {' '.join(str(error).split())[:100]}")

    front = trials[trials["number"].isin(tables.pareto_front(shown))]
    importance = pd.DataFrame(
        [(name, key, share) for name, parameters in shares.items() for key, share in parameters.items()],
        columns=["objective", "parameter", "importance"],
    ).astype({"objective": "str", "parameter": "str", "importance": "float64"})
    for name, table in (("trials", trials), ("front", front), ("importance", importance)):
        files.write(f"{folder}/{name}.parquet", table.to_parquet(index=False))
    for name, picture in pictures.items():
        files.write(f"{folder}/{name}", picture)
    for name in files.list(folder):
        if name.endswith(".png") and name.startswith(PREFIXES) and name not in pictures:
            files.delete(f"{folder}/{name}")
    best = _best_lines(front, trials, objectives, tables.parameter_names(study))
    return "\n".join(
        [f"{title}, {count(trials)}", *best, *_importance_lines(shares), *_too_few_lines(single), *failures]
    )


def count(trials: pd.DataFrame) -> str:
    """Return the number of trials by state, e.g. `64 trials (8 earlier): 40 complete, 24 pruned`."""
    states, earlier = trials["state"].value_counts(), int(trials["warm"].sum())
    parts = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER if state in states)
    total = f"{len(trials)} trial{'s' if len(trials) != 1 else ''}{f' ({earlier} earlier)' if earlier else ''}"
    return f"{total}: {parts}" if parts else total


def drawn_from(drawn: optuna.Study, trials: pd.DataFrame) -> str:
    """Return which trials a figure shows, e.g. `40 complete trials; left out: 24 pruned`."""
    number, states = len(complete_trials(drawn)), trials["state"].value_counts()
    others = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER[1:] if state in states)
    return f"{number} complete trial{'s' if number != 1 else ''}" + (f"; left out: {others}" if others else "")


def _figures(
    study: optuna.Study, single: Mapping[Metric, optuna.Study], shares: Importances, contours: Sequence[tuple[str, str]]
) -> Iterator[NamedFigure]:
    """Yield each figure with enough trials. `study` has all objectives, and `single` has a study for each of them."""
    for metric, one_objective in single.items():
        suffix = f"_{metric.name}" if len(single) > 1 else ""
        for name, draw in _figures_of_objective(one_objective, metric, shares[metric.name], contours):
            yield f"{name}{suffix}", one_objective, draw
    if len(single) == 2 and len(complete_trials(study)) > 1:
        yield "pareto", study, partial(figures.pareto, study, [metric.label for metric in single])


def _figures_of_objective(
    study: optuna.Study, metric: Metric, shares: Mapping[str, float], contours: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Yield the name of each figure of a study with one objective, and a function that draws it."""
    label, keys, trials = metric.label, tables.varied_parameters(study), complete_trials(study)
    if shares:
        yield "importance", partial(figures.importance, study, shares, label)
    if len(trials) < 2:
        return
    yield "history", partial(figures.history, study, label)
    if keys:
        yield "parallel", partial(figures.parallel, study, keys, label)
    if len(trials) >= MIN_TRIALS and len({trial.value for trial in trials}) > 1:
        pairs = [pair for pair in contours if set(pair) <= set(keys) and len(set(pair)) == 2]
        most_important = [key for key in shares if tables.is_numeric(study, key)][:2]
        if not pairs and len(most_important) == 2:
            pairs = [(most_important[0], most_important[1])]
        for pair in pairs:
            yield f"contour_{'_'.join(pair)}", partial(figures.contour, study, pair, label)


def _best_lines(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[Metric], keys: Sequence[str]
) -> list[str]:
    """Return the front of several objectives as a table of few trials, or a line if no trial is complete."""
    if front.empty:
        all_diverged = len(trials) > 0 and (trials["state"] == DIVERGED).all()
        return [f"all {len(trials)} trials diverged, so none is best" if all_diverged else "no trial is complete yet"]
    front = front.sort_values(objectives[0].name, key=objectives[0].cost)
    numbers = zip(front["number"], front["warm"], strict=True)
    cells = {"trial": [f"{number}{' (earlier)' if warm else ''}" for number, warm in numbers]}
    cells |= {metric.name: [_text(value, metric.percent) for value in front[metric.name]] for metric in objectives}
    cells |= {key: [_text(value) for value in front[key]] for key in keys}
    if len(objectives) == 1:
        return []  # the best setting of a study is named as that of every sweep
    shown = np.unique(np.linspace(0, len(front) - 1, min(len(front), MAX_FRONT_ROWS)).round().astype(int))
    table = text_table({name: [texts[index] for index in shown] for name, texts in cells.items()})
    rest = len(front) - len(shown)
    return [*table.splitlines(), *([f"and {rest} more on the front"] if rest else [])]


def _importance_lines(shares: Importances) -> list[str]:
    texts = {
        name: ", ".join(f"{key} {100 * share:.0f}%" for key, share in parameters.items())
        for name, parameters in shares.items()
        if parameters
    }
    parts = texts.values() if len(shares) == 1 else [f"for {name} {text}" for name, text in texts.items()]
    return [f"importance: {'; '.join(parts)}"] if texts else []


def _too_few_lines(single: Mapping[Metric, optuna.Study]) -> list[str]:
    counts = [len(complete_trials(study)) for study in single.values()]
    if not 0 < min(counts) < MIN_TRIALS:
        return []
    are = "is" if min(counts) == 1 else "are"
    return [f"no importance and no contours: they need {MIN_TRIALS} complete trials, but there {are} {min(counts)}"]


def _text(value: Any, percent: bool = False) -> str:
    """Return a value with four significant figures; a share as a percentage if `percent`."""
    if percent and math.isfinite(value):
        return f"{100 * value:.4g}%"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}".replace("e-0", "e-")
    return format_value(value)
