"""One run of a request: planned, begun and executed. The only module that connects all stages."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from sweeper.commands import on_end
from sweeper.commands.command_line import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_WRONG, store_retries
from sweeper.commands.conclusion import finish, finish_so_far, print_how_to_continue
from sweeper.commands.other_drivers import OtherDriver, share, wait_for_others
from sweeper.commands.restore import CheckpointPath, archive, preview_archive
from sweeper.definition import SpecError, registry, user_code
from sweeper.errors import NodeLost, StoreError, SweeperError, error_line, error_text, first_line
from sweeper.execution.budget import Budget, BudgetSpent
from sweeper.execution.session import check_address, connected
from sweeper.execution.signals import StopSignal
from sweeper.execution.startup import begin_collection, import_all, imported_meanwhile
from sweeper.execution.watchdog import NodeHealth, NodeWatchdog
from sweeper.planning.keep import epoch_ranking
from sweeper.planning.plan import Plan
from sweeper.printing import LOGGER, print, printable
from sweeper.record.events import EventWriter, begun, ended, json_line
from sweeper.record.listener import CohortListener
from sweeper.record.models import KeptModels, keep_best
from sweeper.record.page import PageWriter, write_names
from sweeper.record.progress import SweepProgress
from sweeper.record.run_log import RunLog
from sweeper.record.tracker import Tracker
from sweeper.record.trackers import RunTrials, connections, tracked
from sweeper.request import SHARED_STORE, Request
from sweeper.runtime import user_name
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX, checkpoint_path, trials_folder
from sweeper.storage.lease import Drivers, Lease
from sweeper.storage.load import load_request
from sweeper.storage.local_disk import Entry
from sweeper.storage.requests import write_request
from sweeper.storage.retry import SHORT_RETRIES
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store, check_free_space, check_no_folder_of_a_store, check_writable
from sweeper.storage.worker_files import LogStorage, ModelStorage
from sweeper.version import code_version

if TYPE_CHECKING:
    from sweeper.claims.decide import Decision
    from sweeper.execution.backend import Backend

Connections = Mapping[str, Callable[[], Tracker]]
"""Name of a tracker -> a function that connects to it."""
Backends = Callable[[Request, StopSignal, Callable[[], object]], AbstractContextManager["Backend"]]
"""Opens what trains the cohorts of a request, as `backend_of` does."""
Conclude = Callable[[Plan, Store, Columns, Request], int]
"""What `finish` is."""
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable of the commands that Ray's job server starts."""
TRAINING_MODULES = ("sweeper.execution.ray_backend", "sweeper.execution.loop", "sweeper.record.rows")
"""Imported while Ray starts."""
REPORT_MODULES = ("sweeper.report.publish", "sweeper.report.page.publish")
"""Imported while the first workers start."""


