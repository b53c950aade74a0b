"""This service as a case of `bench_search`: its command line, and its proposals alone."""

import contextlib
import io
import json
import tempfile
from dataclasses import replace
from functools import partial

from tests.benchmarks.ray_start import timed
from tests.benchmarks.search_rivals import DATA, PRESET, SWEEP, Last, Outcome, outcome, search, value_of


def command(trials: int, seed: int, wave: int, *options: str) -> Outcome:
    """The command line of this service, from its arguments to rows and figures."""
    started: list[float] = []
    import sweeper.run as run

    run.connected = partial(timed, started=started)

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
