"""`sweeper trial NAME ID|KEY=VALUE...`: train one trial of a sweep in this process, to look at it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own lines; PyTorch reads it when it is imported

import torch

from sweeper.commands.arguments import SWEEP, pairs
from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK, Parser, add_options, command_line
from sweeper.commands.one_trial import overfit, print_profile, train_alone
from sweeper.commands.sweep_run import SweepRun, prepared
from sweeper.definition import registry
from sweeper.definition.function_sweep import FunctionSweep
from sweeper.errors import SpecError
from sweeper.execution.local_backend import local_device, show_exception
from sweeper.execution.signals import StopSignal
from sweeper.models import config_to_train
from sweeper.option_values import Text, whole
from sweeper.planning.changes import format_value
from sweeper.planning.cohorts import Trial
from sweeper.planning.plan import Plan
from sweeper.planning.prepare import with_own_images
from sweeper.printing import print, printable
from sweeper.request import Request
from sweeper.storage.logs import logged_trials, read_log
from sweeper.storage.rows import Columns, is_id, rows_of
from sweeper.storage.store import Store
from trainables import config as configs
from trainables.data.errors import DataError
from trainables.validation import nearest

ABOUT = (
    "Train one trial of a sweep in this process, without Ray: prints and breakpoints (`breakpoint()`) of your own code "
    "work. Its metrics are printed; no row is written unless --write is given."
)
EXITS = (
    "Exit status: 0 it has trained (with --overfit: its loss falls); 1 it has not; 2 the request was wrong; 130 "
    "interrupted. With --log: 1 it has no log."
)
LISTED = 8
"""Most values of a key that an error lists."""
SHORTEST_ID = 4
"""Characters by which an id may be abbreviated."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("trial", ABOUT, EXITS)
    add = parser.add_argument
    add("name", metavar="NAME", help=f"the sweep: {SWEEP}")
    which = "the trial: its id, or the beginning of it, or values that only one trial of the preset has"
    add("which", metavar="ID|KEY=VALUE", nargs="*", help=which)
    add("--preset", help="one of the sweep's presets; by default the paper's")
    add_options(parser, "store", "data")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a hyperparameter, as in a run")
    add("--debug", action="store_true", help="open pdb at an exception, and at the first step whose loss is not finite")
    mode = parser.add_mutually_exclusive_group()
    profile_help = "print where the time of a step goes, and write a trace of steps for chrome://tracing"
    mode.add_argument("--profile", action="store_true", help=profile_help)
    overfit_help = "let it learn N training examples, and print whether its loss falls"
    mode.add_argument("--overfit", type=partial(whole, "--overfit", least=2), metavar="N", help=overfit_help)
    mode.add_argument("--write", action="store_true", help="write its row to the store, as a run with --debug does")
    log_help = "print what it printed while a sweep trained it, which the store has; it is not trained now"
    mode.add_argument("--log", action="store_true", help=log_help)
    add("--out", metavar="FILE", help="with --profile: the trace to write (default: trial-ID.json)")
    try:
        options = parser.parse_intermixed_args(arguments)
        if options.out and not options.profile:
            raise SpecError("--out requires --profile, because nothing else writes a file")
        values = [word for word in options.which if "=" in word]
        if values and registry.is_findable(options.name) and isinstance(registry.find(options.name), FunctionSweep):
            options.set += values  # of a function any trial can be chosen
            options.which = [word for word in options.which if word not in values]
        fixed = {key: Text(text) for key, text in pairs("--set", options.set).items()}
        folder = str(Path(options.data).absolute())
        request = Request(
            options.name, preset=options.preset, store=options.store, data=folder, fixed=fixed, debug=options.debug
        )
        store = Store(request.store)
        if options.log:
            return _print_log(request, options.which, store)
        plan, columns, trial = planned(request, options.which, store)
        config = configs.resolve(trial.config)
        if config.training.processes > 1:
            raise SpecError("a trial is looked at in one process, so workers=1 must hold; add --set workers=1")
        if options.write:
            _check_writable(plan, trial)
        print(f"trial {trial.id} of {plan.name} ({plan.request}): {_named(trial, _varying(plan.trials))}", flush=True)
        if options.write:
            return _write(replace(request, debug=True), plan, columns, store, trial)
        where = (config, Path(folder), local_device())
        torch.set_num_threads(1)  # as a process of a sweep with one core
        try:
            if options.overfit:
                return overfit(*where, options.overfit, _say)
            if options.profile:
                return print_profile(*where, Path(options.out or f"trial-{trial.id}.json"), _say)
            return train_alone(*where, _shown(plan), _say, options.debug)
        except (SpecError, DataError, OSError):
            raise
        except Exception as error:
            show_exception(error, debugger=options.debug)
            return EXIT_FAILED
    except OSError as error:
        raise SpecError(f"the file cannot be written or read: {error}") from error
    except DataError as error:
        raise SpecError(str(error)) from error


