"""What the rows, the history and the models of a sweep that has ended must say of each other, by the request alone."""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from pandas import Series
from safetensors.numpy import load

from sweeper.definition import Table
from sweeper.definition.space import Grid, Search, parts_of
from tests.simulation import sweeps, training
from tests.simulation.stored import BEST, MODELS, REQUESTS, History, Row, is_function, listed_in, trial_of
from tests.simulation.sweeps import OF_IMAGES, RANKED


def broken(
    kind: sweeps.Kind, rows: Mapping[str, Row], history: History, files: Mapping[str, bytes], whole: bool
) -> Iterator[str]:
    """Yield what does not hold. `rows`: by trial; `files`: content by path; `whole`: whether no history may lack an
    epoch."""
    for trial, row in rows.items():
        if row["status"] == "finished" and (epoch := last_epoch(row, history, trial)) != row["epochs_run"]:
            yield f"{trial} must have ended after epoch {epoch}, but ran for {row['epochs_run']}"
    yield from _conditions(kind, rows)
    yield from _best(kind, rows, files)
    yield from _models(kind, rows, history, files, whole)


def wrong_list(request: str, data: bytes, rows: Mapping[str, Row]) -> str:
    """What does not hold of the list of a request; empty if it is right. It has each trial of the preset's grids once,
    in their order, and with `--decide` further ones; and each study. `rows`: all of the request, by trial."""
    preset, _, more = request.partition(", ")
    trials, studies = listed_in(data)
    asked = [{**grid.fixed, **own} for grid in _grids(preset) if not grid.pruner for own in _combinations(grid)]
    of_grids = [trial for each in asked for trial, row in rows.items() if each.items() <= row.items()]
    of_searches = {str(row["study_id"]) for row in rows.values() if "study_id" in row}
    if len(of_grids) != len(asked) or trials[: len(asked)] != of_grids or bool(more) != (len(trials) > len(asked)):
        return f"the list of {request} must have the trials {of_grids}, but has {trials}"
    if len({*trials}) < len(trials) or sorted(studies) != sorted(of_searches):
        return f"the list of {request} must have the studies {of_searches} and no trial twice, but has {studies}"
    return ""


def _grids(preset: str) -> list[Grid]:
    """The grids of a preset. One with a pruner is a study."""
    return [part for part in parts_of(sweeps.SPACES[preset]) if isinstance(part, Grid)]


def _combinations(grid: Grid) -> Iterator[Mapping[str, object]]:
    values = itertools.product(*grid.axes.values())
    return (dict(zip(grid.axes, each, strict=True)) for each in values)


def wrong_requests(
    begun: frozenset[str], asked: frozenset[str], rows: Mapping[str, Row], files: Mapping[str, bytes]
) -> Iterator[str]:
    """Yield what does not hold of the lists of requests at the end: every request that has begun is listed, and none
    that nobody has asked for; their trials are those that have rows."""
    listed = {path.removeprefix(REQUESTS).removesuffix(".parquet"): path for path in files if path.startswith(REQUESTS)}
    if not begun <= listed.keys() <= asked:
        yield f"the requests {[*begun]} have begun, and {[*asked]} were asked for, but {[*listed]} are listed"
    contents = {request: listed_in(files[path]) for request, path in listed.items()}
    for request, (trials, studies) in contents.items():
        if lacking := {*trials} - rows.keys():
            yield f"the list of {request} has trials without rows: {sorted(lacking)}"
        preset = request.partition(", ")[0]
        searches = [part for part in parts_of(sweeps.SPACES[preset]) if isinstance(part, Search)]
        due = sum(search.trials * search.repeats * math.prod(map(len, search.axes.values())) for search in searches)
        due += sum(len([*_combinations(grid)]) for grid in _grids(preset) if grid.pruner)
        if (count := sum(row.get("study_id") in studies for row in rows.values())) != due:
            yield f"the studies of {request} must have {due} rows, but have {count}"
    known = {each for own in contents.values() for each in itertools.chain(*own)}
    if unknown := [trial for trial, row in rows.items() if known.isdisjoint({trial, row.get("study_id")})]:
        yield f"rows belong to no request that is listed: {unknown}"


