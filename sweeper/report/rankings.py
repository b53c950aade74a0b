"""Settings ranked over tasks, such as one-class methods over the normal classes: ranks, differences from a reference,
and what choosing on the test images would have given. As Parquet, Markdown and text.

Shapes: R rows of the ranking, T tasks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from tabulate import tabulate

from sweeper.plan.best_settings import CHOSEN, chosen_scores
from sweeper.report.compare import improvement, probable, signed
from sweeper.report.formatting import DASH, ValueText, format_metric, plain_text, text_table
from sweeper.report.summaries import summarise
from sweeper.report.verdicts import half_widths
from sweeper.spec.views import Published, Ranking
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.rows import plain_value

DIGITS = 1
"""Decimals of a percentage."""
COMMON = 2
"""Most scores that a row names as its choice."""


class Ranked(NamedTuple):
    """A ranking of some rows."""

    rows: pd.DataFrame
    """One row for each of the ranking, the best first, then those that only a paper has:

    - `scores`: the anomaly scores that its trials chose, the most frequent first; null for another metric
    - `mean`, `low`, `high`: over `tasks` tasks, each the mean of its `runs`, with the 95 % interval over tasks, or over
      runs if there is one task
    - `rank`: the mean over the tasks that all have; 1 is best
    - `difference`, `difference_low`, `difference_high`: from the reference, paired by task
    - `improved`, `improved_low`, `improved_high`: `compare.improvement` over the reference
    - `leak`: the mean of `Ranking.leak`
    - `published`, `recalled`: the paper's figure, and whether it was recalled and not read
    """
    tasks: pd.DataFrame
    """One row for each of the ranking and task: `mean`, `runs`, `leak`, `published`, `recalled`."""


def rank(rows: pd.DataFrame, ranking: Ranking, preset: str) -> Ranked:
    """Rank the trials of `rows`, in which a hyperparameter or metric that is no column is null."""
    published = ranking.published.get(preset, {})
    names = [ranking.metric.name, *([ranking.leak.name] if ranking.leak else [])]
    known = rows.reindex(columns=[*ranking.axes, *names])
    known = known.assign(**{name: known[name].astype("float64") for name in names})
    keys = [tuple(map(plain_value, key)) for key in known[list(ranking.rows)].itertuples(index=False, name=None)]
    row_keys = list(dict.fromkeys([*keys, *(key for key, _ in published)]))
    of_tasks = [plain_value(value) for value in known[ranking.tasks]]
    tasks = sorted(dict.fromkeys(of_tasks), key=lambda value: (value is None, value))
    row_N = np.array([row_keys.index(key) for key in keys], dtype=np.int64)
    task_N = np.array([tasks.index(value) for value in of_tasks], dtype=np.int64)
    value_N, shape = known[names[0]].to_numpy(), (len(row_keys), len(tasks))
    mean_RT, leak_RT = (_means(known[name].to_numpy(), row_N, task_N, shape) for name in (names[0], names[-1]))
    known_RT, runs_RT = ~np.isnan(mean_RT), np.zeros(shape, dtype=np.int64)
    np.add.at(runs_RT, (row_N[~np.isnan(value_N)], task_N[~np.isnan(value_N)]), 1)
    found = summarise(known[names[0]], row_N, task_N if len(tasks) > 1 else np.arange(len(rows)), shape[0])
    gain_N, sign = -ranking.metric.cost(value_N), float(-ranking.metric.cost(1.0))
    reference = row_keys.index(ranking.reference) if ranking.reference in row_keys else None
    columns = {name: [key[index] for key in row_keys] for index, name in enumerate(ranking.rows)}
    summary = pd.DataFrame(
        {
            **columns,
            "scores": [_scores(rows[row_N == index], ranking) for index in range(shape[0])],
            **{name: found[name] for name in ("mean", "low", "high")},
            "tasks": known_RT.sum(1),
            "runs": runs_RT.max(1, initial=0),
            "rank": _ranks(sign * mean_RT, known_RT),
            **_against(gain_N, mean_RT, row_N, task_N, reference),
            "leak": [
                float(leak_T[own].mean()) if own.any() else math.nan
                for leak_T, own in zip(leak_RT, known_RT, strict=True)
            ],
            **_figures([published.get((key, None)) for key in row_keys]),
        }
    )
    by_task = pd.DataFrame(
        {
            **{name: values * len(tasks) for name, values in columns.items()},
            ranking.tasks: [task for task in tasks for _ in row_keys],
            "mean": mean_RT.T.ravel(),
            "runs": runs_RT.T.ravel(),
            "leak": leak_RT.T.ravel(),
            **_figures([published.get((key, task)) for task in tasks for key in row_keys]),
        }
    )
    places = [np.nan_to_num(-sign * summary[name].to_numpy(), nan=np.inf) for name in ("published", "mean")]
    return Ranked(summary.iloc[np.lexsort(places)].reset_index(drop=True), by_task)


def _means(value_N: np.ndarray, row_N: np.ndarray, task_N: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The means `[R, T]` of the trials of each row and task that have a value; NaN where none has one."""
    known = ~np.isnan(value_N)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (row_N[known], task_N[known]), value_N[known])
    np.add.at(counts, (row_N[known], task_N[known]), 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), math.nan)


