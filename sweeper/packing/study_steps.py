"""Which trials of a study train with compiled steps, and the record of it for a continued search."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sweeper.packing.profiling.profile_store import fixed_shape
from sweeper.request import Request
from sweeper.storage.files import Files, read_record
from trainables.json_input import PositiveCount


@dataclass(frozen=True)
class StudySteps:
    """Which trials of a study train with compiled steps. By default none."""

    width: PositiveCount
    """Members of a compiled stack."""
    every: bool = False
    """True if all trials do, whatever their shapes."""
    shapes: tuple[str, ...] = ()
    """The trials with a config of one of these shapes (`fixed_shape`) do."""

    def compiled(self, config: Mapping[str, Any], fusible: Callable[[str], frozenset[str]]) -> bool:
        """Whether a trial with this config trains with compiled steps. `fusible` maps the name of a method to keys."""
        return self.every or (bool(self.shapes) and fixed_shape(config, fusible) in self.shapes)


def requested_steps(request: Request, files: Files, sweep: str, study: str) -> StudySteps | None:
    """Return the steps of a study as requested, else as it was begun; None if neither settles them."""
    recorded = recorded_steps(files, sweep, study)
    if request.compile == "auto":
        return recorded
    return StudySteps(recorded.width if recorded else 1, request.compile == "always")


def recorded_steps(files: Files, sweep: str, study: str) -> StudySteps | None:
    """Return the steps with which the study with this id was begun; None if it was not, or the record is damaged."""
    return read_record(files, steps_path(sweep, study), StudySteps)


def record_steps(files: Files, sweep: str, study: str, steps: StudySteps) -> None:
    """Keep the steps of a study for a continued search."""
    files.write(steps_path(sweep, study), json.dumps(asdict(steps), indent=1).encode())


def steps_path(sweep: str, study: str) -> str:
    """Path of the record of a study's steps."""
    return f"cuts/sweep={sweep}/{study}.json"
