"""The end of a run: figures and tables of all rows of the plan, a summary in the terminal, and the exit status."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK
from sweeper.definition.metric import OF_EVERY_ROW
from sweeper.errors import SpecError, StoreError
from sweeper.models import defaults_of, load_model, score_line
from sweeper.planning.keep import missing_models
from sweeper.planning.plan import Plan
from sweeper.printing import print, printable
from sweeper.record.models import keep_best
from sweeper.record.page import write_claims, write_page
from sweeper.request import Request
from sweeper.storage.checkpoints import remove_orphans
from sweeper.storage.layout import (
    FIGURES,
    end_text_path,
    figures_folder,
    history_folder,
    models_folder,
    trials_folder,
)
from sweeper.storage.load import load_request, metric_columns
from sweeper.storage.models import forget_written, trials_with_models
from sweeper.storage.requests import StoredRequest, selecting_line
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables.validation import is_own

if TYPE_CHECKING:
    import pandas as pd

    from sweeper.report.answers import Answer

MAX_LINES = 15
"""Most lines of the end of a run, errors aside."""
MAX_BEST = 2
"""Most data sets and studies whose best setting the end of a run names."""
COMPACT_ABOVE = 256
"""A sweep that ends with more files of rows than this is compacted."""


def finish(plan: Plan, store: Store, columns: Columns, request: Request) -> int:
    """Write figures and tables from all rows of the request and print a summary of at most `MAX_LINES` lines, with the
    tables and heatmaps as text only if they fit. Returns the exit status. If nothing was left to train, a line says so
    first, because figures and page of many trials take seconds."""
    if not plan.trials_left:
        print(printable(f"{plan.name} ({plan.request}): nothing left to train; writing figures and page"), flush=True)
    store.prepare(plan.name, columns)  # other runs may have written files of another schema meanwhile
    if len(store.files.list(trials_folder(plan.name))) > COMPACT_ABOVE:
        store.compact(plan.name)
    remove_orphans(store, plan.name)

    from sweeper.report import publish  # here: it imports Matplotlib

    of_request = load_request(store.files, plan.name, plan.request_rows)
    if plan.study_runs:
        of_request["study"] = of_request["trial_id"].map(plan.study_names).fillna(of_request["study"])
    stored = _stored(plan, of_request)
    text = publish.write(
        store.files,
        publish.Subject(plan.name, plan.sweep, plan.preset, plan.request_folder, plan.request),
        stored.comparable,
        hyperparameters=list(columns.hyperparameters),
        so_far=stored.so_far,
        spread=request.spread,
        alarm_rate=request.alarm_rate,
    )
    if request.keep.trials == "best":
        keep_best(store.files, plan, of_request)
    rows = of_request[of_request["trial_id"].isin(plan.ids)]
    texts, diverged = [text], list[str]()
    if plan.study_runs:
        from sweeper.search import journal as studies  # here: it imports Optuna

        texts.append(studies.write(plan, store.files))
        diverged = plan.diverged_studies
    counts = rows["status"].value_counts().to_dict()
    if figures := "\n\n".join(filter(None, texts)):
        store.files.write(end_text_path(plan.request_folder), f"{figures}\n".encode())
    lines = [f"{', '.join(f'{count} {status}' for status, count in counts.items())} of {plan.total} trials"]
    if len(rows) < len(of_request):
        lines.append(f"figures and tables show all {len(of_request)} trials of '{plan.request}' that have a row")
    lines += map(printable, (*_first_divergence(plan, rows), *_unreported(plan, columns, of_request)))
    lines.append(f"rows: {selecting_line(store.files, plan.name, plan.request_rows)}")
    if kinds := [kind for kind in FIGURES if store.files.list(figures_folder(kind, plan.request_folder))]:
        names = kinds[0] if len(kinds) == 1 else f"{{{','.join(kinds)}}}"
        lines.append(f"figures: {store.files.display_uri_of(figures_folder(names, plan.request_folder))}")
    has_claims = bool(plan.sweep.claims_of(plan.preset))
    judged = write_claims(plan, store.files, print) if has_claims else None
    if page := write_page(plan, store.files, print):
        lines.append(f"page: {store.files.display_uri_of(page)}")
    if models := set(trials_with_models(store.files, plan.name)).intersection(plan.ids):
        lines.append(f"models: {store.files.display_uri_of(models_folder(plan.name))} (of {len(models)} trials)")
    if diverged:
        print(
            f"error: all trials of {plan.name} diverged in study {', '.join(diverged)}, so there is no best trial",
            file=sys.stderr,
        )
    without_history = len(store.trials_without_history(plan.name).intersection(plan.ids))
    if without_history:
        lost = f"{without_history} trials have lost their history with a damaged file"
        lines.append(f"{lost}; the same command trains them again")
    forget_written(store.files, plan.name)
    missing = missing_models(store.files, plan, request.keep)
    if missing:
        again = "the same command trains these trials again and writes them"
        if missing.isdisjoint(trial.id for trial in plan.grid_trials):
            again = "sweeper.load_model trains such a trial again"
        print(f"error: {len(missing)} models could not be written, and are missing; {again}", file=sys.stderr)
    answer = best_of(plan, store, columns, of_request, request)
    best = answer.text.split("\n")
    shown = [*figures.split("\n"), ""] if figures else []
    room = MAX_LINES - len(lines) - len(best[:MAX_BEST]) - 1 - bool(judged)
    is_cut = len(shown) > room
    shown, room = ([], room - 1) if is_cut else (shown, room - len(shown))
    used = [*_use(plan, store, answer, of_request, request)][:room]
    more = _commands(plan, store, request, max(0, len(best) - MAX_BEST), is_cut, judged)
    print("\n".join([*shown, *lines, *used, *best[:MAX_BEST], *more]))
    trained = len(rows) == plan.total and "failed" not in counts and not without_history and not diverged
    return EXIT_OK if trained and not missing else EXIT_FAILED


def _stored(plan: Plan, rows: pd.DataFrame) -> StoredRequest:
    """The rows of the plan's request, of which the plan may be a part."""
    total = plan.total if plan.study_runs else len(plan.request_rows.trials)
    return StoredRequest(plan.request, plan.preset, rows, total)


