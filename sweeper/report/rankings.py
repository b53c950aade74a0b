"""Settings ranked over tasks, such as one-class methods over the normal classes: ranks, differences from a reference,
and what choosing on the test images would have given. As Parquet, Markdown and text.

Shapes: R rows of the ranking, T tasks.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from sweeper.definition.figures import Ranking
from sweeper.definition.metric import SPREADS, Spread
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report.charts import Chart
from sweeper.report.figures import Shown
from sweeper.report.formatting import DASH, ValueText, format_metric, format_value, plain_text, signed, text_table
from sweeper.report.table_documents import Columns, as_cells
from sweeper.results.best import chosen_scores
from sweeper.results.estimates import improvement, known_interval
from sweeper.results.replicates import (
    MEASURED,
    beside,
    difference_of_runs,
    repetition,
    runs_of,
    strata_means,
    summarise,
    whole_means,
)
from sweeper.results.sentences import Over, beside_text, described, probable
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
    ranked = rank(rows, ranking, shown.preset.preset, shown.preset.repeats)
    if not ranked["tasks"].any():
        return None
    document = markdown(ranked, ranking, shown.value_text, clause, shown.spread)
    files.write(figure_path(FOLDER, folder, f"{ranking.name}.parquet"), ranked.to_parquet(index=False))
    files.write(figure_path(FOLDER, folder, f"{ranking.name}.md"), document.encode())
    return text(ranked, ranking, shown.value_text, clause, shown.spread)


def on_page(shown: Shown, ranking: Ranking) -> dict[str, Any] | None:
    """Return a ranking as the texts of its columns; None if no row has a value."""
    rows, clause = shown.of_best_settings(shown.rows_of(ranking), ranking)
    ranked = rank(rows, ranking, shown.preset.preset, shown.preset.repeats)
    if not ranked["tasks"].any():
        return None
    return {
        "name": ranking.name,
        "captions": {spread: caption(ranked, ranking, clause, spread) for spread in SPREADS},
        "rows": list(ranking.rows),
        "texts": {spread: columns_of(ranked, ranking, shown.value_text, spread) for spread in SPREADS},
    }


def captioned(shown: Shown, ranking: Ranking) -> tuple[str, Columns] | None:
    """Return the caption and the columns of a ranking, as documents have them; None if no row has a value."""
    rows, clause = shown.of_best_settings(shown.rows_of(ranking), ranking)
    ranked = rank(rows, ranking, shown.preset.preset, shown.preset.repeats)
    if not ranked["tasks"].any():
        return None
    return caption(ranked, ranking, clause, shown.spread), as_cells(
        columns_of(ranked, ranking, shown.value_text, shown.spread)
    )


def published(ranking: Ranking, preset: str) -> tuple[str, Columns]:
    """Return the papers' figures alone: what must be known of them, to follow a caption, and the columns."""
    none = pd.DataFrame(columns=[*ranking.axes, *(metric.name for metric in ranking.shown)])
    ranked = rank(none, ranking, preset)
    texts = columns_of(ranked, ranking)
    columns = as_cells({name: texts[name] for name in (*ranking.rows, "published")})
    return "; ".join([_recalled(ranked), *filter(None, [ranking.note])]), columns


def _recalled(ranked: pd.DataFrame) -> str:
    return ", with r where it was recalled and not read" if ranked["recalled"].any() else ""


