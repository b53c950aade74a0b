"""Functions of a user that train nothing: what they report follows from their parameters alone, as in `training`.

One for each way in which a function is continued: one that returns its metrics and a generator begin again, and two
that save go on from there, of which one saves an epoch before it reports it and the other afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tests.simulation.training import STEPS, digest, diverges_in, value


def during_step(epoch: int, config: Mapping[str, Any]) -> object:
    """Called in each step of an epoch, counted from 0, with the parameters of the trial: simulated time passes there,
    where a world has replaced it."""


def returns(lr: float, seed: int = 0) -> dict[str, float]:
    """Report once, at the end."""
    trial = _Trial({"lr": lr, "seed": seed, "epochs": 1})
    trial.train(1)
    return trial.metrics(1)


def yields(lr: float, seed: int = 0, epochs: int = 4, weight_decay: float = 0.0) -> Iterator[dict[str, float]]:
    """Report by yielding."""
    trial = _Trial({"lr": lr, "seed": seed, "epochs": epochs, "weight_decay": weight_decay})
    for epoch in range(1, epochs + 1):
        trial.train(epoch)
        yield trial.metrics(epoch)


def saves_first(trial: Any, lr: float, seed: int = 0, epochs: int = 4, weight_decay: float = 0.0) -> None:
    """Save each epoch and then report it."""
    own = _Trial({"lr": lr, "seed": seed, "epochs": epochs, "weight_decay": weight_decay})
    for epoch in range(own.resumed(trial.resume()) + 1, epochs + 1):
        own.train(epoch)
        trial.save({"weight": own.weight, "epoch": epoch})
        trial.report(epoch, **own.metrics(epoch))
    trial.keep({"digest": torch.tensor([own.weight])})


def reports_first(trial: Any, lr: float, seed: int = 0, epochs: int = 4, weight_decay: float = 0.0) -> None:
    """Report each epoch and then save it."""
    own = _Trial({"lr": lr, "seed": seed, "epochs": epochs, "weight_decay": weight_decay})
    for epoch in range(own.resumed(trial.resume()) + 1, epochs + 1):
        own.train(epoch)
        trial.report(epoch, **own.metrics(epoch))
        trial.save({"weight": own.weight, "epoch": epoch})
    trial.keep({"digest": torch.tensor([own.weight])})


class _Trial:
    """What all of them train."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config, self.weight = config, digest("initial", config)
        self._diverges = diverges_in(config)

    def resumed(self, state: Mapping[str, Any] | None) -> int:
        """Go on from a state. Returns its epoch."""
        if state is None:
            return 0
        self.weight = int(state["weight"])
        return int(state["epoch"])

    def train(self, epoch: int) -> None:
        for step in range(STEPS):
            during_step(epoch - 1, self._config)
            self.weight = digest(self.weight, self._config, epoch, step)

    def metrics(self, epoch: int) -> dict[str, float]:
        """As of the trials of `sweeps.FIXED`. That by which trials are ranked is not finite if this one diverges."""
        ranked = math.nan if self._diverges == epoch else value("nll_excess", self.weight)
        return {"nll_excess": ranked, "loss": value("loss", self.weight)}