def _commands(
    plan: Plan, store: Store, request: Request, others: int, is_cut: bool, judged: str | None
) -> Iterator[str]:
    """The commands that print more of the request: `others` best settings that are not named, its figures if the end
    `is_cut`, and its claims, of which `judged` says how many have each verdict."""
    words = [plan.name if request.sweep else request.name, "--preset", plan.preset]
    words += ["--changes", plan.changes.text] if plan.changes.text else []
    words += ["--store", store.files.display_uri] if request.store != Request.store else []
    about = printable(shlex.join(words))
    more = f"{others} more best setting{'s' * (others > 1)}, " if others else ""
    yield f"sweeper best {about}  # {more}how sure, the model, how to train it again"
    if is_cut:
        yield f"sweeper table {about} --format text  # tables, heatmaps and studies"
    if judged:
        yield f"sweeper claims {about}  # {judged}"


def best_of(plan: Plan, store: Store, columns: Columns, rows: pd.DataFrame, request: Request) -> Answer:
    """The best settings of a request by its rows."""
    from sweeper.report.answers import answer_of  # here: they import SciPy
    from sweeper.report.commands import Commands
    from sweeper.report.figures import figures_of

    figures = figures_of(plan.sweep, plan.preset)
    stored, keys = _stored(plan, rows), list(columns.hyperparameters)
    data = None if os.path.abspath(request.data) == os.path.abspath(Request.data) else request.data
    found = None if request.sweep else plan.sweep  # no command finds one that Python has as a value
    commands = Commands(request.name, plan.name, found, store.files.display_uri, data, defaults_of)
    return answer_of(store.files, plan.name, stored, figures, keys, commands, spread=request.spread)


