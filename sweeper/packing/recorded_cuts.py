"""Records in the store of how a grid was cut into cohorts and which of these were halved.

They give a continued sweep the same cohorts as it had before.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut
from sweeper.plan.plan import GridPlan
from sweeper.storage.io.files import Files
from sweeper.storage.io.json_records import read_record, whole


def recorded_cuts(files: Files, plan: GridPlan) -> list[Cut] | None:
    """Return the cut of each group with which the plan was begun; None if it was not begun or the record is damaged."""

    def parse(plain: Any) -> list[Cut]:
        cuts = [Cut(whole(cut["size"], 1), whole(cut["width"], 1)) for cut in plain["cuts"]]
        if len(cuts) != len(plan.groups):
            raise ValueError(f"the record must have {len(plan.groups)} cuts, one for each group, but has {len(cuts)}")
        return cuts

    return read_record(files, _path(plan), parse)


def recorded_threads(files: Files, plan: GridPlan) -> int:
    """Return the CPU threads with which each process trains. The last bits of its results may depend on them."""
    return read_record(files, _path(plan), lambda plain: whole(plain.get("threads", 1), 1)) or 1


def record_cuts(files: Files, plan: GridPlan, cuts: Sequence[Cut], measured: object, threads: int = 1) -> None:
    """Keep the cuts, and the measurements from which they were chosen, for a continued sweep."""
    content = {"preset": plan.preset, "cuts": [asdict(cut) for cut in cuts], "threads": threads, "measured": measured}
    files.write(_path(plan), json.dumps(content, indent=1).encode())


def record_paths(files: Files, plan: GridPlan) -> list[str]:
    """Return the paths of the records of a plan: of its cuts, and of each of its cohorts that was halved."""
    cuts, halved = recorded_cuts(files, plan), recorded_halves(files, plan.name)
    ancestors_of = cohorts.lineage(cohorts.cut(plan.groups, cuts), halved) if cuts else {}
    halved_ids = dict.fromkeys(cohort.id for ancestors in ancestors_of.values() for cohort in ancestors)
    return [_path(plan), *(f"{_halved(plan.name)}/{cohort_id}" for cohort_id in halved_ids)]


def recorded_halves(files: Files, name: str) -> set[str]:
    """Return the ids of a sweep's cohorts that were halved: they did not fit, or one of their trials cannot train."""
    return set(files.list(_halved(name)))


def record_halved(files: Files, name: str, cohort: str) -> None:
    """Keep that the cohort with this id was halved, for a continued sweep."""
    files.write(f"{_halved(name)}/{cohort}", b"")


def _path(plan: GridPlan) -> str:
    return f"cuts/sweep={plan.name}/{plan.id}.json"


def _halved(name: str) -> str:
    return f"cuts/sweep={name}/halved"
