"""What a search costs and finds: this service, Ray Tune and Optuna alone, on this machine's cores.

`python -m tests.benchmarks.bench_search [--trials 64,256] [--seeds 3] [--cases a,b,r,c,d] [--all] [--waves 1,8,32]`
runs `vje_search` on the digits as (a) Optuna with a process a trial, (b) Ray Tune with TPE and ASHA, an actor a trial,
(r) the same with actors reused, (c) this service in waves, nothing pruned, (d) the same with the sweep's pruner; then,
for each of `--waves`, what asking for so many trials at once does to the best that is found (in one process, without
Ray, nothing pruned). An empty list leaves a part out; `--all` measures (a) and (b) with more than 64 trials, too.
Seconds are of whole processes, imports included.

All cases have one space, the same fixed settings, epochs and rungs; and one sampler, TPE over all parameters jointly
that counts running trials as bad. Imports wait until a case needs them: each pays its own.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from sweeper.definition import Halving, registry
from sweeper.definition.space import Search, Study
from sweeper.execution import session as cluster

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
    command = [sys.executable, "-m", "tests.benchmarks.bench_search", "--trial", json.dumps(config)]
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
        assert isinstance(pruner, Halving)

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


def command(trials: int, seed: int, wave: int, *options: str) -> Outcome:
    """The command line of this service, from its arguments to rows and figures."""
    started: list[float] = []
    from sweeper.commands import run, sweep_run

    sweep_run.connected = partial(timed, started=started)

    arguments = ["--trials", str(trials), "--wave", str(min(wave, trials)), "--search-seed", str(seed), *options]
    with tempfile.TemporaryDirectory() as store:
        with contextlib.redirect_stdout(io.StringIO()):
            status = run.main([SWEEP, "--preset", PRESET, "--store", store, *arguments])
        assert status == 0, f"the command ended with status {status}"
        import pandas as pd

        rows = pd.read_parquet(f"{store}/trials/sweep={SWEEP}")
    assert len(rows) == trials
    values = rows[rows["status"] == "finished"][search().objectives[0].name]
    return Outcome(sum(started), int(rows["epochs_run"].sum()), tuple(values))


def unpruned(trials: int, seed: int, wave: int) -> Outcome:
    """The same, every trial to its end."""
    return command(trials, seed, wave, "--pruner", "none")


def in_process(trials: int, seed: int, wave: int) -> Outcome:
    """Our proposals without Ray or store, nothing pruned: what asking for a wave at once does to a search."""
    import torch

    from sweeper.search.ask_tell import AskTellStudy, ProposedTrial, TrialResult
    from trainables.config import fusible_keys, resolve
    from trainables.training.train import train

    torch.set_num_threads(1)
    (study,) = replace(search(), trials=trials, wave=min(wave, trials), seed=seed, pruner=None).studies()
    engine, free = AskTellStudy(study), fusible_keys(str(study.fixed["method"]))
    ended: list[Last] = []
    while len(ended) < trials:
        stacks: dict[str, list[ProposedTrial]] = {}
        for trial in engine.ask(min(wave, trials - len(ended))):
            shape = json.dumps({key: value for key, value in trial.params.items() if key not in free})
            stacks.setdefault(shape, []).append(trial)
        results = []
        for stack in stacks.values():
            *_, report = train([resolve({**study.fixed, **trial.params}) for trial in stack], DATA)
            for index, (trial, member) in enumerate(zip(stack, report.members, strict=True)):
                finished = member.status == "finished"
                value = value_of(report, index)
                results.append(TrialResult(trial.number, "finished" if finished else "diverged", (value,)))
                ended.append(Last(member.epochs_run, finished, value))
        engine.tell(results)
    return outcome(0.0, ended)


@contextlib.contextmanager
def timed(address: str | None, meanwhile: Sequence[str] = (), *, started: list[float]) -> Iterator[str]:
    """`cluster.connected`, adding the seconds of its start to `started`."""
    begun = time.perf_counter()
    with cluster.connected(address, meanwhile) as scratch:
        started.append(time.perf_counter() - begun)
        yield scratch


CASES = {
    "a": optuna_alone,
    "b": ray_tune,
    "r": ray_tune_reused,
    "c": unpruned,
    "d": command,
    "waves": in_process,
}
NAMES = {
    "a": "(a) Optuna, a process a trial",
    "b": "(b) Tune, an actor a trial",
    "r": "(r) Tune, actors reused",
    "c": "(c) ours in waves, unpruned",
    "d": "(d) ours in waves, pruned",
}
SLOW = ("a", "b")
"""Cases that are left out above 64 trials unless asked for."""
GRACE = 30.0
"""Seconds that a stopped case has to end its processes."""


@dataclass(frozen=True)
class Run:
    """One search, measured from outside."""

    trials: int
    seconds: float
    outcome: Outcome

    @property
    def speeds(self) -> tuple[float, float]:
        """Trials a second, with Ray's start and without."""
        return self.trials / self.seconds, self.trials / (self.seconds - self.outcome.ray_start)

    @property
    def ranked(self) -> list[float]:
        """The objective of the trials that trained to the end, the best first."""
        return sorted(self.outcome.values, reverse=search().objectives[0].ranking_direction == "maximize")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_search", allow_abbrev=False)
    parser.add_argument("--trials", type=_numbers, default=[64, 256], help="the first is that of --waves, too")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", type=_listed, default=list(NAMES))
    parser.add_argument("--waves", type=_numbers, default=[1, 8, 32])
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a case is stopped, too
    for trials in options.trials if options.cases else []:
        cases = [case for case in options.cases if options.all or trials <= 64 or case not in SLOW]
        compare(cases, trials, options.seeds)
    if options.waves:
        compare_waves(options.waves, options.trials[0], options.seeds)