@dataclass
class SweepRun:
    """A request that can run, and its plan. `begin` makes it a run, which `run` or `execute` ends."""

    request: Request
    plan: Plan
    """All trials so far: with `--decide` each round has a plan of its own."""
    columns: Columns
    store: Store
    trackers: Connections = field(default_factory=dict)
    backends: Backends | None = None
    """By default `backend_of`."""
    conclude: Conclude = finish
    """Shows the results at the end, and returns the exit status."""
    row_files: Mapping[str, Entry] = field(default_factory=dict)
    """The files of rows that were there before the plan was made."""
    stopping: StopSignal = field(init=False)
    """This and what follows are set by `begin`."""
    checkpoint_path: CheckpointPath = field(init=False)
    lease: Lease = field(init=False)
    budget: Budget = field(init=False)
    events: EventWriter | None = field(init=False, default=None)
    """What writes the events of the run; None if nobody reads them."""
    log: RunLog = field(init=False)
    """Set by `run`."""

    @classmethod
    def planned(
        cls,
        request: Request,
        files: Files | None = None,
        backends: Backends | None = None,
        conclude: Conclude = finish,
    ) -> Self:
        """Plan a request and check all that needs no Ray, for the command line and for Python alike. Prints what the
        user should know of a plan that can run. Raises SpecError or StoreError.

        `files` are those of the store, by default in the request's folder."""
        sweep = request.find_sweep()
        sweep.preset(request.preset)  # a wrong name is refused at once
        request = replace(request, data=os.path.abspath(request.data))  # workers have other working directories
        store = Store(files or request.store)
        check_no_folder_of_a_store(store.files)
        row_files = _row_files(store.files, sweep.name or request.name)
        plan, columns = prepared(request, store)
        if request.debug and any(trial.config.get("workers", 1) != 1 for trial in plan.trials):
            raise SpecError("--debug trains in one process, so workers=1 must hold; add --set workers=1")
        decision_of(request, plan, store)  # raises SpecError if there is nothing to decide
        trackers = connections(request.track, plan.name, store.files)
        for note in plan.notes:
            print(printable(f"note: {note}"), file=sys.stderr)
        return cls(request, plan, columns, store, trackers, backends, conclude, row_files)

    def outline(self) -> dict[str, Any]:
        """What would run, in plain values. Writes nothing."""
        from sweeper.commands import preview  # imported here because torch takes seconds to import

        archived = preview_archive(self.plan, self.store, self.columns) if self.request.fresh else None
        deciding = (
            {"decide": decision.outline()} if (decision := decision_of(self.request, self.plan, self.store)) else {}
        )
        return preview.outline(self.request, self.plan, self.store, address_of(self.request), archived) | deciding

    def preview(self) -> str:
        """What would run, as text or with `--json` as JSON."""
        from sweeper.commands import preview

        outline = self.outline()
        return json.dumps(outline) if self.request.json else preview.text(outline, self.request.node_price)

    def print_damaged(self) -> None:
        """Print which files of the store a run would move away."""
        from sweeper.commands import preview

        preview.print_damaged(self.store)

    def begin(self, stopping: StopSignal) -> Self:
        """Check what a run depends on, open this driver's lease, which the run closes, and prepare the store. Returns
        this object, or one that was planned after a wait for another driver. Raises an error if the plan cannot run."""
        from sweeper.planning.prepare import prepare  # here because torch takes seconds to import

        request, plan, columns = self.request, self.plan, self.columns
        on_end.check(request.on_end)
        check_address(address_of(request))
        if IN_A_JOB in os.environ and not request.names_shared_store:
            note = f"note: {SHARED_STORE}, but got {request.store!r}, which is lost with the cluster"
            print(printable(note), file=sys.stderr)
        check_free_space(self.store.files)
        if request.wait and wait_for_others(Drivers(self.store.files, plan.name), _print_line, stopping.check):
            return self._planned_again().begin(stopping)
        damaged, store = self.store.damaged, Store(self.store.files.with_retries(store_retries(), _print_line))
        check_writable(store.files)
        store.files.pin_folder()
        lease = Lease(store.files, plan.name, plan.request, alone=request.fresh)
        lease.open()
        try:
            share(lease, plan, request.fresh, _print_line, stopping.check)
            row_files = _row_files(store.files, plan.name)
            # Rows may have come or gone since. Those that a grid lacks now are trained; its queue leaves new ones out.
            if row_files != self.row_files if plan.study_runs else not self.row_files.keys() <= row_files.keys():
                plan, columns = prepare(request, self.store)
            store.quarantine(damaged)
            path: CheckpointPath = partial(checkpoint_path, plan.name)
            if request.fresh:
                path = archive(plan, store, columns, request.name)
                lease.admit_others()
            columns = store.prepare(plan.name, columns)
            write_request(store.files, plan.name, plan.request_rows)
        except BaseException as error:
            lease.close()
            if isinstance(error, OtherDriver) and request.wait:  # two that waited begin at the same moment
                return self._planned_again().begin(stopping)
            raise
        self.plan, self.columns, self.store = plan, columns, store
        self.stopping, self.checkpoint_path, self.lease = stopping, path, lease
        self.budget = Budget(request.hours, request.cost, store.files.runtime.monotonic)
        return self

    def _planned_again(self) -> Self:
        """The request, planned by what is in the store now."""
        return self.planned(self.request, self.store.files, self.backends, self.conclude)

    def execute(self, command: str = "", write: Callable[[str], None] | None = None) -> int:
        """As `run`, but print an error and return the exit status, for the `command` line that continues. `write` is
        called with each event as a line of JSON."""
        begin_collection()
        self.events = EventWriter(write, self.store.files.runtime.now) if write else None
        try:
            return self.run(lambda error: print(error_line(error), file=sys.stderr), command)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except (StoreError, NodeLost):
            return EXIT_FAILED

    def run(self, report: Callable[[Exception], None] = lambda error: None, command: str = "") -> int:
        """Train what is left of the plan and show the results. Returns the exit status. If interrupted, by a signal or
        by an error, which is given to `report`, print how to continue, and raise it. If stopped by `--hours` or
        `--cost`, show the results so far and that the `command` continues."""
        began, self.log = self.store.files.runtime.monotonic(), RunLog(self.plan, self.store.files)
        if self.events:
            self.events.tell(begun(self.plan, self.store.files, user_name(), code_version(), self.log.address))
        try:
            with contextlib.closing(self.lease), self.log:
                status, reason = self._run(report, command)
                LOGGER.info(f"the run ends with status {status}{f': {reason}' if reason else ''}")
        except BaseException as error:
            self._tell_end(began, *_end_by(error))
            raise
        self._tell_end(began, status, reason)
        return status

    def _tell_end(self, began: float, status: int, reason: str) -> None:
        """Tell whoever asked for it how the run has ended, which `began` at this reading of the clock."""
        if not (self.events or self.request.on_end):
            return
        files = self.store.files
        seconds = files.runtime.monotonic() - began
        event = ended(self.plan, files, user_name(), status, reason or None, seconds, self.log.address)
        try:
            if self.events:
                self.events.tell(event)
        finally:  # also where nobody reads the events any more
            if self.request.on_end:
                on_end.run(self.request.on_end, json_line(event, files.runtime.now()) + "\n")

    def _run(self, report: Callable[[Exception], None], command: str) -> tuple[int, str]:
        """As `run`. Returns also what stopped the run early; empty if nothing did."""
        spent, decision = "", decision_of(self.request, self.plan, self.store)
        try:
            fresh, longest_wait = self.request.fresh, self.budget.longest_wait
            if self.trackers:
                write_names(self.plan, self.store.files, _print_line, figures=False)
            with tracked(
                self.trackers, self.plan, self.store.files, _print_line, fresh=fresh, longest_wait=longest_wait
            ) as trials:
                try:
                    self._train_all(trials, decision)
                except BudgetSpent as reached:
                    spent = str(reached)
                if not spent or self.store.files.list(trials_folder(self.plan.name)):
                    status = self._finish()
                else:
                    finish_so_far(self.plan, self.store, self.request)
                if decision and (decision.analyses.taken or not spent):
                    print("\n".join(decision.summary()))
                if spent:
                    print_how_to_continue(self.plan, self.store, fresh, spent, command)
                return (EXIT_INTERRUPTED, spent) if spent else (status, "")
        except (KeyboardInterrupt, StoreError, NodeLost) as error:
            if isinstance(error, Exception):
                report(error)
            print_how_to_continue(self.plan, self.store, self.request.fresh)
            if not isinstance(error, StoreError):
                finish_so_far(self.plan, self.store, self.request)  # last: nothing is lost if this is cut off
            raise

    @property
    def _place(self) -> str:
        """Where it trains, for its first line."""
        if self.request.debug or self.backends:
            return "training in this process"
        return "starting Ray" if address_of(self.request) is None else "joining Ray"

    def _finish(self) -> int:
        return self.conclude(self.plan, self.store, self.columns, self.request)

    def _train_all(self, tracked_trials: RunTrials, decision: "Decision | None") -> None:
        """Train the plan and, with `--decide`, the rounds that follow, on one backend, started where it is needed."""
        with contextlib.ExitStack() as running:

            @functools.cache
            def backend() -> "Backend":
                def before_exit() -> None:
                    print_how_to_continue(self.plan, self.store, self.request.fresh)

                return running.enter_context((self.backends or backend_of)(self.request, self.stopping, before_exit))

            if self.plan.trials_left:
                left = f"{self.plan.trials_left} of {self.plan.total} trials to run"
                _print_line(f"{self.plan.name} ({self.plan.request}): {left}; {self._place}")
                self._train(tracked_trials, backend())
            while decision and (plan := decision.next()):
                self.plan = plan
                write_request(self.store.files, plan.name, plan.request_rows)
                self._train(tracked_trials, backend())

    def _train(self, tracked_trials: RunTrials, backend: "Backend") -> None:
        request, plan, store = self.request, self.plan, self.store
        # Imported here because `connected` sets Ray's environment.
        from sweeper.execution.loop import CohortFiles, Limits, dispatch
        from sweeper.execution.stages import stages
        from sweeper.record.rows import RowFormat, listeners

        plan_stages, kept = stages(request, plan, store, backend, self.lease), request.keep.trials
        models = store.files.with_retries(store_retries())
        files = CohortFiles(
            request.data,
            store.files.with_retries(SHORT_RETRIES),
            self.checkpoint_path,
            None if kept == "none" else ModelStorage(models, plan.name, kept, epoch_ranking(plan, request.keep)),
            LogStorage(store.files.with_retries(SHORT_RETRIES), plan.name),
            registry.folder_of(plan.name),
        )

        def say(line: str) -> None:
            LOGGER.warning(line)
            progress.print_line(line)

        total_cohorts = sum(len(stage.source.cohorts) for stage in plan_stages)
        with (
            SweepProgress(
                plan,
                None if plan.study_runs else total_cohorts,
                live=not (request.debug or request.json),
                clock=store.files.runtime.monotonic,
            ) as progress,
            PageWriter(plan, store.files, say) as page,
            imported_meanwhile(REPORT_MODULES),
        ):
            of_request = load_request(store.files, plan.name, plan.request_rows)
            followers: list[CohortListener] = [self.log, self.budget, tracked_trials, page, progress]
            if self.events:
                followers.append(self.events)
            if kept == "best":
                keep_best(store.files, plan, of_request)
                followers = [KeptModels(store.files, plan), *followers]
            if plan.trials_left < plan.total:
                ranked = progress.ranked
                progress.rank(of_request[[name for name in of_request if name in ranked]].to_dict("records"))
            row_format = RowFormat(self.columns, code_version(), request.node_price, user_name())
            for stage in plan_stages:
                self.stopping.check()
                stage.begin(self.budget)
                dispatch(
                    stage,
                    backend,
                    files,
                    Limits(
                        0 if request.debug else request.retries, request.save_every, request.step_timeout, self.budget
                    ),
                    listeners(store, plan.name, row_format, stage.source, followers),
                    self.stopping,
                )