def _print_log(request: Request, words: Sequence[str], store: Store) -> int:
    """Print the log of a trial, whose id needs no plan. Returns the exit status."""
    sweep, trials = registry.name_in_store(request.name), list(words)
    if len(words) == 1 and "=" not in words[0]:
        trials = sorted(trial for trial in logged_trials(store.files, sweep) if trial.startswith(words[0])) or trials
        if len(trials) > 1:
            raise SpecError(f"one trial must be chosen, but {len(trials)} with a log begin so: {_listed(trials)}")
    else:
        trials = [planned(request, words, store)[2].id]
    text = read_log(store.files, sweep, trials[0]) if is_id(trials[0]) else None
    if not text:
        print(
            f"trial {trials[0]} of {sweep} has no log: it has printed nothing, or was trained with --debug or --write"
        )
        return EXIT_FAILED
    print(text, end="" if text.endswith("\n") else "\n")
    return EXIT_OK


def _say(line: str) -> None:
    print(printable(line), flush=True)


def _shown(plan: Plan) -> list[str]:
    """Metrics that each line of a training shows."""
    return [plan.headline.name, f"val_{plan.headline.name}"]


def planned(request: Request, words: Sequence[str], store: Store) -> tuple[Plan, Columns, Trial]:
    """Return the plan of a request, and the trial that the words select. A trial that is named by its id and has a row
    needs no plan: that of the preset may be illegal with its data or its epochs. Raises SpecError."""
    try:
        plan, columns = prepared(request, store)
    except SpecError:
        sweep = registry.find(request.name)
        preset, space = sweep.preset(request.preset)
        plan, columns = Plan(sweep.name or request.name, preset, sweep.for_preset(preset)), Columns({}, ())
        with_own_images(request, space)  # makes its images known
        if not _recorded(plan.name, words, store):
            raise
    return plan, columns, chosen(plan, words, store)


def chosen(plan: Plan, words: Sequence[str], store: Store) -> Trial:
    """Return the trial of the plan that the words select: ids, beginnings of ids, and KEY=VALUE; or that which has a
    row with the only word as its id, whichever request trained it. Raises SpecError unless it is one."""
    trials, of = list(plan.trials), f"{plan.name} ({plan.request})"
    if not any(trial.id.startswith(word) for trial in trials for word in words):
        trials = _recorded(plan.name, words, store) or trials
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            found = [trial for trial in trials if len(word) >= SHORTEST_ID and trial.id.startswith(word)]
            if not found:
                near = nearest(word, [trial.id for trial in plan.trials])
                raise SpecError(f"no trial of {of} has the id {word!r}{near}; it has {len(plan.trials)} trials")
        else:
            found = _with_value(trials, key, text, of)
        trials = found
    if not trials:
        raise SpecError(f"no trial of {of} is known before its search has begun; run it, then give an id")
    if len(trials) > 1:
        choices = "; ".join(f"{key}={_listed(values)}" for key, values in _telling_apart(trials).items())
        raise SpecError(
            f"one trial must be chosen, but {len(trials)} of {of} are; add KEY=VALUE of what they differ in: {choices}"
        )
    return trials[0]


