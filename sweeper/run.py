"""The command line, and the one place where all stages meet: a sweep's name in, Parquet out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Never

from sweeper import cohorts, findings, spec
from sweeper.cluster import ClusterError, Slots, check_address, connected, slots
from sweeper.cohorts import Cut
from sweeper.collect import Collector
from sweeper.command import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, Request, parse
from sweeper.files import StoreError
from sweeper.plan import Plan, describe, record_cut, recorded_cut
from sweeper.progress import Progress
from sweeper.schema import Columns
from sweeper.spec import SpecError
from sweeper.store import Store, checkpoint_path, load
from sweeper.version import code_version

COMPACT_ABOVE = 256
"""A sweep that ends with more files than this is compacted."""
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
        if request.fresh:
            store.set_aside(plan.name)
        columns = store.prepare(plan.name, columns)
        with _stopping_on_sigterm():
            return _run(request, plan, store, columns)
    except (SpecError, ClusterError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        print("interrupted before training began", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(request: Request, plan: Plan, store: Store, columns: Columns) -> int:
    """Train what is left of the plan, then show what all its rows say."""
    if plan.left:
        try:
            _train(request, plan, store, columns)
        except KeyboardInterrupt:
            _say_how_to_go_on(plan, store, "stopped")
            return EXIT_INTERRUPTED
        except StoreError as error:
            print(f"error: {error}", file=sys.stderr)
            _say_how_to_go_on(plan, store, "stopped")
            return EXIT_FAILED
    if len(store.files.list(f"trials/sweep={plan.name}")) > COMPACT_ABOVE:
        store.compact(plan.name)
    rows = load(plan.name, store.files)
    rows = rows[rows["trial_id"].isin({trial.id for trial in plan.trials})]
    print(findings.write(store.files, plan.name, plan.sweep, plan.preset, rows))
    counts = rows["status"].value_counts().to_dict()
    print(f"\n{', '.join(f'{count} {status}' for status, count in counts.items())} of {len(plan.trials)} trials")
    print(f"rows: {store.files.shown}/trials/sweep={plan.name}   figures: {store.files.shown}/heatmaps/{plan.name}")
    return EXIT_OK if len(rows) == len(plan.trials) and "failed" not in counts else EXIT_FAILED


def _train(request: Request, plan: Plan, store: Store, columns: Columns) -> None:
    """Every trial that is left, over the cluster, into the store."""
    from sweeper.dispatch import Limits, dispatch  # here: it imports Ray, whose environment `connected` sets

    with connected(_address(request)) as scratch:
        place = slots(request.fraction)
        cuts = _cuts(request, plan, store, place)
        whole = cohorts.cut(plan.groups, cuts)
        left = cohorts.remaining(whole, plan.statuses)
        first = plan.sweep.heatmaps[0]
        progress = Progress(
            total=len(plan.trials),
            done=len(plan.trials) - plan.left,
            metric=first.metric.name,
            direction=first.metric.direction,
            label=f"{plan.name} ({plan.preset})",
            where=[name for name in (first.rows, first.columns, plan.sweep.breakdown) if name],
            cohorts=len(left),
        )
        with progress:
            if len(left) < len(whole) or plan.left < len(plan.trials):
                progress.seen(load(plan.name, store.files).to_dict("records"))
            dispatch(
                left,
                data=os.path.abspath(request.data),
                checkpoints=store.files,
                checkpoint=partial(checkpoint_path, plan.name),
                slots=place,
                limits=Limits(request.retries, request.save_every),
                scratch=scratch,
                listener=Collector(store, plan.name, columns, left, progress, code_version()),
            )


def _cuts(request: Request, plan: Plan, store: Store, place: Slots) -> list[Cut]:
    """How to cut each group: as asked, else as it was begun, else as is fastest by measurement; and keep it."""
    if request.cohort:
        cuts, measured = [Cut(request.cohort, request.stack or request.cohort)] * len(plan.groups), None
    elif recorded := recorded_cut(store.files, plan):
        return recorded
    else:
        from sweeper.dispatch import measure

        samples = [[trial.config for stream in group for trial in stream][:MEASURED] for group in plan.groups]
        measured = measure(samples, os.path.abspath(request.data), place)
        cuts = [
            cohorts.choose(found, group, steps, place.count, place.memory)
            for found, group, steps in zip(measured, plan.groups, plan.steps, strict=True)
        ]
    record_cut(store.files, plan, cuts, measured and [[asdict(one) for one in found] for found in measured])
    return cuts


def _address(request: Request) -> str | None:
    """Where to run: as asked, else where Ray's own variable says (inside a Ray job), else here."""
    return request.address or os.environ.get("RAY_ADDRESS")


def _say_how_to_go_on(plan: Plan, store: Store, verb: str) -> None:
    statuses = store.statuses(plan.name)
    done = sum(statuses.get(trial.id, "failed") != "failed" for trial in plan.trials)
    print(f"{verb}: {done} of {len(plan.trials)} trials are in {store.files.shown}; the same command continues")


@contextlib.contextmanager
def _stopping_on_sigterm() -> Iterator[None]:
    """SIGTERM (a stopped Ray job, a shut-down machine) stops a sweep as Ctrl-C does."""

    def stop(*_: object) -> Never:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
    share = "a whole one" if request.fraction is None else f"{request.fraction:g} of one"
    plain = describe(plan, asked or recorded_cut(store.files, plan), f"one GPU or CPU core a cohort, {share}")
    if request.json:
        print(json.dumps(plain))
    else:
        for key, value in plain.items():
            print(f"{key.replace('_', ' ')}: {'measured when the run begins' if value is None else value}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