def _end_by(error: BaseException) -> tuple[int, str]:
    """The exit status of a run that an error ends, and why in one line."""
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED, "interrupted"
    if isinstance(error, SweeperError):
        return EXIT_FAILED if isinstance(error, StoreError | NodeLost) else EXIT_WRONG, error_text(error)
    return EXIT_FAILED, f"{type(error).__name__}: {first_line(error, '')}"


def _row_files(files: Files, sweep: str) -> Mapping[str, Entry]:
    return files.list_versions(trials_folder(sweep), SUFFIX)


def prepared(request: Request, store: Store) -> tuple[Plan, Columns]:
    """As `prepare`; with `--debug` a debugger opens where the user's own code fails."""
    from sweeper.planning.prepare import prepare  # imported here because torch takes seconds to import

    try:
        return prepare(request, store)
    except SpecError as error:
        if request.debug:
            from sweeper.execution.local_backend import show_cause  # as above

            show_cause(error)
        raise


def decision_of(request: Request, plan: Plan, store: Store) -> "Decision | None":
    """The claims that a request asks to decide; None without `--decide`. Raises SpecError if there are none."""
    if request.decide is None:
        return None
    from sweeper.claims import hook  # here: a run without claims does not need it

    return hook.decision(request, plan, store, _print_line)


