"""Writes the page of a sweep while it runs and at its end. A page that cannot be written does not end a sweep."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Self

from sweeper.errors import error_text
from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.record.listener import CohortListener, Row
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.runtime import BackgroundThread
from sweeper.storage.files import Files
from sweeper.storage.layout import class_names_path, trial_names_path
from sweeper.storage.load import load_trial_names
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.rows import STUDY_COLUMNS

SECONDS_BETWEEN = 10.0
"""Shortest time, in seconds, from the end of one writing to the beginning of the next, and before the first."""
REST = 20.0
"""The same as a multiple of the time that the last writing took: writing takes at most 5 % of one core."""
LAST_WAIT = 15.0
"""Longest time, in seconds, that the end of a sweep waits for a page that is being written; if interrupted, none."""


class PageWriter(CohortListener):
    """Context manager that writes the page in a thread when rows have come, and not too often."""

    def __init__(
        self, plan: Plan, files: Files, print_line: Callable[[str], None], clock: Callable[[], float] | None = None
    ) -> None:
        self._plan, self._files, self._print_line = plan, files, print_line
        self._clock = clock or files.runtime.monotonic
        self._thread: BackgroundThread | None = None
        self._due_at = 0.0
        self._failed = False
        self._named = 0

    def __enter__(self) -> Self:
        self._due_at = self._clock() + SECONDS_BETWEEN
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        if self._thread is not None and exception is None:
            self._thread.join(LAST_WAIT)

    def started(self, cohort: Cohort) -> None:
        """Write what is to be shown, and what the plan's trials are, if there are new ones: those that train have no
        rows that say it."""
        trials = self._plan.trials
        if len(trials) != self._named and write_names(self._plan, self._files, self._say, figures=self._named == 0):
            self._named, self._failed = len(trials), False

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
        """Start to write the page, unless it is being written, or its writing was tried just before."""
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and self._clock() >= self._due_at:
            self._thread = self._files.runtime.begin("page", self._write)

    def _write(self) -> None:
        begun = self._clock()
        if write_page(self._plan, self._files, self._say) is not None:
            self._failed = False
        self._due_at = self._clock() + max(SECONDS_BETWEEN, REST * (self._clock() - begun))

    def _say(self, line: str) -> None:
        """Print why something is not written, once until a writing succeeds."""
        if not self._failed:
            self._failed = True
            self._print_line(line)


def write_page(plan: Plan, files: Files, print_line: Callable[[str], None]) -> str | None:
    """Write the page. Returns its path in the store; prints why and returns None if that is not possible."""
    try:
        from sweeper.report.page import publish  # here: it imports pandas and Matplotlib

        files = files.with_retries(NO_RETRIES)
        _write_what_is_shown(plan, files)
        return publish.write(files, plan.name)
    except Exception as error:  # whatever a chart library or a disk may raise: the rows are safe
        _print_failure(plan, error, print_line)
        return None


def write_claims(plan: Plan, files: Files, print_line: Callable[[str], None]) -> str | None:
    """Judge the claims of the plan's preset by the rows of its request, and write their table and the page of all
    claims. Returns how many have each verdict; prints why and returns None if that is not possible."""
    try:
        from sweeper.claims import hook  # here: a run without claims does not need it
        from sweeper.report.page import publish  # here: it imports pandas and Matplotlib

        files = files.with_retries(NO_RETRIES)
        counts = hook.judge_run(files, plan.sweep, plan.preset, plan.changes.text)
        page = publish.write_claims(files)
        return counts + (f": {files.display_uri_of(page)}" if page else "")
    except Exception as error:  # as for the page
        print_line(f"the claims of {plan.name} are not judged: {error_text(error)}")
        return None


def write_names(plan: Plan, files: Files, print_line: Callable[[str], None], *, figures: bool) -> bool:
    """Write what identifies each trial to a reader, beside that of trials of other requests, and the plan's `figures`.
    Prints why if that is not possible."""
    columns = ("preset", "changes", *(name for name in plan.identifying_columns if name not in STUDY_COLUMNS))
    of_trials = {trial.id: {**trial.config, **trial.facts} for trial in plan.trials}
    named = {trial: {name: row[name] for name in columns if name in row} for trial, row in of_trials.items()}
    files = files.with_retries(NO_RETRIES)
    try:
        if figures:
            _write_what_is_shown(plan, files)
        known = load_trial_names(files, plan.name)
        files.write(trial_names_path(plan.name), json.dumps({**known, **named}, separators=(",", ":")).encode())
    except Exception as error:
        _print_failure(plan, error, print_line)
        return False
    return True


def _write_what_is_shown(plan: Plan, files: Files) -> None:
    """Write the figures of the plan's preset, and the names of the classes of the user's own images."""
    from trainables.data.datasets.dataset import listed  # here: it imports torch

    write_figures(files, plan.name, figures_of(plan.sweep, plan.preset))
    for digest in {str(trial.config.get("image_digest") or "") for trial in plan.trials}:
        if listing := listed(digest):
            files.write(class_names_path(plan.name, digest), json.dumps(listing.classes).encode())


def _print_failure(plan: Plan, error: Exception, print_line: Callable[[str], None]) -> None:
    print_line(f"the page of {plan.name} is not written: {error_text(error)}")