def _scores(rows: pd.DataFrame, ranking: Ranking) -> str | None:
    """Return e.g. `knn1_z 7, kde_z 3`: the anomaly scores that trials chose, with the number of trials of each."""
    counts = [*chosen_scores(rows.to_dict("records")).items()] if ranking.metric.name == CHOSEN else []
    if len(counts) < 2:
        return counts[0][0] if counts else None
    others = [f"{len(counts) - COMMON} more"] if len(counts) > COMMON else []
    return ", ".join([*(f"{name} {count}" for name, count in counts[:COMMON]), *others])


def _ranks(gain_RT: np.ndarray, known_RT: np.ndarray) -> np.ndarray:
    """The mean rank `[R]` over the tasks that all rows with any value have; 1 is best."""
    ranks = np.full(len(gain_RT), math.nan)
    present = known_RT.any(1)
    shared = known_RT[present].all(0)
    if present.any() and shared.any():
        ranks[present] = stats.rankdata(-gain_RT[present][:, shared], axis=0).mean(1)
    return ranks


def _against(
    gain_N: np.ndarray, mean_RT: np.ndarray, row_N: np.ndarray, task_N: np.ndarray, reference: int | None
) -> dict[str, list[float]]:
    """The columns of `Ranked.rows` that compare each row with the reference. `gain_N`: values, higher for better."""
    names = ("difference", "difference_low", "difference_high", "improved", "improved_low", "improved_high")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for row, mean_T in enumerate(mean_RT):
        difference_T = mean_T - mean_RT[reference] if reference is not None else np.full(len(mean_T), math.nan)
        known = ~np.isnan(difference_T)
        compared = [math.nan] * len(names)
        if known.any() and row != reference:
            mean, std = difference_T[known].mean(), difference_T[known].std(ddof=1) if known.sum() > 1 else math.nan
            half = float(half_widths(np.array(std), np.array(known.sum())))
            runs = [
                [gain_N[(row_N == side) & (task_N == task) & ~np.isnan(gain_N)] for task in np.flatnonzero(known)]
                for side in (reference, row)
            ]
            compared = [mean, mean - half, mean + half, *improvement(*runs)]
        for name, value in zip(names, compared, strict=True):
            columns[name].append(float(value))
    return columns


def _figures(published: Sequence[Published | None]) -> dict[str, list[Any]]:
    return {
        "published": [figure.value if figure else math.nan for figure in published],
        "recalled": [bool(figure and figure.recalled) for figure in published],
    }


