"""The figures and tables of an Optuna study, as files and as text for the terminal."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import optuna
import pandas as pd

from sweeper.definition.metric import Metric
from sweeper.report import charts, study_charts
from sweeper.report.formatting import format_value, text_table
from sweeper.report.optuna_log import quiet
from sweeper.report.study_tables import (
    CUT,
    DIVERGED,
    INFEASIBLE,
    MIN_TRIALS,
    STATES,
    common_parameters,
    complete_trials,
    copy_for_figures,
    importances,
    is_log,
    is_numeric,
    parameter_names,
    pareto_front,
    trials_dataframe,
    value_limits,
    varied_parameters,
)
from sweeper.storage.files import Files

PREFIXES = ("importance", "parallel", "history", "contour", "pareto")
"""Prefixes of the names of figures."""
STATE_ORDER = (*STATES.values(), DIVERGED, INFEASIBLE)
"""States of trials in the order in which `count` lists them."""
MAX_FRONT_ROWS = 7
"""Maximum number of trials of a front in the text."""
Importances = Mapping[str, Mapping[str, float]]
"""Objective -> parameter -> importance, descending."""
Filled = tuple[charts.Chart, dict[str, Any]]
"""A chart, and the values of its holes but for the title."""
NamedFigure = tuple[str, str, Callable[[], Filled]]
"""Name of a figure, which trials it shows, and a function that returns it."""
NamedDrawing = tuple[str, Callable[[], charts.Drawing]]
"""Name of a figure, and a function that draws it."""
WIDTH, AXIS = 440, 95
"""Width of a figure; the width of parallel coordinates is at least `AXIS` for each parameter."""
CELLS = 56
"""Cells of an interpolated objective on a side."""
MANY_TRIALS = 100
"""Number of trials above which markers on a contour plot and lines are thinner."""
MAX_TICKS = 7
"""Most ticks of a logarithmic axis."""


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
    trials = trials_dataframe(study, objectives)
    pictures: dict[str, bytes] = {}
    failures = []
    with quiet(Warning):
        shown = copy_for_figures(study, objectives)
        single = {metric: copy_for_figures(study, objectives, metric) for metric in objectives}
        shares = {metric.name: importances(one_objective) for metric, one_objective in single.items()}
        for name, draw in _drawings(title, _figures(trials, shown, single, shares, contours)):
            try:  # a failure must not end the search
                pictures[f"{name}.png"] = draw().png
            except Exception as error:
                failures.append(f"no {name}.png: {type(error).__name__}: {' '.join(str(error).split())[:100]}")

    front = trials[trials["number"].isin(pareto_front(shown))]
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
    best = _best_lines(front, trials, objectives, parameter_names(study))
    return "\n".join(
        [f"{title}, {count(trials)}", *best, *_importance_lines(shares), *_too_few_lines(single), *failures]
    )


def drawings(
    title: str, study: optuna.Study, objectives: Sequence[Metric], contours: Sequence[tuple[str, str]] = ()
) -> Iterator[NamedDrawing]:
    """Yield the figures that `write` writes."""
    with quiet(Warning):
        shown = copy_for_figures(study, objectives)
        single = {metric: copy_for_figures(study, objectives, metric) for metric in objectives}
        shares = {metric.name: importances(one_objective) for metric, one_objective in single.items()}
        yield from _drawings(title, _figures(trials_dataframe(study, objectives), shown, single, shares, contours))


def _drawings(title: str, figures: Iterable[NamedFigure]) -> Iterator[NamedDrawing]:
    def drawn(note: str, draw: Callable[[], Filled]) -> charts.Drawing:
        chart, values = draw()
        heading = {"text": title, "subtitle": [note]}
        return charts.Drawing(chart, {**values, "title": heading, "padding": charts.PADDING})

    for name, note, draw in figures:
        yield name, partial(drawn, note, draw)


def count(trials: pd.DataFrame) -> str:
    """Return the number of trials by state, e.g. `64 trials (8 earlier): 40 complete, 24 pruned`."""
    states, earlier = trials["state"].value_counts(), int(trials["warm"].sum())
    parts = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER if state in states)
    total = f"{len(trials)} trial{'s' if len(trials) != 1 else ''}{f' ({earlier} earlier)' if earlier else ''}"
    return f"{total}: {parts}" if parts else total


def drawn_from(drawn: optuna.Study, trials: pd.DataFrame) -> str:
    """Return which trials a figure shows, e.g. `40 complete trials; left out: 24 pruned; 1 worse than shown`."""
    complete, states = complete_trials(drawn), trials["state"].value_counts()
    others = ", ".join(f"{states[state]} {state}" for state in STATE_ORDER[1:] if state in states)
    cut = sum(bool(trial.user_attrs.get(CUT)) for trial in complete)
    parts = [
        f"{len(complete)} complete trial{'s' if len(complete) != 1 else ''}",
        f"left out: {others}" if others else "",
    ]
    return "; ".join(filter(None, (*parts, f"{cut} worse than shown" if cut else "")))


def _figures(
    trials: pd.DataFrame,
    study: optuna.Study,
    single: Mapping[Metric, optuna.Study],
    shares: Importances,
    contours: Sequence[tuple[str, str]],
) -> Iterator[NamedFigure]:
    """Yield each figure with enough trials. `study` has all objectives, and `single` has a study for each of them."""
    for metric, one_objective in single.items():
        suffix = f"_{metric.name}" if len(single) > 1 else ""
        for name, draw in _figures_of_objective(trials, one_objective, metric, shares[metric.name], contours):
            yield f"{name}{suffix}", count(trials) if name == "history" else drawn_from(one_objective, trials), draw
    if len(single) == 2 and len(complete_trials(study)) > 1:
        yield "pareto", drawn_from(study, trials), partial(front_values, study, [*single])


def _figures_of_objective(
    trials: pd.DataFrame,
    study: optuna.Study,
    metric: Metric,
    shares: Mapping[str, float],
    contours: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, Callable[[], Filled]]]:
    """Yield the name of each figure of a study with one objective, and a function that returns its chart."""
    keys, complete = varied_parameters(study), complete_trials(study)
    if shares:
        yield "importance", partial(importance_values, shares, metric)
    if len(complete) < 2:
        return
    yield "history", partial(history_values, trials, metric)
    if common := common_parameters(study):
        yield "parallel", partial(parallel_values, study, common, metric)
    if len(complete) >= MIN_TRIALS and len({trial.value for trial in complete}) > 1:
        pairs = [pair for pair in contours if set(pair) <= set(keys) and len(set(pair)) == 2]
        most_important = [key for key in shares if is_numeric(study, key)][:2]
        if not pairs and len(most_important) == 2:
            pairs = [(most_important[0], most_important[1])]
        for pair in pairs:
            yield f"contour_{'_'.join(pair)}", partial(contour_values, study, pair, metric)


def importance_values(shares: Mapping[str, float], metric: Metric) -> Filled:
    """A bar for each parameter's importance, with the most important one on top."""
    return study_charts.IMPORTANCE, {
        "description": f"Importance of each hyperparameter for {metric.name}",
        "shares": [{"parameter": key, "share": share} for key, share in shares.items()],
        "axis": f"importance: share of the variance of {metric.name}",
        "most": 1.15 * max(shares.values()),
        "width": WIDTH,
    }