@contextlib.contextmanager
def backend_of(
    request: Request, stopping: StopSignal, before_exit: Callable[[], object] = lambda: None
) -> Iterator["Backend"]:
    """Context with what trains the cohorts of a request: this process with `--debug`, else a Ray cluster.

    `before_exit` is called if the process must exit because Ray's processes have died.
    """
    address = address_of(request)
    if request.debug:
        from sweeper.execution.local_backend import LocalBackend

        yield LocalBackend(request.data, debug=True, devices=request.devices)
        return
    if IN_A_JOB in os.environ:  # another node that shares the temporary folder may unpack the working folder anew
        import_all(user_code.PACKAGES)
    with (
        NodeWatchdog(NodeHealth(), before_exit) as watchdog,
        connected(address, TRAINING_MODULES) as scratch,
        contextlib.closing(watchdog),
    ):
        from sweeper.execution.ray_backend import RayBackend  # here because `connected` sets Ray's environment

        yield RayBackend(address, request.data, scratch, stopping, _print_line, request.devices)


def address_of(request: Request) -> str | None:
    """Ray cluster to use: `--address`, else `RAY_ADDRESS` (set inside a Ray job), else None for a local one."""
    return request.address or os.environ.get("RAY_ADDRESS")


def _print_line(line: str) -> None:
    """Print a line; it appears above the live display, which redirects standard output."""
    print(printable(line), flush=True)
