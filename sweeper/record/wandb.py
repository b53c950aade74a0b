"""Weights & Biases: a run for each trial, whose id is the trial's, in a project; offline with `WANDB_MODE=offline`."""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import wandb

from sweeper.record.listener import Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of, plain

ENDED, SYNCED = "sweeper-ended.txt", "*.wandb.synced"
"""File in a run's folder that says when its trial ended, and the mark of one that was sent to the server."""


class WandB(Tracker):
    """Writes runs with the `wandb` package, online or offline as the environment says.

    A run that is continued offline gets a new folder with all of its reports; the one that it replaces is removed,
    unless it was sent to the server.
    """

    def __init__(self, project: str) -> None:
        self._project, self._runs = project, dict[str, wandb.Run]()
        self._settings = wandb.Settings(
            console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True, init_timeout=30
        )
        self._folder = Path(os.environ.get("WANDB_DIR", "."), "wandb")

    def ended(self) -> Mapping[str, str]:
        files = sorted(self._folder.glob(f"*run-*/{ENDED}"))
        return {file.parent.name.rpartition("-")[2]: file.read_text() for file in files}

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        if trial.id in self._runs:
            self._runs.pop(trial.id).finish(exit_code=1)
        for folder in self._folder.glob(f"offline-run-*-{trial.id}"):
            if not list(folder.glob(SYNCED)):
                shutil.rmtree(folder)
                while time.strftime("%Y%m%d_%H%M%S") in folder.name:  # W&B writes nothing to a folder of the same name
                    time.sleep(0.05)
        run = wandb.init(
            project=self._project,
            id=trial.id,
            name=trial.name,
            group=trial.group,
            config={key: plain(value) for key, value in trial.hyperparameters.items()},
            resume=None if anew else "allow",
            reinit="create_new",
            dir=str(self._folder.parent),
            settings=self._settings,
        )
        self._runs[trial.id] = run
        return run.step - 1 if run.resumed else -1

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        for epoch, metrics in reports.items():
            self._runs[trial.id].log(dict(metrics), step=epoch, commit=True)

    def end(self, trial: TrackedTrial, row: Row) -> None:
        run, (numbers, texts) = self._runs[trial.id], trial.outcome(row)
        run.config.update({key: plain(value) for key, value in trial.hyperparameters.items()}, allow_val_change=True)
        run.summary.update({**numbers, **texts})
        run.finish(exit_code=int(texts["status"] == "failed"))
        del self._runs[trial.id]
        Path(run.dir).parent.joinpath(ENDED).write_text(end_of(row))

    def close(self) -> None:
        for run in self._runs.values():  # their trials were interrupted
            run.finish(exit_code=255)
