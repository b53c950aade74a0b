"""What a search costs and finds: this service, Ray Tune and Optuna alone, on this machine's cores.

`python -m tests.benchmarks.bench_search [--trials 64,256] [--seeds 3] [--cases a,b,r,c,d] [--all] [--waves 1,8,32]`
runs `vje_search` on the digits as (a) Optuna with a process a trial, (b) Ray Tune with TPE and ASHA, an actor a trial,
(r) the same with actors reused, (c) this service in waves, nothing pruned, (d) the same with the sweep's pruner; then,
for each of `--waves`, what asking for so many trials at once does to the best that is found (in one process, without
Ray, nothing pruned). An empty list leaves a part out; `--all` measures (a) and (b) with more than 64 trials, too.
Seconds are of whole processes, imports included.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev

from tests.benchmarks import search_ours, search_rivals
from tests.benchmarks.search_rivals import Outcome, search

CASES = {
    "a": search_rivals.optuna_alone,
    "b": search_rivals.ray_tune,
    "r": search_rivals.ray_tune_reused,
    "c": search_ours.unpruned,
    "d": search_ours.command,
    "waves": search_ours.in_process,
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
    if sys.argv[1:2] == ["--case"]:
        print(json.dumps(asdict(CASES[sys.argv[2]](*map(int, sys.argv[3:])))))
    else:
        main()
