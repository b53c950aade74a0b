"""A trial's configuration: one frozen dataclass for each section. A task adds its own sections by inheritance."""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from trainables.config.training import GradientTraining, Optimiser, Training
from trainables.validation import added_keys

Value = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """Everything that one training run depends on."""

    optional: ClassVar[frozenset[str]] = frozenset({"optimiser"})
    """Sections whose keys are part of a trial only if one of them differs from its default. A section that is added
    later must be optional, so that the ids of earlier trials do not change; a key is added to a section by `added`."""

    method: str
    training: Training
    optimiser: Optimiser = field(default_factory=Optimiser)
    options: Any
    """The method's own `Config`."""

    @property
    def gradient(self) -> GradientTraining:
        """The training section of a method that is trained by gradients."""
        assert isinstance(self.training, GradientTraining)
        return self.training

    @classmethod
    def sections(cls) -> Mapping[str, type]:
        """Name of each section that all trials of a task have -> its dataclass, without `training` and `options`."""
        hints = typing.get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        return {name: hints[name] for name in names if name not in ("method", "training", "options")}

    def flat(self) -> dict[str, Value]:
        """All keys and their values, including defaults, except those of optional sections and keys that were `added`,
        at their defaults."""
        values: dict[str, Value] = {"method": self.method}
        for name, section in vars(self).items():
            if name != "method" and (name not in self.optional or section != _default(section.__class__)):
                later = added_keys(section.__class__)
                values |= {
                    key: value for key, value in vars(section).items() if key not in later or value != later[key]
                }
        return values


@functools.cache
def _default(section: type) -> Any:
    """The section with all keys at their defaults. It is kept, because its checks take time."""
    return section()
