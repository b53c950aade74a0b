"""What the rows, the history and the models of a sweep that has ended must say of each other, by the request alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from safetensors.numpy import load

from sweeper.definition.space import Search, parts_of
from tests.simulation import sweeps, training
from tests.simulation.stored import BEST, MODELS, History, Row, is_function, trial_of
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
