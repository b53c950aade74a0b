"""Small cohorts on the digits, and helpers to read their reports and checkpoints.

Steps that are traced as they are to be compiled, but then run operation by operation: what a compiler would get.
"""

import io
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config import resolve
from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.learners.compiled import Run
from trainables.reports import Report
from trainables.sections import TrialConfig, Value
from trainables.training.checkpoint import DIGEST_SIZE
from trainables.training.compile_step import StepTask, trace
from trainables.training.compiled_steps import LibraryFolder, StepCompiler

HERE = Path()
"""The digits need no folder."""


IMAGE_METHODS = {name: cls for name, cls in METHODS.items() if issubclass(cls, ImageMethod)}
"""Name -> method, of those that learn from images."""


def image_trial(values: Mapping[str, Value]) -> ImageTrial:
    """`resolve`, for a method that learns from images."""
    config = resolve(values)
    assert isinstance(config, ImageTrial)
    return config


def config_of(**changes: Value) -> TrialConfig:
    defaults: dict[str, Value] = {
        "method": "vje", "normal_class": 3, "width": 16, "features": 8, "bottleneck": 8, "batch_size": 60,
        "epochs": 5, "report_every": 2, "lr": 0.02, "rotation": 10.0, "shift": 0.25,
    }  # fmt: skip
    return resolve({**defaults, **changes})


def three(**changes: Value) -> list[TrialConfig]:
    return [config_of(beta=beta, **{"seed": seed, **changes}) for beta, seed in ((0.5, 0), (1.0, 1), (2.0, 0))]


def metrics_of(reports: list[Report], member: int) -> list[dict[str, float | None]]:
    return [dict(report.members[member].metrics) for report in reports]


def content_of(data: bytes) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(io.BytesIO(data[DIGEST_SIZE:]), weights_only=True)
    return content


def state_of(data: bytes) -> Any:
    """The weights, buffers and momenta of a checkpoint as numbers."""
    state = content_of(data)["state"]
    return [{kind: {key: t.tolist() for key, t in stack[kind].items()} for kind in stack} for stack in state]


def at_ends(saved: list[bytes]) -> Callable[[bytes], None]:
    """A save callback that keeps only the checkpoints between epochs."""

    def save(data: bytes) -> None:
        if content_of(data)["standing"]["step"] == 0:
            saved.append(data)

    return save


_numbers = itertools.count()


class GraphLibrary:
    """The graph of a step."""

    def __init__(self, task: StepTask) -> None:
        self._graph, _, names = trace(task)
        self.parts = tuple(names)
        self.calls = 0

    def load(self, device: str) -> Run:
        @torch.no_grad()
        def run(tensors: list[Tensor]) -> list[Tensor]:
            self.calls += 1
            return list(self._graph(*tensors))

        return run


class TracingCompiler(StepCompiler):
    """Traces steps in this process."""

    def __init__(self) -> None:
        super().__init__(folder=LibraryFolder(Path(f"none-{next(_numbers)}")))
        self.traced: list[tuple[StepTask, GraphLibrary]] = []

    def _library(self, task: StepTask, wait: Callable[[], None]) -> GraphLibrary:
        self.traced.append((task, GraphLibrary(task)))
        return self.traced[-1][1]
