"""What a step is compiled from: the configuration of a trial, the shapes of its data, and those of the step."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from trainables.catalog import task_of
from trainables.config import fusible_keys, resolve_sent
from trainables.contract import Shapes
from trainables.learners.compiled import StepShape
from trainables.sections import TrialConfig, Value

TRAINING = frozenset({"momentum", "precision", "optimiser", "adam_epsilon"})
"""Keys of the training and its optimiser that change the code of a step."""


@dataclass(frozen=True)
class StepTask:
    """A step to compile."""

    config: Mapping[str, Value]
    """Those keys and values of a trial on which the code of its step depends."""
    shapes: Shapes
    step: StepShape

    @classmethod
    def of(cls, config: TrialConfig, shapes: Shapes, step: StepShape) -> "StepTask":
        """The step of this shape of a trial."""
        sections = ["options", *task_of(config.method).step_sections]
        keys = {key for name in sections for key in vars(getattr(config, name))} | TRAINING | {"method"}
        kept = keys - fusible_keys(config.method)
        return cls({key: value for key, value in _all(config).items() if key in kept}, dict(shapes), step)

    def trial(self) -> TrialConfig:
        """A trial with such a step."""
        return resolve_sent(self.config)

    @classmethod
    def of_json(cls, text: bytes) -> "StepTask":
        """The task that `json` wrote."""
        plain = json.loads(text)
        shapes = {name: tuple(shape) for name, shape in plain["shapes"].items()}
        return cls(plain["config"], shapes, StepShape.of_plain(plain["step"]))

    def json(self) -> bytes:
        """It as JSON, for another process."""
        return json.dumps({"config": self.config, "shapes": self.shapes, "step": self.step.plain()}).encode()

    def digest(self, environment: object) -> str:
        """A hash of the task and of the environment for which it is compiled."""
        content = [sorted(self.config.items()), sorted(self.shapes.items()), repr(self.step), environment]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def _all(config: TrialConfig) -> dict[str, Value]:
    """All keys and values of a trial, also those of sections at their defaults."""
    values: dict[str, Value] = {"method": config.method}
    for name, section in vars(config).items():
        if name != "method":
            values |= vars(section)
    return values
