"""Cuts of grids that need no measurement: as requested, or as recorded for continuing a sweep."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cut, Group, parts
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.storage.checkpoints import CHECKPOINT
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import checkpoints_folder, cut_path, halved_folder
from trainables.json_input import PositiveCount


def requested_cut(request: Request) -> Cut | None:
    """Return the cut that `--cohort` and `--stack` request; None without `--cohort`."""
    if not request.cohort:
        return None
    return Cut(request.cohort, request.stack or request.cohort, request.compile == "always")


def settled_cuts(request: Request, plan: Plan, files: Files) -> list[Cut] | None:
    """Return the cut of each group as requested, else as the sweep was begun; None if neither settles it.

    Whether steps are compiled stays as the sweep was begun, too, unless `--compile always` or `never` is requested.
    """
    recorded, requested = recorded_cuts(files, plan), requested_cut(request)
    cuts = [requested] * len(plan.groups) if requested else recorded
    if cuts is None:
        return None
    kinds = [cut.compiled for cut in recorded or cuts] if request.compile == "auto" else [request.compile == "always"]
    return [
        _with_steps(group, cut, compiled)
        for group, cut, compiled in zip(plan.groups, cuts, itertools.cycle(kinds), strict=False)
    ]


def _with_steps(group: Group, cut: Cut, compiled: bool) -> Cut:
    """Return the cut of a group with compiled or eager steps. Compiled stacks are as wide as the group has cohorts."""
    longest = max(map(len, parts(group, cut.size)))
    return replace(cut, compiled=compiled, width=min(cut.width, longest) if compiled else cut.width)


def describe_cuts(cuts: Sequence[Cut]) -> list[str]:
    """Describe each different cut in words, e.g. "up to 56 trials each, 8 stacked as one"."""
    return list(dict.fromkeys(map(_describe_cut, cuts)))


def _describe_cut(cut: Cut) -> str:
    steps = ", with compiled steps" if cut.compiled else ""
    if cut.size == 1:
        return f"one trial each{steps}"
    stacked = f"{cut.width} stacked as one" if cut.width > 1 else "trained in turn"
    return f"up to {cut.size} trials each, {stacked}{steps}"


@dataclass(frozen=True)
class _CutsRecord:
    """The cuts of a plan as they are recorded."""

    cuts: list[Cut]
    threads: PositiveCount = 1


def recorded_cuts(files: Files, plan: Plan) -> list[Cut] | None:
    """Return the cut of each group with which the plan was begun; None if it was not begun or the record is damaged."""

    def cuts_of(record: _CutsRecord) -> list[Cut]:
        count = len(record.cuts)
        if count != len(plan.groups):
            raise ValueError(f"the record must have {len(plan.groups)} cuts, one for each group, but has {count}")
        return record.cuts

    return read_record(files, _path(plan), _CutsRecord, cuts_of)


def recorded_threads(files: Files, plan: Plan) -> int:
    """Return the CPU threads with which each process trains. The last bits of its results may depend on them."""
    record: _CutsRecord | None = read_record(files, _path(plan), _CutsRecord)
    return record.threads if record else 1


def record_cuts(files: Files, plan: Plan, cuts: Sequence[Cut], measured: object, threads: int = 1) -> None:
    """Keep the cuts, and the measurements from which they were chosen, for a continued sweep."""
    content = {"preset": plan.preset, "cuts": [asdict(cut) for cut in cuts], "threads": threads, "measured": measured}
    files.write(_path(plan), json.dumps(content, indent=1).encode())


def record_paths(files: Files, plan: Plan) -> list[str]:
    """Return the paths of the records of a plan: of its cuts, and of each of its cohorts that was halved. Before them
    come the checkpoints of such cohorts and of their parts, which nobody would know of without the records."""
    cuts, ids = recorded_cuts(files, plan), recorded_halves(files, plan.name)
    whole = list(cohorts.cut(plan.groups, cuts)) if cuts else []
    halved_ids, known = list[str](), set[str]()
    for cohort in whole:  # which grows by the halves
        if cohort.id in ids and len(cohort.trials) > 1:
            parts = cohorts.halves(cohort)
            whole += parts
            halved_ids.append(cohort.id)
            known |= {cohort.id, *(part.id for part in parts)}
    folder = checkpoints_folder(plan.name)
    names = [name for name in files.list(folder) if name.partition(CHECKPOINT)[0] in known] if known else []
    records = (f"{halved_folder(plan.name)}/{cohort_id}" for cohort_id in halved_ids)
    return [*(f"{folder}/{name}" for name in names), _path(plan), *records]


def recorded_halves(files: Files, name: str) -> set[str]:
    """Return the ids of a sweep's cohorts that were halved: they did not fit, or one of their trials cannot train."""
    return set(files.list(halved_folder(name)))


def record_halved(files: Files, name: str, cohort: str) -> None:
    """Keep that the cohort with this id was halved, for a continued sweep."""
    files.write(f"{halved_folder(name)}/{cohort}", b"")


def _path(plan: Plan) -> str:
    return cut_path(plan.name, plan.grid_id)