def _recorded(sweep: str, words: Sequence[str], store: Store) -> list[Trial]:
    """The trial that has a row in the store and the only word as its id; none without a row. Raises StoreError for one
    that cannot be trained again alone."""
    table = store.rows(sweep) if len(words) == 1 and "=" not in words[0] else None
    rows = [] if table is None else rows_of(table, words).to_pylist()
    return [Trial(words[0], config_to_train(row).complete()) for row in rows[:1]]


def _with_value(trials: Sequence[Trial], key: str, text: str, of: str) -> list[Trial]:
    """Those of the trials with this value. Raises SpecError if there are none."""
    try:
        value = configs.parse(key, text)
    except ValueError as error:
        raise SpecError(str(error)) from None
    known = {trial.id: {**configs.defaults(str(trial.config["method"])), **trial.config} for trial in trials}
    having = [trial for trial in trials if key in known[trial.id]]
    found = [trial for trial in having if known[trial.id][key] == value]
    if not found:
        values = dict.fromkeys(known[trial.id][key] for trial in having)
        there = f"those that fit the rest have {key}={_listed(list(values))}" if values else f"no trial has a {key}"
        raise SpecError(f"no trial of {of} has {key}={format_value(value)}; {there}")
    return found


def _varying(trials: Sequence[Trial]) -> dict[str, list[object]]:
    """Key -> its values, of the keys in which the trials differ; all keys of a single one are none."""
    values: dict[str, dict[object, None]] = {}
    for trial in trials:
        for key, value in trial.config.items():
            values.setdefault(key, {})[value] = None
    return {key: list(of_key) for key, of_key in values.items() if len(of_key) > 1}


def _telling_apart(trials: Sequence[Trial]) -> dict[str, list[object]]:
    """Few of the keys in which the trials differ, with their values, that together tell all of them apart."""
    varying, chosen, groups = _varying(trials), dict[str, list[object]](), 1

    def count(key: str) -> int:
        return len({tuple(trial.config.get(each) for each in (*chosen, key)) for trial in trials})

    while groups < len(trials) and (rest := [key for key in varying if key not in chosen]):
        best = max(rest, key=count)
        groups = count(best)
        chosen[best] = varying[best]
    return chosen


def _listed(values: Sequence[object]) -> str:
    shown = [format_value(value) for value in values]  # type: ignore[arg-type]
    return ",".join(shown[:LISTED]) + (f",... ({len(shown)} values)" if len(shown) > LISTED else "")


def _named(trial: Trial, varying: Sequence[str] | dict[str, list[object]]) -> str:
    """The trial by what it differs in from the others."""
    keys = [key for key in ("method", "dataset", *varying) if key in trial.config]
    return " ".join(f"{key}={format_value(trial.config[key])}" for key in dict.fromkeys(keys))


def _check_writable(plan: Plan, trial: Trial) -> None:
    """Raise SpecError for a trial whose row cannot be written."""
    if trial.id not in {known.id for known in plan.grid_trials}:
        raise SpecError("a trial of a search depends on the others, so --write is for trials of grids")
    if plan.grid_statuses.get(trial.id, "failed") != "failed":
        raise SpecError(f"trial {trial.id} has a row in the store already; leave --write out to look at it")


def _write(request: Request, plan: Plan, columns: Columns, store: Store, trial: Trial) -> int:
    """Train the trial as a run of its sweep does, and write its row. Returns the exit status."""
    of_groups = zip(plan.groups, plan.steps, strict=True)
    (steps,) = [steps for group, steps in of_groups if any(trial in stream for stream in group)]
    own = replace(plan, grid_trials=(trial,), groups=[[[trial]]], steps=[steps], study_runs=(), whole=plan.request_rows)
    stopping = StopSignal()
    with stopping.on_signals():
        return SweepRun(request, own, columns, store).begin(stopping).execute()