def _use(plan: Plan, store: Store, answer: Answer, rows: pd.DataFrame, request: Request) -> Iterator[str]:
    """How the models of trials on one class are loaded, with their scores and thresholds."""
    on_one_class = "normal_class" in rows and rows["normal_class"].notna().any()
    for choice in answer.choices[:MAX_BEST]:
        if on_one_class and choice.model:
            yield _of_model(store, plan.name, choice.trials[0], request.alarm_rate)
        elif on_one_class and request.alarm_rate is not None:
            yield f"trial {choice.trials[0]} has no model in the store, so it has no threshold; --keep best keeps it"


def _of_model(store: Store, name: str, trial: str, alarm_rate: float | None) -> str:
    """How a model of trials on one class is loaded, with its score and its threshold."""
    rate = "" if alarm_rate is None else f", alarm_rate={alarm_rate:g}"
    try:
        about = score_line(load_model(store.files, trial, sweep=name, alarm_rate=alarm_rate))
    except (SpecError, StoreError) as error:  # it may have been kept before models had thresholds
        about = str(error)
    address = json.dumps(store.files.display_uri, ensure_ascii=False)
    return f'sweeper.load_model({address}, "{trial}"{rate}): {about}'


def _first_divergence(plan: Plan, rows: pd.DataFrame) -> Iterator[str]:
    """A line that says which trial of the plan is the first that diverged, and where; none if no trial did."""
    for index in (rows["status"] == "diverged").to_numpy().nonzero()[0][:1]:
        known = rows.iloc[index].dropna()
        settings = ", ".join(
            f"{name}={known[name]}" for name in dict.fromkeys(plan.identifying_columns) if name in known
        )
        named = f"trial {known['trial_id']}" + (f" ({settings})" if settings else "")
        yield f"first to diverge: {named}, {known.get('error', 'no reason is recorded')}"


def _unreported(plan: Plan, columns: Columns, rows: pd.DataFrame) -> Iterator[str]:
    """A line about the metrics of the figures that no trial of a function has reported; none if there are none. Nothing
    is known of them before it reports."""
    if "method" not in rows or not any(map(is_own, rows["method"].dropna().unique())):
        return
    reported = metric_columns(rows, columns.hyperparameters)
    lacking = [
        f"{metric.name}, which the {figure.title} shows"
        for figure in plan.sweep.figures_of(plan.preset)
        for metric in figure.shown
        if metric.name not in (*reported, *OF_EVERY_ROW)
    ]
    if lacking:
        yield f"no trial has reported {', nor '.join(lacking)}; they report: {', '.join(reported) or 'nothing'}"


def print_how_to_continue(plan: Plan, store: Store, fresh: bool, why: str = "", command: str = "") -> None:
    """Print how many trials are done, and that the same `command` continues, which is without `--fresh` if the run was
    `fresh`: that would archive what it has trained. `why` says what stopped the run."""
    stopped = f"stopped by {why}" if why else "stopped"
    same = "the same command without --fresh" if fresh else "the same command"
    continues = f"{same} continues{f': {command}' if command else ''}"
    try:
        statuses = Store(store.files.with_retries(NO_RETRIES)).statuses(plan.name, check_history=False)
    except StoreError:
        print(f"{stopped}: what is in {store.files.display_uri} cannot be read now; {continues}")
        return
    done = sum(statuses.get(trial_id, "failed") != "failed" for trial_id in plan.ids)
    left = f", {plan.total - done} are left" if why else ""
    print(f"{stopped}: {done} of {plan.total} trials are in {store.files.display_uri}{left}; {continues}")


def finish_so_far(plan: Plan, store: Store, request: Request) -> None:
    """Write the page of an interrupted run, if it has any results, and print where it is. With `--keep best` delete the
    models of trials that are not best so far."""
    files = store.files.with_retries(NO_RETRIES)
    with contextlib.suppress(StoreError):
        if not (files.list(trials_folder(plan.name)) or files.list(history_folder(plan.name))):
            return
        if request.keep.trials == "best":
            keep_best(files, plan, load_request(files, plan.name, plan.request_rows))
        if page := write_page(plan, files, print):
            print(f"page: {files.display_uri_of(page)}")
