"""The command line, and the one place where all stages meet: a sweep's name in, Parquet out."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sweeper import findings, spec
from sweeper.cluster import ClusterError, NodeLost, check_address, connected, node_lives
from sweeper.collect import Collector
from sweeper.command import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_WRONG,
    Request,
    error_line,
    parse,
)
from sweeper.files import StoreError
from sweeper.lifeline import Lifeline
from sweeper.option_values import LARGEST_AMOUNT
from sweeper.patience import BRIEF, LONG, ONCE, Patience
from sweeper.plan import GridPlan, Plan, SearchPlan
from sweeper.progress import Progress
from sweeper.schema import Columns
from sweeper.spec import SpecError
from sweeper.stopping import Stopping
from sweeper.store import Store, checkpoint_path
from sweeper.version import code_version

COMPACT_ABOVE = 256
"""A sweep that ends with more files than this is compacted."""
PATIENCE = "SWEEPER_PATIENCE"
"""The environment variable for how many seconds a store is waited for that has stopped working."""
LEAST_FREE = 64 << 20
"""Bytes that a local store's disk must have left before a run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sweep; returns the exit status (see `command.EXITS`)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a folder's name may not fit a terminal's encoding
    try:
        request = parse(sys.argv[1:] if arguments is None else arguments)
        if request.list:
            return _list()
        from sweeper import preview  # here: they import torch, which takes seconds
        from sweeper.prepare import prepare

        request = replace(request, data=os.path.abspath(request.data))  # before anything leaves this folder
        store = Store(request.store)
        plan, columns = prepare(request, store)
        if request.plan:
            print(preview.show(request, plan, store, _address(request)))
            return EXIT_OK
        check_address(_address(request))
        _check_room(store)
        store = Store(store.files.patient(_patience(), _say))
        if request.fresh:
            store.set_aside(plan.name)
        columns = store.prepare(plan.name, columns)
        stopping = Stopping()
        with stopping.on_signals():
            return _run(request, plan, store, columns, stopping)
    except (SpecError, ClusterError, StoreError) as error:
        print(error_line(error), file=sys.stderr)
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
    except (StoreError, NodeLost) as error:
        print(error_line(error), file=sys.stderr)
        _say_how_to_go_on(plan, store)
        return EXIT_FAILED


def _finish(plan: Plan, store: Store, columns: Columns) -> int:
    """Figures and tables from all rows of the plan; returns the exit status."""
    store.prepare(plan.name, columns)  # settles what another sweep has written into this store meanwhile
    if len(store.files.list(f"trials/sweep={plan.name}")) > COMPACT_ABOVE:
        store.compact(plan.name)
    rows = findings.rows_of(store.files, plan.name, plan.ids)
    comparable = rows[rows["status"] != "pruned"]  # whose metrics are of an earlier epoch
    texts = [findings.write(store.files, plan.name, plan.sweep, plan.preset, comparable)]
    if isinstance(plan, SearchPlan):
        from sweeper import studies  # here: it imports Optuna

        texts.append(studies.show(plan, store.files))
    print("\n\n".join(filter(None, texts)))
    counts = rows["status"].value_counts().to_dict()
    print(f"\n{', '.join(f'{count} {status}' for status, count in counts.items())} of {plan.total} trials")
    print(f"rows: {store.files.shown_at(f'trials/sweep={plan.name}')}")
    for kind, shown in {**plan.sweep.views, "studies": isinstance(plan, SearchPlan)}.items():
        if shown:
            print(f"{kind}: {store.files.shown_at(f'{kind}/{plan.name}')}")
    return EXIT_OK if len(rows) == plan.total and "failed" not in counts else EXIT_FAILED


def _train(request: Request, plan: Plan, store: Store, columns: Columns, stopping: Stopping) -> None:
    """Every trial that is left, over the cluster, into the store."""
    address = _address(request)
    print(f"{plan.left} of {plan.total} trials to run; {'starting' if address is None else 'joining'} Ray", flush=True)
    with (
        Lifeline(node_lives) as line,
        connected(address) as scratch,
        stopping.on_signals(),  # again: Ray has its own handlers
        contextlib.closing(line),
    ):
        from sweeper.dispatch import Limits, dispatch  # here: they import Ray, whose environment `connected` sets
        from sweeper.feeding import legs
        from sweeper.probing import site

        parts = legs(request, plan, store, site(address, request.data, stopping), address)
        progress = Progress(
            total=plan.total,
            done=plan.total - plan.left,
            metric=plan.headline.name,
            direction=plan.headline.better,
            label=f"{plan.name} ({plan.preset})",
            where=list(dict.fromkeys(plan.where)),
            cohorts=sum(len(part.feed.cohorts) for part in parts) if isinstance(plan, GridPlan) else None,
        )
        with progress:
            if plan.left < plan.total:
                before = findings.rows_of(store.files, plan.name, plan.ids)
                shown = ("trial_id", "status", plan.headline.name, *plan.where)
                progress.seen(before[[name for name in before if name in shown]].to_dict("records"))
            for part in parts:
                stopping.check()
                dispatch(
                    part.feed,
                    data=request.data,
                    checkpoints=store.files.patient(BRIEF),
                    checkpoint=partial(checkpoint_path, plan.name),
                    slots=part.slots,
                    limits=Limits(request.retries, request.save_every, request.patience),
                    scratch=scratch,
                    stopping=stopping,
                    listener=Collector(store, plan.name, columns, part.feed, progress, code_version()),
                    judges=part.judges,
                )


def _check_room(store: Store) -> None:
    """StoreError where the disk is as good as full: better said before training than after."""
    free = store.files.free_bytes()
    if free is not None and free < LEAST_FREE:
        raise StoreError(
            f"store {store.files.shown} must have {LEAST_FREE >> 20} MiB free, but has {free >> 20}; make room, or use "
            "another --store"
        )


def _address(request: Request) -> str | None:
    """Where to run: as asked, else where Ray's own variable says (inside a Ray job), else here."""
    return request.address or os.environ.get("RAY_ADDRESS")


def _say_how_to_go_on(plan: Plan, store: Store) -> None:
    try:
        statuses = Store(store.files.patient(ONCE)).statuses(plan.name)
    except StoreError:
        print(f"stopped: what is in {store.files.shown} cannot be read now; the same command continues")
        return
    done = sum(statuses.get(trial, "failed") != "failed" for trial in plan.ids)
    print(f"stopped: {done} of {plan.total} trials are in {store.files.shown}; the same command continues")


def _patience() -> Patience:
    """SpecError where the variable is no number of seconds."""
    said = os.environ.get(PATIENCE)
    try:
        seconds = LONG.seconds if said is None else float(said)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST_AMOUNT:
        raise SpecError(f"{PATIENCE} must be seconds, from 0 to {LARGEST_AMOUNT:g}, but got {PATIENCE}={said}")
    return Patience(seconds)


def _say(line: str) -> None:
    """Above the live view, which catches what is printed."""
    print(line, flush=True)


def _list() -> int:
    for name in spec.names():
        sweep = spec.find(name)
        sizes = ", ".join(f"{preset} ({space.count} trials)" for preset, space in sweep.presets.items())
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