def history_values(trials: pd.DataFrame, metric: Metric) -> Filled:
    """Each trial with a value as a point, and the best value so far of a complete one as steps."""
    scale = 100.0 if metric.percent else 1.0
    values, complete = trials[metric.name], trials["state"] == "complete"
    low, high = value_limits(values[complete & np.isfinite(values)].tolist(), metric)
    states = trials["state"].replace({"complete": "finished"}).where(~trials["warm"], "earlier")
    shown = pd.DataFrame(
        {
            "number": trials["number"],
            "value": scale * values.where(np.isfinite(values)).clip(low, high),
            "best": scale * trials[f"best_{metric.name}"].clip(low, high),
            "status": states,
            "text": [_text(value, metric.percent) for value in values],
        }
    )
    return study_charts.HISTORY, {
        "description": f"{metric.label} of each trial of the study, and the best so far",
        "trials": charts.records(shown),
        "metric": _with_direction(metric),
        "statuses": [state for state in study_charts.STATUS_COLOURS if state in set(states)],
        "width": WIDTH,
    }


def parallel_values(study: optuna.Study, parameters: Sequence[str], metric: Metric) -> Filled:
    """An axis for each parameter and the objective, and a line for each complete trial. Dark is better, and on top."""
    having = [trial for trial in complete_trials(study) if set(parameters) <= set(trial.params)]
    complete = sorted(having, key=lambda trial: metric.cost(trial.value), reverse=True)
    columns = {key: [trial.params[key] for trial in complete] for key in parameters}
    logs = {key: is_log(study, key) for key in parameters}
    columns[metric.label] = [trial.value for trial in complete]
    axes = {name: _places(values, logs.get(name, False)) for name, values in columns.items()}
    lines = [
        {
            "trial": trial.number, "order": order, "axis": name, "place": places[index], "objective": trial.value,
            "text": _text(trial.value), "words": f"{name}={_text(columns[name][index])}",
        }
        for index, trial in enumerate(complete)
        for order, (name, (places, _)) in enumerate(axes.items())
    ]  # fmt: skip
    weak, strong = charts.COLOURS["light"]["weak"], charts.COLOURS["light"]["strong"]
    return study_charts.PARALLEL, {
        "description": f"Parallel coordinates of {len(complete)} trials: each hyperparameter and {metric.label}",
        "axes": list(axes),
        "lines": lines,
        "ends": [
            {"axis": name, "place": place, "text": text} for name, (_, ends) in axes.items() for place, text in ends
        ],
        "metric": _with_direction(metric),
        "shades": [strong, weak] if metric.better == "lower" else [weak, strong],
        "thickness": 0.8 if len(complete) > MANY_TRIALS else 1.4,
        "width": max(WIDTH, *(AXIS * len(axes), charts.text_width(max(axes, key=len), 11) * len(axes))),
    }


