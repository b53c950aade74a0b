"""The command line, and the one place where all stages meet: a sweep's name in, Parquet out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from sweeper import cohorts, findings, spec
from sweeper.cluster import ClusterError, Slots, check_address, connected, slots
from sweeper.cohorts import Cut
from sweeper.collect import Collector
from sweeper.command import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, Request, parse
from sweeper.files import StoreError
from sweeper.plan import Plan, describe, record_cut, recorded_cut, text
from sweeper.progress import Progress
from sweeper.schema import Columns
from sweeper.spec import SpecError
from sweeper.stopping import Stopping
from sweeper.store import Store, checkpoint_path
from sweeper.version import code_version

COMPACT_ABOVE = 256
"""A sweep that ends with more files than this is compacted."""
LEAST_FREE = 64 << 20
"""Bytes that a local store's disk must have left before a run."""
MEASURED = 64
"""Members of a group that are measured together at most."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sweep; returns the exit status (see `command.EXITS`)."""
    try:
        request = parse(sys.argv[1:] if arguments is None else arguments)
        if request.list:
            return _list()
        from sweeper.prepare import prepare  # here: it imports torch, which takes seconds

        store = Store(request.store)
        plan, columns = prepare(request, store)
        if request.plan:
            return _show(request, plan, store)
        check_address(_address(request))
        _check_room(store)
        if request.fresh:
            store.set_aside(plan.name)
        columns = store.prepare(plan.name, columns)
        stopping = Stopping()
        with stopping.on_signals():
            return _run(request, plan, store, columns, stopping)
    except (SpecError, ClusterError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output (`| head`) has gone; so do we, and what is in the store stays
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(request: Request, plan: Plan, store: Store, columns: Columns, stopping: Stopping) -> int:
    """Train what is left of the plan and show what all its rows say; where that is cut short, say how to go on."""
    try:
        if plan.left:
            _train(request, plan, store, columns, stopping)
        return _finish(plan, store, columns)
    except KeyboardInterrupt:
        _say_how_to_go_on(plan, store)
        return EXIT_INTERRUPTED
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        _say_how_to_go_on(plan, store)
        return EXIT_FAILED


def _finish(plan: Plan, store: Store, columns: Columns) -> int:
    """Figures and tables from all rows of the plan; returns the exit status."""
    store.prepare(plan.name, columns)  # settles what another sweep has written into this store meanwhile
    if len(store.files.list(f"trials/sweep={plan.name}")) > COMPACT_ABOVE:
        store.compact(plan.name)
    rows = findings.rows_of(store.files, plan.name, plan.ids)
    print(findings.write(store.files, plan.name, plan.sweep, plan.preset, rows))
    counts = rows["status"].value_counts().to_dict()
    print(f"\n{', '.join(f'{count} {status}' for status, count in counts.items())} of {len(plan.trials)} trials")
    print(f"rows: {store.files.shown}/trials/sweep={plan.name}")
    for kind, shown in plan.sweep.views.items():
        if shown:
            print(f"{kind}: {store.files.shown}/{kind}/{plan.name}")
    return EXIT_OK if len(rows) == len(plan.trials) and "failed" not in counts else EXIT_FAILED


def _train(request: Request, plan: Plan, store: Store, columns: Columns, stopping: Stopping) -> None:
    """Every trial that is left, over the cluster, into the store."""
    from sweeper.dispatch import Limits, dispatch  # here: it imports Ray, whose environment `connected` sets

    verb = "starting" if _address(request) is None else "joining"
    print(f"{plan.left} of {len(plan.trials)} trials to run; {verb} Ray", flush=True)
    with connected(_address(request)) as scratch, stopping.on_signals():  # again: Ray brings a handler of its own
        place = slots(request.fraction, _address(request))
        places = {workers: place.of(workers) for workers in map(cohorts.workers, plan.groups)}
        cuts = _cuts(request, plan, store, places)
        whole = cohorts.cut(plan.groups, cuts)
        left = cohorts.remaining(whole, plan.statuses)
        by_workers = cohorts.by_workers(left)
        at_a_time = " or ".join(str(places[workers].count) for workers in by_workers)
        print(f"{len(left)} cohorts, {at_a_time} at a time, {' or '.join(_widths(cuts))}", flush=True)
        headline = plan.sweep.headline
        progress = Progress(
            total=len(plan.trials),
            done=len(plan.trials) - plan.left,
            metric=headline.name,
            direction=headline.better,
            label=f"{plan.name} ({plan.preset})",
            where=list(dict.fromkeys(filter(None, (*plan.sweep.shown[headline.name], plan.sweep.breakdown)))),
            cohorts=len(left),
        )
        with progress:
            if plan.left < len(plan.trials):
                progress.seen(findings.rows_of(store.files, plan.name, plan.ids).to_dict("records"))
            for workers, some in by_workers.items():
                stopping.check()
                dispatch(
                    some,
                    data=os.path.abspath(request.data),
                    checkpoints=store.files,
                    checkpoint=partial(checkpoint_path, plan.name),
                    slots=places[workers],
                    limits=Limits(request.retries, request.save_every),
                    scratch=scratch,
                    stopping=stopping,
                    listener=Collector(store, plan.name, columns, some, progress, code_version()),
                )


def _cuts(request: Request, plan: Plan, store: Store, places: Mapping[int, Slots]) -> list[Cut]:
    """How to cut each group: as asked, else as it was begun, else as is fastest by measurement; and keep it.

    `places`: by how many workers train a trial.
    """
    if request.cohort:
        cuts, measured = [Cut(request.cohort, request.stack or request.cohort)] * len(plan.groups), None
    elif recorded := recorded_cut(store.files, plan):
        return recorded
    else:
        from sweeper.dispatch import measure

        samples = [[trial.config for stream in group for trial in stream][:MEASURED] for group in plan.groups]
        measured = measure(samples, os.path.abspath(request.data), next(iter(places.values())))
        if recorded := recorded_cut(store.files, plan):  # the same sweep begun twice at once: one cut for both
            return recorded
        cuts = [
            cohorts.choose(speeds, group, steps, places[cohorts.workers(group)].count, memory)
            for (speeds, memory), group, steps in zip(measured, plan.groups, plan.steps, strict=True)
        ]
    record_cut(store.files, plan, cuts, measured and [[asdict(speed) for speed in speeds] for speeds, _ in measured])
    return cuts


def _check_room(store: Store) -> None:
    """StoreError where the disk is as good as full: better said before training than after."""
    free = store.files.free_bytes()
    if free is not None and free < LEAST_FREE:
        raise StoreError(
            f"store {store.files.shown} must have {LEAST_FREE >> 20} MiB free, but has {free >> 20}; make room, or use "
            "another --store"
        )


def _widths(cuts: Sequence[Cut]) -> list[str]:
    """How the cohorts of each cut step, in words."""
    words = [
        f"up to {cut.size} trials each, " + (f"{cut.width} stacked as one" if cut.width > 1 else "stepped in turn")
        for cut in cuts
    ]
    return list(dict.fromkeys(words))


def _address(request: Request) -> str | None:
    """Where to run: as asked, else where Ray's own variable says (inside a Ray job), else here."""
    return request.address or os.environ.get("RAY_ADDRESS")


def _say_how_to_go_on(plan: Plan, store: Store) -> None:
    statuses = store.statuses(plan.name)
    done = sum(statuses.get(trial.id, "failed") != "failed" for trial in plan.trials)
    print(f"stopped: {done} of {len(plan.trials)} trials are in {store.files.shown}; the same command continues")


def _list() -> int:
    for name in spec.names():
        sweep = spec.find(name)
        sizes = ", ".join(
            f"{preset} ({len(list(grid.combinations()))} trials)" for preset, grid in sweep.presets.items()
        )
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK


def _show(request: Request, plan: Plan, store: Store) -> int:
    """`--plan`: what would run."""
    asked = [Cut(request.cohort, request.stack or request.cohort)] * len(plan.groups) if request.cohort else None
    share = "one" if request.fraction is None else f"{request.fraction:g} of a"
    workers = sorted({cohorts.workers(group) for group in plan.groups})
    each = "a cohort" if workers == [1] else f"for each of {' or '.join(map(str, workers))} workers a cohort"
    plain = describe(plan, asked or recorded_cut(store.files, plan), f"{share} GPU (without GPUs: CPU core) {each}")
    print(json.dumps(plain) if request.json else text(plain))
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
