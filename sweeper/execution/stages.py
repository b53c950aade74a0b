"""The stages of a plan, which are dispatched one after the other: sources of cohorts, and the slots where they run.

What the studies of a search have left to train, for the choice of their steps.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from sweeper.definition.pruners import Pruner
from sweeper.definition.space import Search, Study, Value, bounds
from sweeper.errors import SpecError
from sweeper.execution.backend import Backend
from sweeper.execution.budget import Budget, Expected
from sweeper.packing.allocate import Allocator
from sweeper.packing.cluster import DeviceInfo, Slots, hourly_price, profile_devices, write_devices
from sweeper.packing.compilation import StudyWork
from sweeper.packing.cuts import record_halved, recorded_halves
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.planning.order import in_order
from sweeper.planning.plan import Plan
from sweeper.planning.sources import CohortQueue, CohortSource, Sharing
from sweeper.printing import print
from sweeper.request import Request
from sweeper.search.journal import begin_journal
from sweeper.search.rungs import Rungs
from sweeper.search.study_run import StudyRun
from sweeper.search.waves import Waves
from sweeper.storage.lease import Lease
from sweeper.storage.store import Store, StoreReader
from trainables.config import fusible_keys, resolve, stream_key
from trainables.reports import EpochRanking
from trainables.training.checks import check_trials
from trainables.training.population import PopulationRule
from trainables.worker.messages import Comparison

FIRST = {"given": "", "coarse": ", coarse ones first", "shuffled": " in a random order"}
"""Kind of an order -> what a line about the cohorts says of it."""


@dataclass(frozen=True)
class Stage:
    """The part of a sweep whose trials take equally many workers."""

    source: CohortSource
    slots: Slots
    comparison: Callable[[Cohort], Comparison] = lambda cohort: Comparison()
    """How the members of a cohort that starts now are compared while they train."""
    expected: Expected = lambda cohort: None
    """Seconds that a cohort takes by measurement."""
    price: float | None = None
    """Price per hour of the nodes on which it runs; None if unknown."""
    ranking: EpochRanking | None = None
    """The metric that ranks trials."""

    def begin(self, budget: Budget) -> None:
        """Update a budget with what is known of this stage."""
        budget.begin(_shape, self.expected, self.price)


def stages(request: Request, plan: Plan, store: Store, backend: Backend, lease: Lease) -> list[Stage]:
    """Return the stages of what is left of a plan on a backend, and print a line about its grids and one about its
    studies. `lease` is this driver's.

    The devices are looked at first, and the grids' groups are measured where that is needed.
    """
    cluster = backend.cluster()
    devices = profile_devices(cluster)
    check_prices(request, devices)
    allocator = Allocator(request, plan, store.files, devices, cluster.local, cluster.measure)
    plan_stages: list[Stage] = []
    if plan.groups and plan.share_left([plan.grid_trials]):
        write_devices(store.files, cluster.address, devices, request.devices)
        plan_stages += _of_grids(allocator, lease)
    if not all(study_run.ended for study_run in plan.study_runs):
        plan_stages.append(_of_studies(allocator))
    ranking = EpochRanking(plan.headline.name, plan.headline.ranking_direction == "maximize")
    return [replace(stage, ranking=ranking) for stage in plan_stages]


def check_prices(request: Request, devices: Sequence[DeviceInfo]) -> None:
    """Raise SpecError if a limit of the cost needs the price of a node that has none."""
    price = request.node_price
    for kind in (device.kind for device in devices if request.cost is not None):
        if price is None or price.of(kind.accelerator) is None:
            known = price.text if price else "none"
            gpus = f"nodes with GPUs of kind '{kind.accelerator}'" if kind.accelerator else "these nodes"
            raise SpecError(f"--cost needs the price of {gpus}, but --node-price is {known}")


def _of_grids(allocator: Allocator, lease: Lease) -> list[Stage]:
    plan, files, packing = allocator.plan, allocator.files, allocator.begin_grids()
    slots = packing.slots
    cut, halved_ids = cohorts.cut(plan.groups, packing.cuts), recorded_halves(files, plan.name)
    all_cohorts = cohorts.halved(cut, halved_ids)
    left = cohorts.by_workers(cohorts.remaining(all_cohorts, plan.grid_statuses))
    sizes = [len(cohort.trials) for own in left.values() for cohort in own]
    at_a_time = " or ".join(str(slots[workers].count) for workers in left)
    used = zip(allocator.devices, packing.slots_per_device, strict=False)  # none are packed for several workers
    unused = ", ".join(device.kind.accelerator for device, slots in used if not slots)
    rest = f"; none on {unused}, which would gain little" if unused else ""
    first = FIRST[allocator.request.order.kind]
    print(f"{cohorts_text(sizes)}{first}, {at_a_time} at a time{rest}", flush=True)
    record = partial(record_halved, files, plan.name)
    by_workers = cohorts.by_workers(in_order(all_cohorts, plan, allocator.request.order))
    reader = StoreReader(files)

    def statuses() -> dict[str, str]:
        stored = reader.statuses_with_history(plan.name)
        return {trial: status for trial, status in stored.items() if trial not in plan.without_model}

    sharing = Sharing(lease, statuses, partial(print, flush=True), files.runtime.monotonic)
    expected, price = packing.cohort_seconds(), packing.price
    price = price if set(slots) == {1} else hourly_price(allocator.devices, allocator.request.node_price)
    return [
        Stage(
            CohortQueue(by_workers[workers], plan.grid_statuses, record, sharing),
            slots[workers],
            expected=expected,
            price=price,
        )
        for workers in left
    ]


def _of_studies(allocator: Allocator) -> Stage:
    plan, files = allocator.plan, allocator.files
    for study_run in plan.study_runs:
        study_run.write_definition(files, plan.name)
    searches = [study_run.study.search for study_run in plan.study_runs]
    workers = cohorts.worker_count([plan.study_runs[0].trials])
    cutter = allocator.studies(list(map(study_work, plan.study_runs)), workers)
    rungs = _rungs(plan.study_runs)
    on_different_data = any(search.replicates.keys() - {"seed"} for search in searches)
    waves = Waves(
        plan.study_runs,
        partial(_shape_and_steps, allocator.request) if on_different_data else _shape,
        lambda trial: stream_key(resolve(trial.config)),
        cutter.cut,
        rungs=rungs,
        wave_ended=begin_journal(files, plan.request_folder),
        halved=recorded_halves(files, plan.name),
        record_halved=partial(record_halved, files, plan.name),
    )
    wave_sizes = dict.fromkeys(wave_text(own) for own in sorted(searches, key=lambda own: own.wave))
    some = [steps for steps in cutter.steps.values() if steps.every or steps.shapes]
    compiled = ", with compiled steps where these save time" if some else ""
    several = f"{len(plan.study_runs)} studies, " if len(plan.study_runs) > 1 else ""
    print(
        f"{several}waves of {' or '.join(wave_sizes)} by {searches[0].proposer}, "
        f"{cutter.slots.count} cohorts at a time{compiled}",
        flush=True,
    )
    studies = {study_run.id: study_run.study for study_run in plan.study_runs}

    def comparison(cohort: Cohort) -> Comparison:
        study = studies[str(cohort.trials[0].facts["study_id"])]
        if place := waves.place(cohort.id):
            return Comparison(study.search.objectives[0].name, place.rungs.epochs, place.known_now.decide)
        return Comparison(population=_population(study))

    price = hourly_price(allocator.devices, allocator.request.node_price)
    return Stage(waves, cutter.slots, comparison, price=price)


def cohorts_text(sizes: Sequence[int]) -> str:
    """Return e.g. `28 cohorts of up to 20 trials`, or `1 cohort of 4 trials`, by the number of trials of each."""
    least, most = min(sizes, default=1), max(sizes, default=1)
    trials = f"{most} trials" if most > 1 else "one trial"
    return f"{len(sizes)} cohort{'s' * (len(sizes) != 1)} of {'up to ' * (least < most)}{trials}"


def wave_text(search: Search) -> str:
    """Return e.g. `32 trials`, or with replicates `32 proposals x 3 seed`."""
    if not search.replicates:
        return f"{search.wave} trials"
    return " x ".join([f"{search.wave} proposals", *(f"{len(of)} {key}" for key, of in search.replicates.items())])


def _shape(trial: Trial) -> Hashable:
    """The values that trials of one cohort must share."""
    free = fusible_keys(str(trial.config["method"]))
    return tuple((key, value) for key, value in trial.config.items() if key not in free)


def _shape_and_steps(request: Request, trial: Trial) -> Hashable:
    """What trials of one cohort must share if replicates are of different data: the number of their steps, too."""
    (result,) = check_trials([resolve(trial.config)], request.data_folder)
    return result.steps, _shape(trial)


def _population(study: Study) -> PopulationRule | None:
    """The rule by which members of the study's cohorts copy each other; None for a study without a population."""
    population, (metric, *_) = study.search.population, study.search.objectives
    if population is None:
        return None
    ranges = cast(
        Mapping[str, tuple[float, float]],
        {key: bounds(distribution) for key, distribution in study.search.space.items()},
    )
    return PopulationRule(
        metric.name, metric.ranking_direction, population.every, population.share, population.factor, ranges
    )


