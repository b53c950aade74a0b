"""Settings ranked over tasks by the metric that each chooses for itself on validation images, such as one-class methods
by their anomaly scores; beside it what choosing on test images would have given. As Parquet, Markdown and text.

Shapes: R rows of the ranking, T tasks, M metrics.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from tabulate import tabulate

from sweeper.report.compare import improvement, probable, signed
from sweeper.report.formatting import DASH, ValueText, format_metric, plain_text, text_table
from sweeper.report.summaries import summarise
from sweeper.report.verdicts import half_widths
from sweeper.spec.metric import VALIDATION
from sweeper.spec.views import Published, Ranking
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.rows import plain_value

DIGITS = 1
"""Decimals of a percentage."""
COMMON = 2
"""Most metrics that a row names as its choice."""


class Ranked(NamedTuple):
    """A ranking of some rows."""

    rows: pd.DataFrame
    """One row for each of the ranking, the best first, then those that only a paper has:

    - `metric`: the metrics that it chose, the most frequent first; `validated`: whether they were chosen on validation
      images, and are not the first of the ranking that it has
    - `mean`, `low`, `high`: of `tasks` tasks, each the mean of its `runs`, with the 95 % interval over tasks, or over
      runs if there is one task
    - `rank`: the mean over the tasks that all have
    - `difference`, `difference_low`, `difference_high`: from the reference, paired by task
    - `improved`, `improved_low`, `improved_high`: `compare.improvement` over the reference
    - `best_on_test`: the mean of the metric that is best on the test images of each task
    - `published`, `recalled`: the paper's figure, and whether it was recalled and not read
    """
    tasks: pd.DataFrame
    """One row for each of the ranking and task: `metric`, `mean`, `runs`, `best_on_test`, `published`, `recalled`."""


def rank(rows: pd.DataFrame, ranking: Ranking, preset: str) -> Ranked:
    """Rank the trials of `rows`, in which a hyperparameter or metric that is no column is null."""
    published = ranking.published.get(preset, {})
    names = [metric.name for metric in ranking.metrics]
    wanted = [*ranking.axes, *names, *(f"{VALIDATION}{name}" for name in names)]
    rows = rows.reindex(columns=list(dict.fromkeys(wanted)))
    keys = [tuple(map(plain_value, key)) for key in zip(*(rows[name] for name in ranking.rows), strict=True)]
    row_keys = list(dict.fromkeys([*keys, *(key for key, _ in published)]))
    of_tasks = [plain_value(value) for value in rows[ranking.tasks]]
    task_values = sorted(dict.fromkeys(of_tasks), key=lambda value: (value is None, value))
    places = (
        np.array([row_keys.index(key) for key in keys], dtype=np.int64),
        np.array([task_values.index(value) for value in of_tasks], dtype=np.int64),
    )
    sign = 1 if ranking.metrics[0].ranking_direction == "maximize" else -1
    shape = (len(row_keys), len(task_values))
    measured, validated = (
        _means(rows[[f"{prefix}{name}" for name in names]], places, shape) for prefix in ("", VALIDATION)
    )
    chosen_RT = _chosen(sign * validated, ~np.isnan(measured))
    values = rows[names].to_numpy(dtype=float)[np.arange(len(rows)), chosen_RT[places]] if len(rows) else np.empty(0)
    mean_RT = np.take_along_axis(measured, chosen_RT[..., None], 2)[..., 0]
    best_RT = sign * np.where(np.isnan(measured), -np.inf, sign * measured).max(2)
    best_RT = np.where(np.isfinite(best_RT), best_RT, math.nan)
    keyed = pd.DataFrame(row_keys, columns=list(ranking.rows), dtype=object)
    known_RT = ~np.isnan(mean_RT)
    used = ~np.isnan(values)
    runs_RT = np.zeros(shape, dtype=np.int64)
    np.add.at(runs_RT, (places[0][used], places[1][used]), 1)
    metric_RT = np.where(known_RT, np.array(names, dtype=object)[chosen_RT], None)
    columns = {name: list(keyed[name]) * shape[1] for name in ranking.rows}
    tasks = pd.DataFrame(
        {
            **columns,
            ranking.tasks: [task for task in task_values for _ in row_keys],
            "metric": metric_RT.T.ravel(),
            "mean": mean_RT.T.ravel(),
            "runs": runs_RT.T.ravel(),
            "best_on_test": best_RT.T.ravel(),
            **_figures([published.get((key, task)) for task in task_values for key in row_keys]),
        }
    )
    replicates = places[1] if shape[1] > 1 else np.arange(len(rows))
    found = summarise(pd.Series(values), places[0], replicates, shape[0])
    reference = row_keys.index(ranking.reference) if ranking.reference in row_keys else None
    summary = keyed.assign(
        metric=[_common(row) for row in metric_RT],
        validated=[bool(np.isfinite(row).any()) for row in validated],
        mean=found["mean"],
        low=found["low"],
        high=found["high"],
        tasks=known_RT.sum(1),
        runs=runs_RT.max(1, initial=0),
        rank=_ranks(sign * mean_RT, known_RT),
        **_against(sign, values, mean_RT, places, reference),
        best_on_test=[_mean(row) for row in best_RT],
        **_figures([published.get((key, None)) for key in row_keys]),
    )
    order = (
        (-sign * summary["mean"]).fillna(np.inf).to_numpy(),
        (-sign * summary["published"]).fillna(np.inf).to_numpy(),
    )
    return Ranked(summary.iloc[np.lexsort(order[::-1])].reset_index(drop=True), tasks)


def _means(values: pd.DataFrame, places: tuple[np.ndarray, np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """The means `[R, T, M]` of the trials of each row and task; NaN where none has a value."""
    means = np.full((*shape, values.shape[1]), math.nan)
    for place, own in values.astype("float64").groupby(list(places)).mean().iterrows():
        means[place] = own
    return means


def _chosen(validated: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The index `[R, T]` of the metric that is best on validation images; without these of the first that is measured."""
    gains = np.where(measured, np.where(np.isnan(validated), -np.inf, validated), -np.inf)
    return np.where(np.isfinite(gains).any(2), gains.argmax(2), measured.argmax(2))


