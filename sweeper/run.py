"""The command line, and the one place where all stages meet: a sweep's name in, Parquet out."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sweeper import findings, replaced, spec
from sweeper.cluster import ClusterError, NodeLost, check_address, connected, node_lives
from sweeper.collect import Collector
from sweeper.command import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, Request, parse
from sweeper.files import StoreError
from sweeper.lifeline import Lifeline
from sweeper.patience import BRIEF, LONG, ONCE, Patience
from sweeper.plan import GridPlan, Plan, SearchPlan, records_of
from sweeper.progress import Progress
from sweeper.schema import Columns
from sweeper.spec import SpecError
from sweeper.stopping import Stopping
from sweeper.store import Store, checkpoint_path
from sweeper.version import code_version

Checkpoint = Callable[[str], str]
"""A cohort's id -> where in the store its checkpoint is."""

COMPACT_ABOVE = 256
"""A sweep that ends with more files than this is compacted."""
PATIENCE = "SWEEPER_PATIENCE"
"""The environment variable for how many seconds a store is waited for that has stopped working."""
LEAST_FREE = 64 << 20
"""Bytes that a local store's disk must have left before a run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sweep; returns the exit status (see `command.EXITS`)."""
    try:
        request = parse(sys.argv[1:] if arguments is None else arguments)
        if request.list:
            lines, errors = spec.listing()
            print("\n".join(lines))
            print("".join(f"error: {error}\n" for error in errors), end="", file=sys.stderr)
            return EXIT_OK
        if request.describe is not None:
            from sweeper.describe import describe  # here: it imports torch, which takes seconds

            print(describe(request.describe))
            return EXIT_OK
        if request.restore is not None:
            return _restore(request, request.restore)
        from sweeper import preview  # here: they import torch, which takes seconds
        from sweeper.prepare import prepare

        request = replace(request, data=os.path.abspath(request.data))  # before anything leaves this folder
        store = Store(request.store)
        plan, columns = prepare(request, store)
        if request.plan:
            again = replaced.survey(store.files, plan.name, _chosen(plan, store), columns) if request.fresh else None
            print(preview.show(request, plan, store, _address(request), again))
            return EXIT_OK
        check_address(_address(request))
        _check_room(store)
        store = Store(store.files.patient(_patience(), _say))
        checkpoint = _set_aside(plan, store, columns) if request.fresh else partial(checkpoint_path, plan.name)
        columns = store.prepare(plan.name, columns)
        stopping = Stopping()
        with stopping.on_signals():
            return _run(request, plan, store, columns, stopping, checkpoint)
    except (SpecError, ClusterError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output (`| head`) has gone; so do we, and what is in the store stays
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(
    request: Request, plan: Plan, store: Store, columns: Columns, stopping: Stopping, checkpoint: Checkpoint
) -> int:
    """Train what is left of the plan and show what all its rows say; where that is cut short, say how to go on."""
    try:
        if plan.left:
            _train(request, plan, store, columns, stopping, checkpoint)
        return _finish(plan, store, columns)
    except KeyboardInterrupt:
        _say_how_to_go_on(plan, store)
        return EXIT_INTERRUPTED
    except (StoreError, NodeLost) as error:
        print(f"error: {error}", file=sys.stderr)
        _say_how_to_go_on(plan, store)
        return EXIT_FAILED


def _finish(plan: Plan, store: Store, columns: Columns) -> int:
    """Figures and tables from all rows of the plan; returns the exit status."""
    store.prepare(plan.name, columns)  # settles what another sweep has written into this store meanwhile
    if len(store.files.list(f"trials/sweep={plan.name}")) > COMPACT_ABOVE:
        store.compact(plan.name)
    rows = findings.rows_of(store.files, plan.name, plan.ids)
    comparable = rows[rows["status"] != "pruned"]  # whose metrics are of an earlier epoch
    texts = [findings.write(store.files, plan.name, plan.sweep, plan.preset, comparable, plan.views)]
    lost: list[str] = []
    if isinstance(plan, SearchPlan):
        from sweeper import studies  # here: it imports Optuna

        texts.append(studies.show(plan, store.files))
        lost = studies.all_diverged(plan)
    print("\n\n".join(filter(None, texts)))
    counts = rows["status"].value_counts().to_dict()
    print(f"\n{', '.join(f'{count} {status}' for status, count in counts.items())} of {plan.total} trials")
    print(f"rows: {store.files.shown}/trials/sweep={plan.name}")
    for kind, shown in {**plan.sweep.views, "studies": isinstance(plan, SearchPlan)}.items():
        if shown:
            print(f"{kind}: {store.files.shown}/{kind}/{plan.views}")
    if lost:
        print(f"error: all trials of study {', '.join(lost)} diverged: nothing was found", file=sys.stderr)
    return EXIT_OK if len(rows) == plan.total and "failed" not in counts and not lost else EXIT_FAILED


def _train(
    request: Request, plan: Plan, store: Store, columns: Columns, stopping: Stopping, checkpoint: Checkpoint
) -> None:
    """Every trial that is left, over the cluster, into the store; `checkpoint`: cohort -> the path of its own."""
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
            before=plan.counts,
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
                    checkpoint=checkpoint,
                    slots=part.slots,
                    limits=Limits(request.retries, request.save_every, request.patience),
                    scratch=scratch,
                    stopping=stopping,
                    listener=Collector(store, plan.name, columns, part.feed, progress, code_version()),
                    judges=part.judges,
                )


def _chosen(plan: Plan, store: Store) -> replaced.Chosen:
    """What a fresh run of the plan trains again."""
    views = [f"{kind}/{plan.views}" for kind in (*plan.sweep.views, "studies")]
    if isinstance(plan, GridPlan):
        return replaced.Chosen(plan.ids, paths=[*records_of(store.files, plan), *views])
    assert isinstance(plan, SearchPlan)
    studies = [course.id for course in plan.waves.courses]
    return replaced.Chosen(plan.ids, studies, [*(f"studies/{plan.name}/{study}.json" for study in studies), *views])


def _set_aside(plan: Plan, store: Store, columns: Columns) -> Checkpoint:
    """Make way for what a fresh run trains again, and say what was moved; returns where its cohorts keep their
    checkpoints."""
    moved = replaced.set_aside(store.files, plan.name, _chosen(plan, store), columns)
    if moved:
        time = moved.folder.rsplit("/", 1)[1]
        print(
            f"set aside: {moved.text}, in {store.files.shown}/{moved.folder}; to bring them back: "
            f"python -m sweeper.run {plan.name} --store {shlex.quote(store.files.shown)} --restore {time}",
            flush=True,
        )
    return replaced.fresh_checkpoints(store.files, plan.name, moved.folder if moved else None)


def _restore(request: Request, time: str) -> int:
    """Bring back what a fresh run has set aside."""
    store, name = Store(request.store), str(request.name)
    spec.find(name)
    store.files.check_writable()
    back = replaced.restore(store.files, name, time)
    print(f"brought back: {back.text}, into {store.files.shown}/trials/sweep={name}")
    return EXIT_OK


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
        return LONG if said is None else Patience(float(said))
    except ValueError:
        raise SpecError(f"{PATIENCE} must be seconds, but got {PATIENCE}={said}") from None


def _say(line: str) -> None:
    """Above the live view, which catches what is printed."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
