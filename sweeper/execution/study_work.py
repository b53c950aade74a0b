"""What the studies of a search have left to train, for the choice of their steps."""

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.packing.compilation import StudyWork
from sweeper.search.study_run import StudyRun
from sweeper.spec.pruners import Halving
from sweeper.spec.space import Study, Value, bounds
from trainables.config import fusible_keys, resolve

MAX_SHAPES = 4
"""Most shapes of a study's steps that are compiled by themselves."""


def study_work(study_run: StudyRun, steps: int) -> StudyWork:
    """Return the work of a study whose trials make at least so many `steps` if they are not pruned."""
    search, results = study_run.study.search, [*study_run.statuses.values(), *study_run.ahead]
    left = search.trials - sum(status != "failed" for status in results)
    training = resolve(study_run.trials[0].config).training
    share = 1.0
    if search.pruner and training.epochs:
        share = least_share(search.pruner, training.epochs, training.report_every)
    return StudyWork(
        study_run.id,
        shapes(study_run.study),
        {min(search.wave, search.trials - first) for first in range(0, search.trials, search.wave)},
        steps * left * share,
        search.pruner.factor if search.pruner else 1,
        search.population is not None,
        bool(results),
    )


def least_share(pruner: Halving, epochs: int, report_every: int) -> float:
    """Return the share of their epochs that trials train on average if at each rung only the best `1 / factor` remain.
    They train more if trials reach a rung before others, or in further brackets."""
    rungs = [0, *pruner.ladders(epochs, report_every)[0], epochs]
    return sum(
        (end - start) / pruner.factor**rung for rung, (start, end) in enumerate(itertools.pairwise(rungs))
    ) / epochs  # fmt: skip


def shapes(study: Study) -> list[Mapping[str, Any]]:
    """Return a config of each shape of step that the trials of a study can have; none if there are too many."""
    fusible = fusible_keys(str(study.fixed["method"]))
    values = {key: _values(distribution) for key, distribution in study.search.space.items() if key not in fusible}
    if math.prod(map(len, values.values())) not in range(1, MAX_SHAPES + 1):
        return []
    lowest = {key: bounds(distribution)[0] for key, distribution in study.search.space.items()}
    configs: list[Mapping[str, Any]] = []
    for combination in itertools.product(*values.values()):
        with contextlib.suppress(ValueError):  # values that are illegal together
            configs.append(resolve({**study.fixed, **lowest, **dict(zip(values, combination, strict=True))}).flat())
    return configs


def _values(distribution: Any) -> Sequence[Value]:
    """Return the values of a distribution of a key that changes shapes; none if they are more than a few."""
    if hasattr(distribution, "choices"):
        return tuple(distribution.choices)
    low, high = bounds(distribution)
    if low == high:
        return (low,)
    if not isinstance(low, int) or not isinstance(high, int):
        return ()
    return range(low, high + 1, distribution.step)