def _ranks(gain_RT: np.ndarray, known_RT: np.ndarray) -> np.ndarray:
    """The mean rank `[R]` over the tasks that all rows with any value have; 1 is best."""
    ranks = np.full(len(gain_RT), math.nan)
    present = known_RT.any(1)
    shared = known_RT[present].all(0)
    if present.any() and shared.any():
        ranks[present] = stats.rankdata(-gain_RT[present][:, shared], axis=0).mean(1)
    return ranks


def _against(
    sign: int, values: np.ndarray, mean_RT: np.ndarray, places: tuple[np.ndarray, np.ndarray], reference: int | None
) -> dict[str, list[float]]:
    """The columns of `Ranked.rows` that compare each row with the reference."""
    names = ("difference", "difference_low", "difference_high", "improved", "improved_low", "improved_high")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for row, mean_T in enumerate(mean_RT):
        compared = [math.nan] * len(names)
        if reference not in (None, row):
            difference_T = mean_T - mean_RT[reference]
            known = ~np.isnan(difference_T)
            if known.any():
                mean, std = difference_T[known].mean(), difference_T[known].std(ddof=1) if known.sum() > 1 else math.nan
                half = float(half_widths(np.array(std), np.array(known.sum())))
                runs = [
                    [
                        sign * values[(places[0] == side) & (places[1] == task) & ~np.isnan(values)]
                        for task in np.flatnonzero(known)
                    ]
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


def _common(metrics: Sequence[str | None]) -> str | None:
    """The most frequent metrics, with the number of their tasks if there are several: `auroc_knn1_z 7, auroc_kde_z 3`."""
    counts = Counter(filter(None, metrics)).most_common()
    if len(counts) < 2:
        return counts[0][0] if counts else None
    others = len(counts) - COMMON
    named = [f"{name} {count}" for name, count in counts[:COMMON]]
    return ", ".join([*named, *([f"{others} more"] if others > 0 else [])])


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) and not np.isnan(values).any() else math.nan