def compare(cases: Sequence[str], trials: int, seeds: int) -> None:
    """Run each case with each seed, in turn so that other load affects all alike, and print their means."""
    print(f"\n{trials} trials of {search().fixed['epochs']} epochs at most")
    print(f"{'':32}{'seed':>5}{'all s':>8}{'Ray s':>7}{'trials/s':>10}{'w/o Ray':>9}", end="")
    print(f"{'epochs':>8}{'to the end':>12}{'best':>8}", flush=True)
    runs: dict[str, list[Run]] = {case: [] for case in cases}
    for seed in range(seeds):
        for case in cases:
            runs[case].append(run := measure(case, trials, seed, search().wave))
            print(f"{NAMES[case]:32}{seed:5}{_line([run])}", flush=True)
    for case, case_runs in runs.items():
        print(f"{NAMES[case]:32}{'mean':>5}{_line(case_runs)}")
    for case in ("a", "b", "r", "c"):
        if case in runs and "d" in runs:
            print(_ratio(case, runs[case], runs["d"]), flush=True)


def compare_waves(waves: Sequence[int], trials: int, seeds: int) -> None:
    """Print the best values that searches with waves of each size find, over seeds."""
    print(f"\n{trials} trials, unpruned, proposed K at once; mean and standard deviation over {seeds} seeds")
    print(f"{'K':>4}{'best':>18}{'median of top 5':>18}{'s a search':>12}")
    for wave in waves:
        runs = [measure("waves", trials, seed, wave) for seed in range(seeds)]
        best = _spread([run.ranked[0] for run in runs])
        top = _spread([median(run.ranked[:5]) for run in runs])
        print(f"{wave:4}{best:>18}{top:>18}{fmean(run.seconds for run in runs):12.1f}", flush=True)


def measure(case: str, trials: int, seed: int, wave: int) -> Run:
    """Run the case in a process of its own, which ends with this one. RuntimeError if it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_search", "--case", case, str(trials), str(seed), str(wave)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(GRACE)
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}:\n{err[-2000:]}")
    return Run(trials, seconds, Outcome(**json.loads(out.splitlines()[-1])))


def _line(runs: Sequence[Run]) -> str:
    """The means of these runs."""
    seconds, ray = fmean(run.seconds for run in runs), fmean(run.outcome.ray_start for run in runs)
    fast, faster = (fmean(speeds) for speeds in zip(*(run.speeds for run in runs), strict=True))
    epochs, ended = fmean(run.outcome.epochs for run in runs), fmean(len(run.ranked) for run in runs)
    best = fmean(run.ranked[0] for run in runs)
    return f"{seconds:8.1f}{ray:7.1f}{fast:10.2f}{faster:9.2f}{epochs:8.0f}{ended:12.1f}{best:8.4f}"


def _ratio(case: str, theirs: Sequence[Run], ours: Sequence[Run]) -> str:
    """Our pruned search over another, in trials a second, seed by seed."""
    pairs = [
        [our_speed / their_speed for our_speed, their_speed in zip(our_run.speeds, their_run.speeds, strict=True)]
        for their_run, our_run in zip(theirs, ours, strict=True)
    ]
    texts = [f"{fmean(them):.2f} ({min(them):.2f} to {max(them):.2f})" for them in zip(*pairs, strict=True)]
    epochs = sum(run.outcome.epochs for run in ours) / sum(run.outcome.epochs for run in theirs)
    return (
        f"trials/s of (d) over ({case}): {texts[0]} with Ray's start, {texts[1]} without; epochs trained: {epochs:.2f}"
    )


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.4f} +- {stdev(values):.4f}" if len(values) > 1 else f"{values[0]:.4f}"


def _listed(text: str) -> list[str]:
    parts = [part for part in text.split(",") if part]
    for part in parts:
        if part not in NAMES:
            raise argparse.ArgumentTypeError(f"no case '{part}'; there are: {', '.join(NAMES)}")
    return parts


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--case", name, *numbers]:
            print(json.dumps(asdict(CASES[name](*map(int, numbers)))))
        case ["--trial", config]:
            print(json.dumps(asdict(train_one(json.loads(config)))))
        case _:
            main()