def rank(rows: pd.DataFrame, ranking: Ranking, preset: str, repeats: Repeats = SEEDS) -> pd.DataFrame:
    """Rank the trials of `rows`, in which a hyperparameter or metric that is no column is null.

    Returns one row for each of the ranking, the best first, then those that lack a task, then those that only a paper
    has:

    - `scores`: the anomaly scores that its trials chose, the most frequent first; null for another metric
    - the columns of `replicates.summarise`, where a replicate has the mean over the tasks, which are fixed
    - `tasks`: their number; `runs`: the most replicates of a task
    - `rank`: the mean over the tasks that all have; 1 is best
    - `difference`, `difference_low`, `difference_high`: from the reference (`replicates.difference_of_runs`);
      `difference_over`: what the interval generalises to, where that is not further replicates
    - `improved`, `improved_low`, `improved_high`: `estimates.improvement` over the reference
    - `leak`: the mean of `Ranking.leak`
    - `published`, `recalled`: the paper's figure, and whether it was recalled and not read
    """
    published = ranking.published.get(preset, {})
    names = [ranking.metric.name, *([ranking.leak.name] if ranking.leak else [])]
    within = replace(repeats.without(ranking.rows), fixed=(ranking.tasks,), drawn=repeats.without(ranking.axes).drawn)
    known = rows.reindex(columns=list(dict.fromkeys([*ranking.axes, *names, *within.drawn])))
    known = known.assign(**{name: known[name].astype("float64") for name in names})
    keys = [tuple(map(plain_value, key)) for key in known[list(ranking.rows)].itertuples(index=False, name=None)]
    row_keys = list(dict.fromkeys([*keys, *published]))
    numbers = {key: number for number, key in enumerate(row_keys)}
    row_N = np.array([numbers[key] for key in keys], dtype=np.int64)
    repeated = repetition(known, within)
    found = summarise(known[names[0]], row_N, repeated, len(row_keys), ranking.metric.bounds is not None)
    runs, leaks = (_runs(known, name, row_N, len(row_keys), within) for name in (names[0], names[-1]))
    mean_RT = np.stack([strata_means(runs_TN) for runs_TN in runs])
    known_RT = ~np.isnan(mean_RT)
    sign = float(-ranking.metric.cost(1.0))
    reference = runs[row_keys.index(ranking.reference)] if ranking.reference in row_keys else None
    figures = [published.get(key) for key in row_keys]
    ranked = pd.DataFrame(
        {
            **{name: [key[index] for key in row_keys] for index, name in enumerate(ranking.rows)},
            "scores": [_scores(rows[row_N == index], ranking) for index in range(len(row_keys))],
            **{name: found[name] for name in MEASURED},
            "tasks": known_RT.sum(1),
            "runs": [int((~np.isnan(runs_TN)).sum(1).max(initial=0)) for runs_TN in runs],
            "rank": _ranks(sign * mean_RT, known_RT),
            **_against(runs, reference, sign, ranking),
            "leak": [float(np.nanmean(whole_means(own))) if (~np.isnan(own)).any() else math.nan for own in leaks],
            "published": [figure.value if figure else math.nan for figure in figures],
            "recalled": [bool(figure and figure.recalled) for figure in figures],
        }
    )
    places = [np.nan_to_num(-sign * ranked[name].to_numpy(), nan=np.inf) for name in ("published", "mean")]
    lacks = ranked["tasks"] < ranked["tasks"].max()
    return ranked.iloc[np.lexsort([*places, lacks])].reset_index(drop=True)


def _runs(known: pd.DataFrame, name: str, row_N: np.ndarray, count: int, repeats: Repeats) -> list[np.ndarray]:
    """Return the runs `[tasks, replicates]` of each row. One that takes no seed has its value for every replicate."""
    columns = repeats.replicates({key: known[key].dropna().unique() for key in repeats.drawn})
    tasks = pd.factorize(known[repeats.fixed[0]], use_na_sentinel=False)[0]
    labels = pd.MultiIndex.from_frame(known[list(columns)]) if columns else pd.Index([0] * len(known))
    takes = known[list(columns)].notna().any(axis=1).to_numpy() if columns else np.ones(len(known), dtype=bool)
    numbers = np.zeros(len(known), dtype=np.int64)
    numbers[takes] = pd.factorize(labels[takes])[0]
    shape = (int(tasks.max(initial=-1)) + 1, int(numbers.max(initial=0)) + 1)
    found = []
    for row in range(count):
        own = row_N == row
        runs_TN = runs_of(known.loc[own, name].to_numpy(), tasks[own], numbers[own], shape)
        found.append(runs_TN if takes[own].any() else np.repeat(runs_TN[:, :1], shape[1], axis=1))
    return found


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
    runs: list[np.ndarray], reference: np.ndarray | None, sign: float, ranking: Ranking
) -> dict[str, list[Any]]:
    """The columns of `rank` that compare the runs `[tasks, replicates]` of each row with those of the reference."""
    names = ("difference", "difference_low", "difference_high", "improved", "improved_low", "improved_high")
    columns: dict[str, list[Any]] = {name: [] for name in (*names, "difference_over")}
    for own in runs:
        compared, over = [math.nan] * len(names), ""
        if reference is not None and own is not reference and (~np.isnan(own - reference)).any():
            estimate = difference_of_runs(own, reference, ranking.over, ranking.metric.bounds is not None)
            ends = known_interval(estimate)
            compared = [estimate.value, *ends, *improvement(sign * reference, sign * own)]
            over = "" if math.isnan(ends[0]) else estimate.over
        for name, value in zip(names, compared, strict=True):
            columns[name].append(float(value))
        columns["difference_over"].append(over)
    return columns