def contour_values(study: optuna.Study, pair: tuple[str, str], metric: Metric) -> Filled:
    """The objective over two parameters, interpolated between the trials. Bright is better."""
    from scipy.interpolate import RBFInterpolator  # here: it takes long to import, and few commands draw

    complete = [trial for trial in complete_trials(study) if set(pair) <= set(trial.params)]
    names, values = sorted(pair), np.array([trial.value for trial in complete])
    scales = [_Scale(study, name, [trial.params[name] for trial in complete]) for name in names]
    places, same = np.unique(np.column_stack([scale.places for scale in scales]), axis=0, return_inverse=True)
    means = np.bincount(same.ravel(), values) / np.bincount(same.ravel())  # of trials at one place
    interpolated = RBFInterpolator(places, means, kernel="linear")
    edges = np.linspace(-0.05, 1.05, CELLS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    grid = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    found = np.clip(interpolated(grid), values.min(), values.max())
    (x, x2), (y, y2) = (
        [scale.at(ends) for ends in (edges[:-1], edges[1:] + 0.1 * (edges[1] - edges[0]))] for scale in scales
    )  # cells overlap a little, so that no gap shines through
    cells = [
        {"x": x[i], "x2": x2[i], "y": y[j], "y2": y2[j], "value": float(found[i * CELLS + j])}
        for i in range(CELLS)
        for j in range(CELLS)
    ]
    points = zip(*(scale.at(scale.places) for scale in scales), strict=True)
    first, second = scales
    return study_charts.CONTOUR, {
        "description": f"{metric.label} over {names[0]} and {names[1]}",
        "grid": cells,
        "trials": [{"x": across, "y": up} for across, up in points],
        "first": names[0], "first_scale": first.kind, "first_axis": first.axis,
        "first_range": [float(end) for end in first.at(np.array([-0.05, 1.05]))],
        "second": names[1], "second_scale": second.kind, "second_axis": second.axis,
        "second_range": [float(end) for end in second.at(np.array([-0.05, 1.05]))],
        "metric": _with_direction(metric),
        "reverse": metric.better == "lower",
        "size": 36 if len(complete) <= MANY_TRIALS else 14,
    }  # fmt: skip


def front_values(study: optuna.Study, metrics: Sequence[Metric]) -> Filled:
    """The two objectives of each complete trial, and the Pareto front."""
    front = set(pareto_front(study))
    first, second = metrics
    return study_charts.FRONT, {
        "description": f"{first.name} against {second.name}",
        "trials": [
            {
                "x": trial.values[0], "y": trial.values[1], "front": trial.number in front, "trial": trial.number,
                "first": _text(trial.values[0]), "second": _text(trial.values[1]),
            }
            for trial in complete_trials(study)
        ],
        "first": _with_direction(first),
        "second": _with_direction(second),
        "width": WIDTH,
    }  # fmt: skip


class _Scale:
    """One axis of a contour plot: the places in [0, 1] of the trials, and values at other places."""

    def __init__(self, study: optuna.Study, name: str, values: Sequence[Any]) -> None:
        numeric = is_numeric(study, name)
        self.choices = [] if numeric else _choices(values)
        numbers = np.array(values if numeric else [self.choices.index(value) for value in values], dtype="float64")
        self._log = numeric and is_log(study, name)
        turned = np.log(numbers) if self._log else numbers
        self._low, self._span = float(turned.min()), float(np.ptp(turned)) or 1.0
        self.places = (turned - self._low) / self._span

    @property
    def kind(self) -> str:
        return "log" if self._log else "linear"

    @property
    def axis(self) -> dict[str, Any]:
        """What the axis of the chart writes."""
        plain: dict[str, Any] = {"grid": False, "tickCount": 6}
        if self.choices:
            labels = json.dumps([_text(choice) for choice in self.choices])
            return {**plain, "values": [*range(len(self.choices))], "labelExpr": f"{labels}[datum.value]"}
        if self._log:
            ends = self.at(np.array([0.0, 1.0]))
            return {**plain, "values": log_ticks(float(ends[0]), float(ends[1])), "format": "~g"}
        return plain

    def at(self, places: np.ndarray) -> list[float]:
        turned = self._low + places * self._span
        return [float(value) for value in (np.exp(turned) if self._log else turned)]


def _choices(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values in order: numbers, texts, None."""
    return sorted(set(values), key=lambda value: (value is None, isinstance(value, str), 0 if value is None else value))


def log_ticks(low: float, high: float) -> list[float]:
    """Return three to seven round numbers between two positive ones, or fewer if `high / low` is below about 1.5."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8)):
        candidates = [step * 10.0**decade for decade in decades for step in steps]
        numbers = [number for number in candidates if low <= number <= high]
        if len(numbers) >= 3:
            break
    return numbers[:: math.ceil(len(numbers) / MAX_TICKS)] if numbers else [low, high]


def _places(values: Sequence[Any], log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the place of each value on an axis, in [0, 1], and the texts at its ends and middle or at its choices."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        choices = _choices(values)
        at = {choice: index / (len(choices) - 1) if len(choices) > 1 else 0.5 for index, choice in enumerate(choices)}
        return [at[value] for value in values], [(place, _text(choice)) for choice, place in at.items()]
    turn, back = (math.log, math.exp) if log else (float, float)
    low, high = turn(min(values)), turn(max(values))
    if low == high:
        return [0.5 for _ in values], [(0.5, _text(values[0]))]
    ends = [(place, f"{back(low + place * (high - low)):.3g}".replace("e-0", "e-")) for place in (0.0, 0.5, 1.0)]
    return [(turn(value) - low) / (high - low) for value in values], ends


def _with_direction(metric: Metric) -> str:
    """Return e.g. `auroc, higher is better`."""
    return f"{metric.label}, {metric.better} is better"


def _best_lines(
    front: pd.DataFrame, trials: pd.DataFrame, objectives: Sequence[Metric], keys: Sequence[str]
) -> list[str]:
    """Return the front of several objectives as a table of few trials, or a line if no trial is complete."""
    if front.empty:
        all_diverged = len(trials) > 0 and (trials["state"] == DIVERGED).all()
        if infeasible := int((trials["state"] == INFEASIBLE).sum()):
            return [f"none is best: all {infeasible} complete trials are infeasible"]
        return [f"all {len(trials)} trials diverged, so none is best" if all_diverged else "no trial is complete yet"]
    front = front.sort_values(objectives[0].name, key=objectives[0].cost)
    numbers = zip(front["number"], front["warm"], strict=True)
    cells = {"trial": [f"{number}{' (earlier)' if warm else ''}" for number, warm in numbers]}
    cells |= {metric.name: [_text(value, metric.percent) for value in front[metric.name]] for metric in objectives}
    cells |= {key: [_text(None if pd.isna(value) else value) for value in front[key]] for key in keys}
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
