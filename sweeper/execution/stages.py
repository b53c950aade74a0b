"""A plan -> what is dispatched one after the other: feeds of cohorts, and where they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sweeper.packing.allocate import grid_arrangement, wave_cut, widths
from sweeper.packing.measurements import DeviceInfo, Site, write_seen
from sweeper.packing.placement import whole
from sweeper.packing.profiler import profile_devices
from sweeper.packing.recorded_cuts import record_halved, recorded_halves
from sweeper.packing.slots import Slots
from sweeper.plan import cohorts
from sweeper.plan.cohort_source import CohortQueue, CohortSource
from sweeper.plan.plan import GridPlan, Plan
from sweeper.pruning.rung_client import RungClient
from sweeper.pruning.rung_server import Rule
from sweeper.search import prepare as studies
from sweeper.search.search_plan import SearchPlan
from sweeper.search.study_run import StudyRun
from sweeper.spec.request import Request
from sweeper.storage.store import Store
from trainables.config.trial import resolve
from trainables.worker.ray_train import Judges


@dataclass(frozen=True)
class Stage:
    """A part of a sweep whose trials take equally many workers."""

    feed: CohortSource
    slots: Slots
    judges: Judges | None = None


def stages(request: Request, plan: Plan, store: Store, site: Site, address: str | None) -> list[Stage]:
    """What is to be dispatched there, on devices that are looked at first; says so in a line."""
    seen = profile_devices(site)
    if isinstance(plan, GridPlan):
        write_seen(store.files, address, seen)
        return _of_grid(request, plan, store, seen, site)
    assert isinstance(plan, SearchPlan)
    return [_of_search(request, plan, store, whole(seen, request.fraction, site.here, site.grows))]


def _of_grid(request: Request, plan: GridPlan, store: Store, seen: Sequence[DeviceInfo], site: Site) -> list[Stage]:
    found = grid_arrangement(request, plan, store, seen, site)
    cut, ids = cohorts.cut(plan.groups, found.cuts), recorded_halves(store.files, plan.name)
    every, before = cohorts.halved(cut, ids), cohorts.lineage(cut, ids)
    left = cohorts.by_workers(cohorts.remaining(every, plan.statuses))
    count, at_a_time = sum(map(len, left.values())), " or ".join(str(found.places[workers].count) for workers in left)
    print(f"{count} cohorts, {at_a_time} at a time, {' or '.join(widths(found.cuts))}", flush=True)
    record = partial(record_halved, store.files, plan.name)
    by_workers = cohorts.by_workers(every)
    return [
        Stage(CohortQueue(by_workers[workers], plan.statuses, before, record), found.places[workers])
        for workers in left
    ]


def _of_search(request: Request, plan: SearchPlan, store: Store, place: Slots) -> Stage:
    studies.record(plan, store)
    waves, space = plan.waves, plan.waves.study_runs[0].study.search
    place = place.of(cohorts.workers([waves.trials]))
    rules = _rules(waves.study_runs)
    referee = RungClient(rules) if rules else None
    waves.begin(
        wave_cut(request, place.count, len(waves.study_runs)),
        referee,
        studies.journal(plan, store.files),
        recorded_halves(store.files, plan.name),
        partial(record_halved, store.files, plan.name),
    )
    asked = sorted({study_run.study.search.wave for study_run in waves.study_runs})
    several = f"{len(waves.study_runs)} studies, " if len(waves.study_runs) > 1 else ""
    print(
        f"{several}waves of {' or '.join(map(str, asked))} trials by {space.sampler}, {place.count} cohorts at a time",
        flush=True,
    )
    return Stage(waves, place, referee.judges if referee else None)


def _rules(study_runs: Sequence[StudyRun]) -> dict[str, Rule]:
    """By study's id, of those that prune."""
    found = {}
    for study_run in study_runs:
        search, training = study_run.study.search, resolve(study_run.trials[0].config).training
        if search.pruner:
            metric, ladders = search.objectives[0], search.pruner.ladders(training.epochs, training.report_every)
            found[study_run.id] = Rule(metric.name, metric.better, search.pruner.factor, ladders)
    return found