def _rungs(study_runs: Sequence[StudyRun]) -> dict[str, Rungs]:
    """Return the id of each study that prunes -> its rungs."""
    rungs = {}
    for study_run in study_runs:
        search, training = study_run.study.search, resolve(study_run.trials[0].config).training
        if search.pruner:
            ladders = search.pruner.ladders(training.epochs, training.report_every)
            rungs[study_run.id] = Rungs(search.objectives[0].ranking_direction, search.pruner, ladders)
    return rungs


MAX_SHAPES = 4
"""Most shapes of a study's steps that are compiled by themselves."""


def study_work(study_run: StudyRun) -> StudyWork:
    """Return what a study has left to train."""
    search = study_run.study.search
    results = [*study_run.statuses.values(), *(status for _, status in study_run.ahead)]
    left = search.trials * search.repeats - sum(status != "failed" for status in results)
    training = resolve(study_run.trials[0].config).training
    share = 1.0
    if search.pruner and training.epochs:
        share = least_share(search.pruner, training.epochs, training.report_every)
    return StudyWork(
        study_run.id,
        shapes(study_run.study),
        {search.repeats * min(search.wave, search.trials - first) for first in range(0, search.trials, search.wave)},
        study_run.steps * left * share,
        search.pruner.reduction if search.pruner else 1,
        search.population is not None,
        bool(results),
        search.repeats,
    )