def write(files: Files, folder: str, ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> None:
    """Write `rankings/FOLDER/NAME.parquet` with the rows, `NAME-tasks.parquet` with the tasks, and `NAME.md` with
    both."""
    for suffix, content in (
        (".parquet", ranked.rows.to_parquet(index=False)),
        ("-tasks.parquet", ranked.tasks.to_parquet(index=False)),
        (".md", markdown(ranked, ranking, value_text).encode()),
    ):
        files.write(figure_path("rankings", folder, f"{ranking.name}{suffix}"), content)


def markdown(ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> str:
    """Return a Markdown document: a title, the caption, the rows and the tasks."""
    blocks = [
        tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True)
        for columns in columns_of(ranked, ranking, value_text)
    ]
    return "\n\n".join([f"# {ranking.name}", caption(ranked, ranking), *blocks]) + "\n"


def text(ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> str:
    """Return the ranking as plain text for a terminal."""
    blocks = [text_table(columns) for columns in columns_of(ranked, ranking, value_text)]
    return "\n\n".join([f"{ranking.name}\n{caption(ranked, ranking)}", *blocks])


def caption(ranked: Ranked, ranking: Ranking) -> str:
    """Return what the ranking shows, in a line."""
    rows = ranked.rows[ranked.rows["tasks"] > 0]
    if rows.empty:
        return "no value yet"
    tasks, runs, against = sorted({*rows["tasks"]}), sorted({*rows["runs"]}), ", ".join(map(str, ranking.reference))
    over = f"{_span(tasks)} {ranking.over}, each the mean of {_span(runs)} runs" if tasks[-1] > 1 else "runs"
    parts = [f"{ranking.metric.name} in percent, mean ± 95 % interval over {over}"]
    if rows["difference"].notna().any():
        parts.append(f"less {against}: paired by {ranking.tasks}")
        parts.append(f"P(better): how probably a run is better than one of {against}")
    if ranking.leak:
        parts.append("best on test: what choosing on the test images would have given")
    if ranked.rows["published"].notna().any():
        parts.append(
            f"published: the paper's figure{', r if recalled, not read' if ranked.rows['recalled'].any() else ''}"
        )
    return "; ".join([*parts, ranking.note] if ranking.note else parts)


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def columns_of(ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> list[dict[str, list[str]]]:
    """Return the columns of the rows, and those of the means by task: heading -> text of each cell."""
    rows = ranked.rows.to_dict("records")
    keys = {name: [value_text(name, row[name]) for row in rows] for name in ranking.rows}
    about: dict[str, list[str]] = {
        "score": [row["scores"] if isinstance(row["scores"], str) else DASH for row in rows],
        "mean": [_interval(row) for row in rows],
        "rank": [DASH if math.isnan(row["rank"]) else f"{row['rank']:.1f}" for row in rows],
        f"less {', '.join(map(str, ranking.reference))}": [_difference(row) for row in rows],
        "P(better)": [probable(row["improved"], row["improved_low"], row["improved_high"]) for row in rows],
        "best on test": [_percent(row["leak"]) if ranking.leak else DASH for row in rows],
        "published": [_published(row) for row in rows],
    }
    place = {tuple(row[name] for name in ranking.rows): index for index, row in enumerate(rows)}
    by_task: dict[str, list[str]] = {}
    for cell in ranked.tasks.to_dict("records"):
        column = by_task.setdefault(value_text(ranking.tasks, cell[ranking.tasks]), [DASH] * len(rows))
        figure = f" ({_published(cell)})" if not math.isnan(cell["published"]) else ""
        column[place[tuple(cell[name] for name in ranking.rows)]] = _percent(cell["mean"]) + figure
    shown = {name: texts for name, texts in about.items() if name == "mean" or {*texts} != {DASH}}
    return [{**keys, **shown}, *([{**keys, **by_task}] if len(by_task) > 1 else [])]


def _percent(value: float) -> str:
    return DASH if math.isnan(value) else format_metric(round(100 * value, DIGITS) + 0.0, DIGITS)


def _interval(row: Mapping[Any, Any]) -> str:
    half = row["high"] - row["mean"]
    return _percent(row["mean"]) + ("" if math.isnan(half) else f" ± {_percent(half)}")


def _difference(row: Mapping[Any, Any]) -> str:
    difference, half = row["difference"], row["difference_high"] - row["difference"]
    return DASH if math.isnan(difference) else signed(100 * difference, 100 * half)


def _published(row: Mapping[Any, Any]) -> str:
    return _percent(row["published"]) + (" r" if row["recalled"] else "")
