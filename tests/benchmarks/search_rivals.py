"""What `bench_search` compares this service with, Optuna alone and Ray Tune, and what all of its cases share.

All have one space, the same fixed settings, epochs and rungs: those of `vje_search` on the digits; and one sampler, TPE
over all parameters jointly that counts running trials as bad. Imports wait until a case needs them: each pays its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.execution import session as cluster
from sweeper.spec import registry
from sweeper.spec.space import Search, Study

if TYPE_CHECKING:
    from trainables.reports import Report

SWEEP, PRESET = "vje_search", "digits"
DATA = Path("data")
AT_ONCE = os.cpu_count() or 1
"""Trials that Optuna alone trains at a time, a process each; Tune and the service take a core each, too."""


@dataclass(frozen=True)
class Outcome:
    """Result of a search."""

    ray_start: float
    """Seconds that importing and starting Ray took."""
    epochs: int
    """Epochs trained, those of all models together."""
    values: tuple[float, ...]
    """The objective of each trial that trained to the end."""


@dataclass(frozen=True)
class Last:
    """How a trial ended."""

    epoch: int
    finished: bool
    """False where it was stopped early or diverged."""
    value: float


def search() -> Search:
    """Return the search that all cases run."""
    _, preset = registry.find(SWEEP).preset(PRESET)
    assert isinstance(preset, Search)
    return preset


def optuna_alone(trials: int, seed: int, wave: int) -> Outcome:
    """Optuna's `study.optimize` as one writes it for a training script: a fresh process a trial, nothing pruned."""
    import optuna

    definition = _study()
    study = optuna.create_study(direction=definition.search.objectives[0].ranking_direction, sampler=_sampler(seed))
    running: dict[Future[Last], Any] = {}
    ended: list[Last] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while len(ended) < trials:
            while len(running) < AT_ONCE and len(running) + len(ended) < trials:
                trial = study.ask(dict(definition.search.space))
                running[pool.submit(_in_a_process, {**definition.fixed, **trial.params})] = trial
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                study.tell(running.pop(future), future.result().value)
                ended.append(future.result())
    return outcome(0.0, ended)


def _in_a_process(config: Mapping[str, Any]) -> Last:
    command = [sys.executable, "-m", "tests.benchmarks.search_rivals", json.dumps(config)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return Last(**json.loads(completed.stdout.splitlines()[-1]))


def train_one(config: Mapping[str, Any]) -> Last:
    """Train one trial in this process, on one core."""
    import torch

    from trainables.config import resolve
    from trainables.training.train import train

    torch.set_num_threads(1)
    *_, report = train([resolve(config)], DATA)
    return Last(report.epoch, report.members[0].status == "finished", value_of(report))


def ray_tune(trials: int, seed: int, wave: int, reuse: bool = False) -> Outcome:
    """Ray Tune with its OptunaSearch and ASHAScheduler: a trial an actor, a core each, no loggers.

    With `reuse` an actor takes the next trial, which is fairest to Tune and not its default. A class, whose actor is
    free at once where ASHA has stopped its trial; of a function the thread must end first.
    """
    begun = time.perf_counter()
    with cluster.connected(None) as scratch:
        started = time.perf_counter() - begun
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch

        definition = _study()
        fixed, metric, pruner = dict(definition.fixed), definition.search.objectives[0], definition.search.pruner
        assert pruner

        class Trial(tune.Trainable):
            def setup(self, config: dict[str, Any]) -> None:
                import torch

                torch.set_num_threads(1)
                self.reset_config(config)

            def reset_config(self, config: dict[str, Any]) -> bool:
                from trainables.config import resolve
                from trainables.training.train import train

                self.reports = train([resolve({**fixed, **config})], DATA)
                return True

            def step(self) -> dict[str, Any]:
                report = next(self.reports)
                good = report.members[0].status != "diverged"
                return {metric.name: value_of(report), "epoch": report.epoch, "good": good, "done": report.done}

        mode = metric.ranking_direction.removesuffix("imize")
        epochs = int(str(fixed["epochs"]))
        results = tune.Tuner(
            tune.with_resources(Trial, {"CPU": 1}),
            tune_config=tune.TuneConfig(
                metric=metric.name,
                mode=mode,
                search_alg=OptunaSearch(dict(definition.search.space), metric.name, mode, sampler=_sampler(seed)),
                scheduler=ASHAScheduler(
                    time_attr="epoch",
                    max_t=epochs,
                    grace_period=pruner.first,
                    reduction_factor=pruner.factor,
                    brackets=pruner.brackets,
                ),
                num_samples=trials,
                reuse_actors=reuse,
                max_concurrent_trials=AT_ONCE,  # faster than Tune's one trial ahead, and proposed from more results
            ),
            run_config=tune.RunConfig(
                storage_path=scratch,
                name="tune",
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
        assert len(results) == trials and not results.num_errors
        lasts = [results[index].metrics or {} for index in range(trials)]
        ended = [
            Last(result["epoch"], result["good"] and result["epoch"] == epochs, result[metric.name]) for result in lasts
        ]
    return outcome(started, ended)


def ray_tune_reused(trials: int, seed: int, wave: int) -> Outcome:
    """The same, two actors for all trials."""
    return ray_tune(trials, seed, wave, reuse=True)


def value_of(report: Report, index: int = 0) -> float:
    """The objective, a share; of a model that diverged the worst there is, as Optuna and ASHA want a number."""
    metric = search().objectives[0]
    value = report.members[index].metrics.get(metric.name)
    return value if value is not None else {"maximize": 0.0, "minimize": 1.0}[metric.ranking_direction]


def _study() -> Study:
    (study,) = search().studies()
    return study


def _sampler(seed: int) -> Any:
    import warnings

    import optuna
    from optuna.samplers import TPESampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return TPESampler(multivariate=True, constant_liar=True, seed=seed)


def outcome(ray_start: float, ended: list[Last]) -> Outcome:
    epochs = sum(trial.epoch for trial in ended)
    return Outcome(ray_start, epochs, tuple(trial.value for trial in ended if trial.finished))


if __name__ == "__main__":
    print(json.dumps(asdict(train_one(json.loads(sys.argv[1])))))
