"""Command line of the sweeper, and the only module that connects all stages: from a sweep's name to Parquet files."""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sweeper.cli.arguments import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, error_line, parse
from sweeper.cli.conclusion import finish
from sweeper.cli.fresh import Checkpoint, archive, preview_archive, restore
from sweeper.cli.option_values import LARGEST_AMOUNT
from sweeper.cli.progress import Progress
from sweeper.cli.recorder import Recorder
from sweeper.errors import DAMAGED, ClusterError, NodeLost, StoreError
from sweeper.execution.connection import check_address, connected
from sweeper.execution.node_health import NodeHealth
from sweeper.execution.node_watchdog import NodeWatchdog
from sweeper.execution.stop_signal import StopSignal, ignore_signals
from sweeper.plan.plan import GridPlan, Plan
from sweeper.report import publish as findings
from sweeper.spec import SpecError, registry
from sweeper.spec.request import Request
from sweeper.storage.io.disk_checks import check_free_space
from sweeper.storage.io.retry import LONG_RETRIES, NO_RETRIES, SHORT_RETRIES, RetryPolicy
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store
from sweeper.version import code_version

PATIENCE = "SWEEPER_PATIENCE"
"""Environment variable: how many seconds to wait for a store that has stopped working."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status; see `sweeper.cli.arguments.EXITS`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a folder's name may not fit a terminal's encoding
    stopping = StopSignal()
    with stopping.on_signals():
        return _main(sys.argv[1:] if arguments is None else arguments, stopping)


def _main(arguments: Sequence[str], stopping: StopSignal) -> int:
    try:
        request = parse(arguments)
        if request.list:
            return _list()
        if request.restore is not None:
            return restore(request, request.restore)
        if request.describe is not None:
            from sweeper.cli.describe import describe  # imported here because torch takes seconds to import

            print(describe(request.describe))
            return EXIT_OK
        from sweeper.cli import preview  # imported here because torch takes seconds to import
        from sweeper.cli.prepare import prepare

        request = replace(
            request, data=os.path.abspath(request.data)
        )  # relative to this process's folder, not to a worker's
        store = Store(request.store)
        plan, columns = prepare(request, store)
        if request.plan:
            archived = preview_archive(plan, store, columns) if request.fresh else None
            print(preview.show(request, plan, store, _address(request), archived))
            _report_damaged(store)
            return EXIT_OK
        check_address(_address(request))
        check_free_space(store.files)
        damaged, store = store.damaged, Store(store.files.with_retries(_patience(), _say))
        store.quarantine(damaged)
        checkpoint = archive(plan, store, columns) if request.fresh else partial(checkpoint_path, plan.name)
        columns = store.prepare(plan.name, columns)
        return _run(request, plan, store, columns, stopping, checkpoint)
    except (SpecError, ClusterError, StoreError) as error:
        print(error_line(error), file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output (`| head`) has exited; the store keeps what it has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _run(
    request: Request, plan: Plan, store: Store, columns: Columns, stopping: StopSignal, checkpoint: Checkpoint
) -> int:
    """Train what is left of the plan and show the results. If interrupted, print how to continue."""
    try:
        if plan.trials_left:
            _train(request, plan, store, columns, stopping, checkpoint)
        return finish(plan, store, columns)
    except KeyboardInterrupt:
        _say_how_to_go_on(plan, store)
        return EXIT_INTERRUPTED
    except (StoreError, NodeLost) as error:
        print(error_line(error), file=sys.stderr)
        _say_how_to_go_on(plan, store)
        return EXIT_FAILED


def _train(
    request: Request, plan: Plan, store: Store, columns: Columns, stopping: StopSignal, checkpoint: Checkpoint
) -> None:
    """Train every trial that is left and write its row. `checkpoint` maps a cohort's id to its checkpoint's path."""
    address = _address(request)
    print(
        f"{plan.trials_left} of {plan.total} trials to run; {'starting' if address is None else 'joining'} Ray",
        flush=True,
    )
    with (
        NodeWatchdog(NodeHealth(), partial(_say_how_to_go_on, plan, store)) as watchdog,
        connected(address) as scratch,
        contextlib.closing(watchdog),
    ):
        from sweeper.execution.executor import (  # imported here because `connected` sets Ray's environment
            Limits,
            dispatch,
        )
        from sweeper.execution.remote_profiler import ray_cluster
        from sweeper.execution.stages import stages

        plan_stages = stages(request, plan, store, ray_cluster(address, request.data, stopping, _say))
        progress = Progress(
            total=plan.total,
            before=plan.counts,
            metric=plan.headline.name,
            direction=plan.headline.ranking_direction,
            label=f"{plan.name} ({plan.label})",
            where=list(dict.fromkeys(plan.identifying_columns)),
            cohorts=sum(len(stage.feed.cohorts) for stage in plan_stages) if isinstance(plan, GridPlan) else None,
        )
        with progress:
            if plan.trials_left < plan.total:
                rows = findings.rows_of(store.files, plan.name, plan.ids)
                shown = ("trial_id", "status", plan.headline.name, *plan.identifying_columns)
                progress.rank(rows[[name for name in rows if name in shown]].to_dict("records"))
            for stage in plan_stages:
                stopping.check()
                dispatch(
                    stage.feed,
                    data=request.data,
                    checkpoints=store.files.with_retries(SHORT_RETRIES),
                    checkpoint=checkpoint,
                    slots=stage.slots,
                    limits=Limits(request.retries, request.save_every, request.patience),
                    scratch=scratch,
                    stopping=stopping,
                    listener=Recorder(store, plan.name, columns, stage.feed, progress, code_version()),
                    judges=stage.judges,
                )


def _address(request: Request) -> str | None:
    """Ray cluster to use: `--address`, else `RAY_ADDRESS` (set inside a Ray job), else None for a local one."""
    return request.address or os.environ.get("RAY_ADDRESS")


def _say_how_to_go_on(plan: Plan, store: Store) -> None:
    """Print how many trials are done, and that the same command continues."""
    try:
        statuses = Store(store.files.with_retries(NO_RETRIES)).statuses(plan.name, check_history=False)
    except StoreError:
        print(f"stopped: what is in {store.files.display_uri} cannot be read now; the same command continues")
        return
    done = sum(statuses.get(trial_id, "failed") != "failed" for trial_id in plan.ids)
    print(f"stopped: {done} of {plan.total} trials are in {store.files.display_uri}; the same command continues")


def _patience() -> RetryPolicy:
    """How long to wait for a store that has stopped working. Raises SpecError if the variable is not a number."""
    text = os.environ.get(PATIENCE)
    try:
        seconds = LONG_RETRIES.seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST_AMOUNT:
        raise SpecError(
            f"{PATIENCE} must be a number of seconds from 0 to {LARGEST_AMOUNT:g}, but got {PATIENCE}={text}"
        )
    return RetryPolicy(seconds)


def _report_damaged(store: Store) -> None:
    """Print which files a run would move away. `--plan` itself writes nothing."""
    for path, reason in store.damaged.items():
        print(
            f"'{path}' is damaged: {reason}; a run moves it to '{DAMAGED}' and trains its trials again", file=sys.stderr
        )


def _say(line: str) -> None:
    """Print a line; it appears above the live view, which redirects standard output."""
    print(line, flush=True)


def _list() -> int:
    """Print all sweeps and their presets. A sweep that cannot be read gets one line on standard error."""
    for name in registry.names():
        try:
            sweep = registry.find(name)
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        sizes = ", ".join(f"{preset} ({space.count} trials)" for preset, space in sweep.presets.items())
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK


if __name__ == "__main__":
    ignore_signals()  # `main` handles signals while it runs; this is for the interpreter's exit after it
    sys.exit(main())
