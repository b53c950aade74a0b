"""How a grid was cut into cohorts, and which of these were halved: kept in the store, so that a continued sweep has the
same cohorts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut
from sweeper.plan.plan import GridPlan
from sweeper.storage.io.files import Files
from sweeper.storage.json_records import read_record, whole


def recorded_cut(files: Files, plan: GridPlan) -> list[Cut] | None:
    """The cut that this plan was begun with; None if it was not begun, or the record is damaged."""

    def parse(plain: Any) -> list[Cut]:
        cuts = [Cut(whole(cut["size"], 1), whole(cut["width"], 1)) for cut in plain["cuts"]]
        if len(cuts) != len(plan.groups):
            raise ValueError(f"must have {len(plan.groups)} cuts, but has {len(cuts)}")
        return cuts

    return read_record(files, _path(plan), parse)


def recorded_threads(files: Files, plan: GridPlan) -> int:
    """With how many threads on a CPU each process trains, upon which the last bits of its results may depend."""
    return read_record(files, _path(plan), lambda plain: whole(plain.get("threads", 1), 1)) or 1


def record_cut(files: Files, plan: GridPlan, cuts: Sequence[Cut], measured: object, threads: int = 1) -> None:
    """Keep the cut, and the measurements it was chosen by, for when the sweep is continued."""
    content = {"preset": plan.preset, "cuts": [asdict(cut) for cut in cuts], "threads": threads, "measured": measured}
    files.write(_path(plan), json.dumps(content, indent=1).encode())


def records_of(files: Files, plan: GridPlan) -> list[str]:
    """Files that say how the plan was cut, and which of its cohorts were halved."""
    cuts, halved = recorded_cut(files, plan), recorded_halves(files, plan.name)
    before = cohorts.lineage(cohorts.cut(plan.groups, cuts), halved) if cuts else {}
    wholes = dict.fromkeys(whole.id for every in before.values() for whole in every)
    return [_path(plan), *(f"{_halved(plan.name)}/{whole}" for whole in wholes)]


def recorded_halves(files: Files, name: str) -> set[str]:
    """Ids of the cohorts of a sweep that were halved, because they did not fit or one of their trials cannot train."""
    return set(files.list(_halved(name)))


def record_halved(files: Files, name: str, cohort: str) -> None:
    """Keep that it was halved, for when the sweep is continued."""
    files.write(f"{_halved(name)}/{cohort}", b"")


def _path(plan: GridPlan) -> str:
    return f"cuts/sweep={plan.name}/{plan.id}.json"


def _halved(name: str) -> str:
    return f"cuts/sweep={name}/halved"
