"""Settings ranked over tasks, such as one-class methods over the normal classes: ranks, differences from a reference,
and what choosing on the test images would have given. As Parquet, Markdown and text.

Shapes: R rows of the ranking, T tasks.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from sweeper.plan.best_settings import chosen_scores
from sweeper.report.charts import Chart
from sweeper.report.compare import improvement, probable, signed
from sweeper.report.figures import Shown
from sweeper.report.formatting import DASH, ValueText, format_metric, format_value, plain_text, text_table
from sweeper.report.summaries import summarise
from sweeper.report.verdicts import half_widths
from sweeper.spec.figures import Ranking
from sweeper.spec.metric import SPREADS
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.rows import plain_value
from trainables.metrics.meanings import CHOSEN

FOLDER, TITLE = "rankings", "Rankings"
CHARTS: Mapping[str, Chart] = {}
DIGITS = 1
"""Decimals of a percentage."""
COMMON = 2
"""Most scores that a row names as its choice."""


def publish(files: Files, folder: str, shown: Shown, ranking: Ranking) -> str | None:
    """Write a ranking as `NAME.parquet` and `NAME.md`, and return it as text. None is written if no row has a value."""
    rows, clause = shown.of_best_settings(shown.rows_of(ranking), ranking)
    ranked = rank(rows, ranking, shown.preset.preset)
    if not ranked["tasks"].any():
        return None
    document = markdown(ranked, ranking, shown.value_text, clause)
    files.write(figure_path(FOLDER, folder, f"{ranking.name}.parquet"), ranked.to_parquet(index=False))
    files.write(figure_path(FOLDER, folder, f"{ranking.name}.md"), document.encode())
    return text(ranked, ranking, shown.value_text, clause)


def on_page(shown: Shown, ranking: Ranking) -> dict[str, Any] | None:
    """Return a ranking as the texts of its columns; None if no row has a value."""
    rows, clause = shown.of_best_settings(shown.rows_of(ranking), ranking)
    ranked = rank(rows, ranking, shown.preset.preset)
    if not ranked["tasks"].any():
        return None
    return {
        "name": ranking.name,
        "captions": dict.fromkeys(SPREADS, caption(ranked, ranking, clause)),
        "rows": list(ranking.rows),
        "texts": columns_of(ranked, ranking, shown.value_text),
    }


def rank(rows: pd.DataFrame, ranking: Ranking, preset: str) -> pd.DataFrame:
    """Rank the trials of `rows`, in which a hyperparameter or metric that is no column is null.

    Returns one row for each of the ranking, the best first, then those that only a paper has:

    - `scores`: the anomaly scores that its trials chose, the most frequent first; null for another metric
    - `mean`, `low`, `high`: over `tasks` tasks, each the mean of its `runs`, with the 95 % interval over tasks, or over
      runs if there is one task
    - `rank`: the mean over the tasks that all have; 1 is best
    - `difference`, `difference_low`, `difference_high`: from the reference, paired by task
    - `improved`, `improved_low`, `improved_high`: `compare.improvement` over the reference
    - `leak`: the mean of `Ranking.leak`
    - `published`, `recalled`: the paper's figure, and whether it was recalled and not read
    """
    published = ranking.published.get(preset, {})
    names = [ranking.metric.name, *([ranking.leak.name] if ranking.leak else [])]
    known = rows.reindex(columns=[*ranking.axes, *names])
    known = known.assign(**{name: known[name].astype("float64") for name in names})
    keys = [tuple(map(plain_value, key)) for key in known[list(ranking.rows)].itertuples(index=False, name=None)]
    row_keys = list(dict.fromkeys([*keys, *published]))
    of_tasks = [plain_value(value) for value in known[ranking.tasks]]
    tasks = list(dict.fromkeys(of_tasks))
    row_N = np.array([row_keys.index(key) for key in keys], dtype=np.int64)
    task_N = np.array([tasks.index(value) for value in of_tasks], dtype=np.int64)
    value_N, shape = known[names[0]].to_numpy(), (len(row_keys), len(tasks))
    mean_RT, leak_RT = (_means(known[name].to_numpy(), row_N, task_N, shape) for name in (names[0], names[-1]))
    known_RT, runs_RT = ~np.isnan(mean_RT), np.zeros(shape, dtype=np.int64)
    np.add.at(runs_RT, (row_N[~np.isnan(value_N)], task_N[~np.isnan(value_N)]), 1)
    found = summarise(known[names[0]], row_N, task_N if len(tasks) > 1 else np.arange(len(rows)), shape[0])
    gain_N, sign = -ranking.metric.cost(value_N), float(-ranking.metric.cost(1.0))
    reference = row_keys.index(ranking.reference) if ranking.reference in row_keys else None
    figures = [published.get(key) for key in row_keys]
    ranked = pd.DataFrame(
        {
            **{name: [key[index] for key in row_keys] for index, name in enumerate(ranking.rows)},
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
            "published": [figure.value if figure else math.nan for figure in figures],
            "recalled": [bool(figure and figure.recalled) for figure in figures],
        }
    )
    places = [np.nan_to_num(-sign * ranked[name].to_numpy(), nan=np.inf) for name in ("published", "mean")]
    return ranked.iloc[np.lexsort(places)].reset_index(drop=True)


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
        from scipy.stats import rankdata  # here: importing it takes half as long as all that a request imports

        ranks[present] = rankdata(-gain_RT[present][:, shared], axis=0).mean(1)
    return ranks


def _against(
    gain_N: np.ndarray, mean_RT: np.ndarray, row_N: np.ndarray, task_N: np.ndarray, reference: int | None
) -> dict[str, list[float]]:
    """The columns of `rank` that compare each row with the reference. `gain_N`: values, higher for better."""
    names = ("difference", "difference_low", "difference_high", "improved", "improved_low", "improved_high")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for row, mean_T in enumerate(mean_RT):
        difference_T = mean_T - mean_RT[reference] if reference is not None else np.full(len(mean_T), math.nan)
        known = ~np.isnan(difference_T)
        compared = [math.nan] * len(names)
        if known.any() and row != reference:
            mean, std = difference_T[known].mean(), difference_T[known].std(ddof=1) if known.sum() > 1 else math.nan
            half = float(half_widths(np.array(std), np.array(known.sum())))
            worse, better = (
                [gain_N[(row_N == side) & (task_N == task) & ~np.isnan(gain_N)] for task in np.flatnonzero(known)]
                for side in (reference, row)
            )
            compared = [mean, mean - half, mean + half, *improvement(worse, better)]
        for name, value in zip(names, compared, strict=True):
            columns[name].append(float(value))
    return columns


def markdown(ranked: pd.DataFrame, ranking: Ranking, value_text: ValueText = plain_text, clause: str = "") -> str:
    """Return a Markdown document: a title, the caption and the rows."""
    columns = columns_of(ranked, ranking, value_text)
    body = tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True)
    return f"# {ranking.name}\n\n{caption(ranked, ranking, clause)}\n\n{body}\n"


def text(ranked: pd.DataFrame, ranking: Ranking, value_text: ValueText = plain_text, clause: str = "") -> str:
    """Return the ranking as plain text for a terminal."""
    table = text_table(columns_of(ranked, ranking, value_text))
    return f"{ranking.name}\n{caption(ranked, ranking, clause)}\n{table}"


def caption(ranked: pd.DataFrame, ranking: Ranking, clause: str = "") -> str:
    """Return what the ranking shows, in a line, with a clause on searches."""
    rows = ranked[ranked["tasks"] > 0]
    if rows.empty:
        return "no value yet"
    tasks, runs, against = _span(rows["tasks"]), _span(rows["runs"]), _reference(ranking)
    each = f", each the mean of {runs} runs" if rows["runs"].max() > 1 else ""
    over = f"{tasks} {ranking.over}{each}" if rows["tasks"].max() > 1 else "runs"
    beside = " ± 95 % interval" if rows["low"].notna().any() else ""
    parts = [f"{ranking.metric.label}: mean{beside} over {over}", *filter(None, [clause])]
    if rows["difference"].notna().any():
        parts.append(f"less {against}: paired by {ranking.tasks}")
        parts.append(f"P(better): how probably a run is better than one of {against}")
    if ranking.leak:
        parts.append("best on test: what choosing on the test images would have given")
    if ranked["published"].notna().any():
        recalled = ", with r where it was recalled and not read" if ranked["recalled"].any() else ""
        parts += [f"published: the paper's figure{recalled}", *filter(None, [ranking.note])]
    return "; ".join(parts)


def columns_of(ranked: pd.DataFrame, ranking: Ranking, value_text: ValueText = plain_text) -> dict[str, list[str]]:
    """Return heading -> text of each cell. Columns without any value are left out."""
    rows = ranked.to_dict("records")
    keys = {name: [value_text(name, row[name]) for row in rows] for name in ranking.rows}
    about = {
        "score": [row["scores"] if isinstance(row["scores"], str) else DASH for row in rows],
        "mean": [_interval(row) for row in rows],
        "rank": [DASH if math.isnan(row["rank"]) else f"{row['rank']:.1f}" for row in rows],
        f"less {_reference(ranking)}": [_difference(row) for row in rows],
        "P(better)": [probable(row["improved"], row["improved_low"], row["improved_high"]) for row in rows],
        "best on test": [_percent(row["leak"]) if ranking.leak else DASH for row in rows],
        "published": [_percent(row["published"]) + (" r" if row["recalled"] else "") for row in rows],
    }
    return {**keys, **{name: texts for name, texts in about.items() if name == "mean" or {*texts} != {DASH}}}


def _reference(ranking: Ranking) -> str:
    return ", ".join(map(format_value, ranking.reference))


def _span(counts: pd.Series) -> str:
    least, most = counts.min(), counts.max()
    return str(least) if least == most else f"{least} to {most}"


def _percent(value: float) -> str:
    return DASH if math.isnan(value) else format_metric(round(100 * value, DIGITS) + 0.0, DIGITS)


def _interval(row: Mapping[Any, Any]) -> str:
    half = row["high"] - row["mean"]
    return _percent(row["mean"]) + ("" if math.isnan(half) else f" ± {_percent(half)}")


def _difference(row: Mapping[Any, Any]) -> str:
    difference, half = row["difference"], row["difference_high"] - row["difference"]
    return DASH if math.isnan(difference) else signed(100 * difference, 100 * half)