def least_share(pruner: Pruner, epochs: int, report_every: int) -> float:
    """Return the share of their epochs that trials train on average if at each rung only one of `reduction` remains.
    They train more if trials reach a rung before others, or in further brackets."""
    rungs = [0, *pruner.ladders(epochs, report_every)[0], epochs]
    return sum(
        (end - start) / pruner.reduction**rung for rung, (start, end) in enumerate(itertools.pairwise(rungs))
    ) / epochs  # fmt: skip


def shapes(study: Study) -> list[Mapping[str, Any]]:
    """Return a config of each shape of step that the trials of a study can have; none if there are too many."""
    fusible = fusible_keys(str(study.fixed["method"]))
    values = {key: _values(distribution) for key, distribution in study.search.searched.items() if key not in fusible}
    if math.prod(map(len, values.values())) not in range(1, MAX_SHAPES + 1):
        return []
    configs: list[Mapping[str, Any]] = []
    for combination in itertools.product(*values.values()):
        proposal = study.proposal(dict(zip(values, combination, strict=True)))
        with contextlib.suppress(ValueError):  # values that are illegal together
            own = resolve({**study.fixed, **proposal}).flat()
            configs += [own] if own not in configs else []
    return configs


def _values(distribution: Any) -> Sequence[Value]:
    """Return the values of a distribution of a key that changes shapes; none if they are more than a few."""
    if hasattr(distribution, "choices"):
        return tuple(distribution.choices)
    low, high = bounds(distribution)
    if low == high:
        return (low,)
    if not isinstance(low, int) or not isinstance(high, int):
        return ()
    return range(low, high + 1, distribution.step)
