"""What is to run: a sweep's trials in their groups, what the store has of them, and the cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from sweeper import cohorts
from sweeper.cohorts import Cohort, Cut, Group
from sweeper.files import Files
from sweeper.spec import Sweep
from sweeper.trials import Trial, content_hash


@dataclass(frozen=True)
class Plan:
    """A whole sweep, however much of it is done."""

    name: str
    preset: str
    sweep: Sweep
    trials: tuple[Trial, ...]
    groups: Sequence[Group]
    """Trials that may share a cohort."""
    steps: Sequence[int]
    """Of each group: training steps of a trial, from beginning to end."""
    statuses: Mapping[str, str]
    """trial_id -> status, of every trial of the sweep that has a row."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all its trials, in their order."""
        return tuple(trial.id for trial in self.trials)

    @property
    def id(self) -> str:
        """A hash of the trials' ids."""
        return content_hash(sorted(self.ids))

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status, those without a row as `to run`."""
        found = dict.fromkeys(("finished", "diverged", "failed", "to run"), 0)
        for trial in self.trials:
            found[self.statuses.get(trial.id, "to run")] += 1
        return found

    @property
    def left(self) -> int:
        """Trials that this run has to train: those without a row and those that failed."""
        return self.counts["to run"] + self.counts["failed"]


def recorded_cut(files: Files, plan: Plan) -> list[Cut] | None:
    """The cut that this plan was begun with; None if it was not begun, or the record is damaged."""
    try:
        cuts = [Cut(**cut) for cut in json.loads(files.read(_path(plan)) or b"")["cuts"]]
    except (ValueError, TypeError, KeyError):
        return None
    return cuts if len(cuts) == len(plan.groups) else None


def record_cut(files: Files, plan: Plan, cuts: Sequence[Cut], measured: object) -> None:
    """Keep the cut, and the measurements it was chosen by, for when the sweep is continued."""
    content = {"preset": plan.preset, "cuts": [asdict(cut) for cut in cuts], "measured": measured}
    files.write(_path(plan), json.dumps(content, indent=1).encode())


def describe(plan: Plan, cuts: Sequence[Cut] | None, resources: str) -> dict[str, object]:
    """The plan as plain values, for `--plan`."""
    whole: tuple[Cohort, ...] | None = cohorts.cut(plan.groups, cuts) if cuts else None
    return {
        "sweep": plan.name,
        "preset": plan.preset,
        "about": plan.sweep.about,
        "trials": len(plan.trials),
        **plan.counts,
        "groups": len(plan.groups),
        "cohorts": len(whole) if whole else None,
        "cohorts_to_run": len(cohorts.remaining(whole, plan.statuses)) if whole else None,
        "cohort_sizes": sorted({len(cohort.trials) for cohort in whole}) if whole else None,
        "resources": resources,
    }


def text(plain: Mapping[str, object]) -> str:
    """What `describe` returned, for a person."""
    counts = ", ".join(f"{plain[status]} {status}" for status in ("finished", "diverged", "failed", "to run"))
    cohorts = "cut by measurement when the run begins"
    if plain["cohorts"]:
        sizes = " or ".join(map(str, cast("list[int]", plain["cohort_sizes"])))
        cohorts = f"{plain['cohorts']} of {sizes} trials, {plain['cohorts_to_run']} to run"
    return (
        f"{plain['sweep']} ({plain['preset']}): {plain['about']}\n"
        f"  trials     {plain['trials']}: {counts}\n"
        f"  cohorts    {cohorts}\n"
        f"  resources  {plain['resources']}"
    )


def _path(plan: Plan) -> str:
    return f"cuts/sweep={plan.name}/{plan.id}.json"