def write(files: Files, folder: str, ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> None:
    """Write `rankings/FOLDER/NAME.parquet` with the rows, `NAME-tasks.parquet` with the tasks, and `NAME.md` with
    both."""
    path = f"{ranking.name}"
    files.write(figure_path("rankings", folder, f"{path}.parquet"), _plain(ranked.rows).to_parquet(index=False))
    files.write(figure_path("rankings", folder, f"{path}-tasks.parquet"), _plain(ranked.tasks).to_parquet(index=False))
    files.write(figure_path("rankings", folder, f"{path}.md"), markdown(ranked, ranking, value_text).encode())


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns of one type each, as Parquet has them."""
    return table.infer_objects()


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
    counts, runs = sorted({*rows["tasks"]}), sorted({*rows["runs"]})
    over = f"{_span(counts)} {ranking.over}" if counts[-1] > 1 else "seeds"
    how = "the metric that is best on validation images"
    if not rows["validated"].all():
        how = f"{how if rows['validated'].any() else ''}{', or ' if rows['validated'].any() else ''}the first that it reports"
    parts = [f"a row has {how}, one for each value of {ranking.tasks}"]
    parts.append(f"mean in percent ± 95 % interval over {over}, {_span(runs)} run{'s' if runs[-1] > 1 else ''} of each")
    parts.append("best on test: what choosing on the test images would have given")
    if ranking.reference in set(zip(*(rows[name] for name in ranking.rows), strict=True)):
        against = ", ".join(map(str, ranking.reference))
        parts.append(f"{MINUS_OF} {against} is paired, P(better) is the probability that a run beats one of {against}")
    if ranked.rows["published"].notna().any():
        recalled = " (r: recalled, not read)" if ranked.rows["recalled"].any() else ""
        parts.append(f"published: the paper's figure{recalled}")
    return "; ".join([*parts, ranking.note] if ranking.note else parts)


MINUS_OF = "less"


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def columns_of(ranked: Ranked, ranking: Ranking, value_text: ValueText = plain_text) -> list[dict[str, list[str]]]:
    """Return the columns of the rows, and those of the means by task: heading -> text of each cell."""
    rows = ranked.rows.to_dict("records")
    keys = {name: [value_text(name, row[name]) for row in rows] for name in ranking.rows}
    about: dict[str, list[str]] = {
        "metric": [DASH if pd.isna(row["metric"]) else row["metric"].replace(ranking.prefix, "") for row in rows],
        "mean": [_interval(row) for row in rows],
        "rank": [DASH if math.isnan(row["rank"]) else f"{row['rank']:.1f}" for row in rows],
        f"{MINUS_OF} {', '.join(map(str, ranking.reference))}": [_difference(row) for row in rows],
        "P(better)": [probable(row["improved"], row["improved_low"], row["improved_high"]) for row in rows],
        "best on test": [_percent(row["best_on_test"]) for row in rows],
        "published": [_published(row) for row in rows],
    }
    place = {tuple(row[name] for name in ranking.rows): index for index, row in enumerate(rows)}
    by_task: dict[str, list[str]] = {}
    for cell in ranked.tasks.to_dict("records"):
        column = by_task.setdefault(value_text(ranking.tasks, cell[ranking.tasks]), [DASH] * len(rows))
        figure = f" ({_published(cell)})" if not math.isnan(cell["published"]) else ""
        column[place[tuple(cell[name] for name in ranking.rows)]] = _percent(cell["mean"]) + figure
    shown = {name: texts for name, texts in about.items() if name in ("metric", "mean") or {*texts} != {DASH}}
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
