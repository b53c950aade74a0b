"""The task of functions, which load their own data and are evaluated by their reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from trainables.contract import Method
from trainables.sections import TrialConfig, Value
from trainables.tasks.task import Methods, Task, TrialSize


@dataclass(frozen=True, kw_only=True)
class FunctionTrial(TrialConfig):
    """Everything that a call of a function depends on."""


class Functions(Task):
    """The task of the user's own functions. Nothing is known of a function before it reports."""

    Trial = FunctionTrial

    def check(self, config: Any, methods: Methods) -> None:
        training = config.training
        if training.workers > 1 and training.patience:
            raise ValueError(
                "a function called by several processes trains to its end, so patience must be 0, but got "
                f"workers={training.workers}, patience={training.patience}"
            )

    def networks(self, config: Any, initial: bool = False) -> None:
        """Functions build their own networks."""

    def stream_key(self, config: Any) -> tuple[object, ...]:
        return ("function",)

    def keep_data(self, config: Any, data: Path) -> None:
        """Does nothing: a function's module caches its own data."""

    def load(self, *_: Any) -> NoReturn:
        raise ValueError("a function loads its own data")

    def preflight(self, configs: Sequence[Any], data: Path | None) -> list[TrialSize]:
        return [TrialSize(steps=0, classes=0)] * len(configs)

    def metric_names(self, config: Any, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return ()

    def evaluator(self, config: Any, model: Any, data: Path, device: torch.device) -> NoReturn:
        raise ValueError(f"{config.method} is a function, which evaluates its models itself")

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        return ()