def markdown(
    ranked: pd.DataFrame,
    ranking: Ranking,
    value_text: ValueText = plain_text,
    clause: str = "",
    spread: Spread = "interval",
) -> str:
    """Return a Markdown document: a title, the caption and the rows."""
    columns = columns_of(ranked, ranking, value_text, spread)
    body = tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True)
    return f"# {ranking.name}\n\n{caption(ranked, ranking, clause, spread)}\n\n{body}\n"


def text(
    ranked: pd.DataFrame,
    ranking: Ranking,
    value_text: ValueText = plain_text,
    clause: str = "",
    spread: Spread = "interval",
) -> str:
    """Return the ranking as plain text for a terminal."""
    table = text_table(columns_of(ranked, ranking, value_text, spread))
    return f"{ranking.name}\n{caption(ranked, ranking, clause, spread)}\n{table}"


def caption(ranked: pd.DataFrame, ranking: Ranking, clause: str = "", spread: Spread = "interval") -> str:
    """Return what the ranking shows, in a line, with a clause on searches."""
    rows = ranked[ranked["tasks"] > 0]
    if rows.empty:
        return "no value yet"
    against = _reference(ranking)
    over = described(rows, Over("runs", ranking.over), spread) or "one run"
    parts = [f"{ranking.metric.label}: {over}", *filter(None, [clause])]
    if rows["difference"].notna().any():
        known, by_task = rows["difference_low"].notna(), rows["difference_over"] != ""
        by = ["over seeds"] * bool((known & ~by_task).any())
        by += [f"paired by {ranking.tasks}, over {ranking.over} and not over seeds"] * bool((known & by_task).any())
        interval = f" {SPREADS['interval']} {', or '.join(by)}" if by else f" over {ranking.over}"
        parts.append(f"less {against}: mean{interval}")
        parts.append(f"P(better): how probably a run is better than one of {against}")
    if ranking.leak:
        parts.append("best on test: what choosing on the test images would have given")
    if ranked["published"].notna().any():
        parts += [f"published: the paper's figure{_recalled(ranked)}", *filter(None, [ranking.note])]
    return "; ".join(parts)


def columns_of(
    ranked: pd.DataFrame, ranking: Ranking, value_text: ValueText = plain_text, spread: Spread = "interval"
) -> dict[str, list[str]]:
    """Return heading -> text of each cell. Columns without any value are left out."""
    rows = ranked.to_dict("records")
    keys = {name: [value_text(name, row[name]) for row in rows] for name in ranking.rows}
    about = {
        "score": [row["scores"] if isinstance(row["scores"], str) else DASH for row in rows],
        "mean": [_percent(row["mean"]) + beside_text(beside(row, spread), _percent) for row in rows],
        "rank": [DASH if math.isnan(row["rank"]) else f"{row['rank']:.1f}" for row in rows],
        f"less {_reference(ranking)}": [_difference(row) for row in rows],
        "P(better)": [probable(row["improved"], row["improved_low"], row["improved_high"]) for row in rows],
        "best on test": [_percent(row["leak"]) if ranking.leak else DASH for row in rows],
        "published": [_percent(row["published"]) + (" r" if row["recalled"] else "") for row in rows],
    }
    return {**keys, **{name: texts for name, texts in about.items() if name == "mean" or {*texts} != {DASH}}}


def _reference(ranking: Ranking) -> str:
    return ", ".join(map(format_value, ranking.reference))


def _percent(value: float) -> str:
    return DASH if math.isnan(value) else format_metric(round(100 * value, DIGITS) + 0.0, DIGITS)


def _difference(row: Mapping[Any, Any]) -> str:
    value, low, high = (100 * row[name] for name in ("difference", "difference_low", "difference_high"))
    return signed(value, low, high, DIGITS)