def wrong_figures(preset: str, rows: Mapping[str, Row], files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what does not hold of the tables and heatmaps of a preset: each cell has the mean over its seeds of the
    trials that were not pruned, of those alone that meet the constraints."""
    shown = pd.DataFrame([row for row in rows.values() if row["status"] != "pruned"])
    bounds = [bound for part in parts_of(sweeps.SPACES[preset]) for bound in getattr(part, "constraints", ())]
    for figure in sweeps.SWEEP.figures_of(preset):
        (metric,), keys = figure.shown, [*figure.axes]
        path = f"{'tables' if isinstance(figure, Table) else 'heatmaps'}/simulated/{preset}/{figure.file}.parquet"
        if path not in files:
            if len(shown):
                yield f"{path} is missing"
            continue
        names = dict.fromkeys([*keys, "seed", metric.name, *(bound.column for bound in bounds)])
        trials = shown.reindex(columns=[*names])
        trials = trials.assign(value=trials[metric.name].astype("float64"), seed=trials["seed"].fillna(0))
        for bound in bounds:
            meets = Series.le if bound.sign == "<=" else Series.ge
            trials["value"] = trials["value"].where(meets(trials[bound.column], bound.bound))
        seeds = trials.groupby([*keys, "seed"])["value"].mean().dropna().groupby(keys)
        of_cell = trials.groupby(keys)["value"]
        due = {"mean": seeds.mean(), "std": seeds.std(), "replicates": seeds.size(), "count": of_cell.count()}
        due["missing"] = of_cell.size() - due["count"]
        cells = pd.read_parquet(io.BytesIO(files[path])).set_index(keys)
        for name, values in due.items():
            expected = values.reindex(cells.index)
            if name in ("replicates", "count", "missing"):
                expected = expected.fillna(0)
            if len(cells) != len(of_cell) or not np.allclose(cells[name], expected, equal_nan=True):
                yield f"{path} has {name} {cells[name].to_dict()}, but its rows give {expected.to_dict()}"


def best_epoch(history: History, trial: str, until: int, of_function: bool = False) -> int:
    """The first epoch with the highest `RANKED` so far, of functions with the least loss; 0 if none has a value."""
    metric, sign = (sweeps.LOSS.name, -1) if of_function else (RANKED, 1)
    values = {epoch: history.get((trial, epoch, metric)) for epoch in range(1, until + 1)}
    known = {epoch: sign * found for epoch, found in values.items() if found is not None}
    return max(known, key=lambda epoch: (known[epoch], -epoch), default=0)


def last_epoch(row: Row, history: History, trial: str) -> int:
    """The epoch in which a trial ends by itself: its last, or that in which its patience is over."""
    of_function = is_function(row)
    epochs, patience = int(row.get("epochs") or 1), row.get("patience")
    over = (
        each
        for each in range(1, epochs)
        if patience and each - best_epoch(history, trial, each, of_function) >= patience
    )
    return next(over, epochs)


def _conditions(kind: sweeps.Kind, rows: Mapping[str, Row]) -> Iterator[str]:
    """A key that is searched on a condition has its default where that does not hold, and is searched where it does."""
    if kind.preset == "conditional":
        for trial, row in rows.items():
            if (row["ema"] == sweeps.EMA) == (row["width"] == 64):
                yield f"{trial} has ema={row['ema']} with width={row['width']}"


def _best(kind: sweeps.Kind, rows: Mapping[str, Row], files: Mapping[str, bytes]) -> Iterator[str]:
    """The best trial of a search is the one with the least loss of those that meet its constraints, and none that does
    not meet them is best of anything."""
    (part, *others) = parts_of(sweeps.SPACES[kind.preset])
    if kind.keep.trials != "best" or others or not isinstance(part, Search) or part.axes or part.replicates:
        return
    finished = {trial: row for trial, row in rows.items() if row["status"] == "finished"}
    feasible = {
        trial: row[sweeps.LOSS.name]
        for trial, row in finished.items()
        if all((row[bound.column] <= bound.bound) == (bound.sign == "<=") for bound in part.constraints)
    }
    ended = {trial for trial, row in rows.items() if row["status"] != "failed"}
    listed = {trial for path, data in files.items() if path.startswith(BEST) for trial in json.loads(data)} & ended
    if wrong := listed - feasible.keys():
        yield f"listed as best, though they have not finished or do not meet the constraints: {sorted(wrong)}"
    if feasible and (first := min(feasible, key=lambda trial: (feasible[trial], trial))) not in listed:
        yield f"{first} is the best of the search, but is not listed as such: {sorted(listed)}"


def _models(
    kind: sweeps.Kind, rows: Mapping[str, Row], history: History, files: Mapping[str, bytes], whole: bool
) -> Iterator[str]:
    """A model has the weights of the epoch that it must be of, which every metric of that epoch follows from."""
    keep, metric = kind.keep, RANKED if kind.preset in OF_IMAGES else sweeps.LOSS.name
    for path, data in files.items():
        trial = trial_of(path)
        if not path.startswith(MODELS) or rows.get(trial, {}).get("status") in (None, "failed"):
            continue
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        epoch = json.loads(header["__metadata__"]["sweeper"]).get("epoch") or rows[trial]["epochs"]
        recorded, weight = history.get((trial, epoch, metric)), int(load(data)["digest"][0])
        if training.value(metric, weight) != recorded and (whole or recorded is not None):
            yield f"{path} has not the weights of epoch {epoch}"
        run = rows[trial]["epochs_run"]
        if (due := best_epoch(history, trial, run) if keep.best_epoch else run) != epoch:
            yield f"{path} must be of epoch {due}, but is of epoch {epoch}"
