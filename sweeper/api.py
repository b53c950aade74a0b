"""What `import sweeper` offers: sweeps from a script or a notebook, with the same checks as the command line.

Where the command line prints an error and exits, these functions raise a `sweeper.SweeperError`.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from sweeper.commands.arguments import read_options, request_of
from sweeper.commands.sweep_run import SweepRun
from sweeper.definition import Sweep, registry
from sweeper.definition.ranges import is_range, listed
from sweeper.definition.space import Value, axis_values, plain
from sweeper.errors import ClusterError, SpecError, StoreError
from sweeper.execution.session import session_address
from sweeper.execution.signals import StopSignal, debugger_interrupts
from sweeper.models import config_of, defaults_of, load_model
from sweeper.option_values import Text
from sweeper.request import Request
from sweeper.storage.load import load, load_history, load_trials
from trainables.validation import unknown

if TYPE_CHECKING:
    from sweeper.report.answers import Answer

__all__ = ["best", "compare", "config_of", "load", "load_history", "load_model", "plan", "run", "run_best", "table"]
Option = Value | Sequence[str]
"""The value of an option, or several."""
Axes = Mapping[str, Sequence[Value]]
"""Hyperparameter -> values, or one range as the command line takes it: `"0..9"`."""
Folder = str | os.PathLike[str]


def best(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    metric: str | None = None,
    store: Folder = "results",
    data: Folder | None = None,
) -> "Answer":
    """Return which setting of a request is best, as `sweeper best` says it. It prints as the sentence.

    - `preset`, `changes`: the two parts of the request's name, such as `"digits"` and `"epochs=5"`, or `""` for the
      preset as it is defined; by default the request with the latest result
    - `metric`: by which it is best; by default the preset's
    - `data`: folder of the data sets, for the commands

    `answer.choice` has the setting `at`, its `mean` with the interval `low` to `high` and `n`, `chosen_by` and
    `chosen_mean`, the settings that are not told apart from it, its `trials`, its `model` and the command to `retrain`
    it; `answer.choices` are all where several data sets or studies have one each. Raises SpecError and StoreError.
    """
    from sweeper.report.answers import find_answer  # here: it imports SciPy
    from sweeper.storage.files import Files

    try:
        return find_answer(
            Files(store),
            name,
            preset=preset,
            changes=changes,
            metric=metric,
            data=None if data is None else os.fspath(data),
            defaults=defaults_of,
        )
    except (SpecError, StoreError) as error:
        raise error.with_traceback(None) from None


def run_best(
    sweep: str | os.PathLike[str] | Sweep,
    *,
    again: Axes,
    name: str | None = None,
    preset: str | None = None,
    changes: str | None = None,
    metric: str | None = None,
    methods: Sequence[str] = (),
    store: Folder = "results",
    data: Folder = "data",
    **options: Option,
) -> pd.DataFrame:
    """Train the best setting of each study and data set of a request with fresh seeds, or continue that, and return one
    row per trial, as `sweeper best SWEEP --again KEY=VALUES` does.

    - `sweep`, `name`: as for `run`: the sweep that was tuned
    - `again`: the key that repeats an experiment, with values that no trial of the request has: `{"seed": "1..10"}`
    - `preset`, `changes`, `metric`: as for `best`; `methods`: as for `load_model`
    - `options`: those of a run that say how it trains, such as `debug=True` or `keep="all"`

    The rows are those of the request `PRESET, again`, of which `best` and `table` tell. Raises the same errors as
    `run`, and SpecError if nothing is best, or if trials with one of the fresh seeds chose the setting.
    """
    from sweeper.commands.again import Again, asked_again  # here: it imports SciPy
    from sweeper.commands.best import OF_RUN

    try:
        if not isinstance(again, Mapping) or len(again) != 1:
            raise SpecError(f"again must map one key to its values, such as {{'seed': '1..10'}}, but got {again!r:.60}")
        ((key, values),) = again.items()
        if other := next((option for option in options if option not in OF_RUN), None):
            raise SpecError(unknown("option of a run of best settings", other, OF_RUN))
        places = {"preset": preset, "store": os.fspath(store), "data": os.fspath(data)}
        request = _request(sweep, name, None, None, {**options, **places})
        return _run(asked_again(request, Again(key, _axis(key, values, "again"), changes, metric, methods))[0])
    except (SpecError, ClusterError, StoreError) as error:
        raise error.with_traceback(None) from None


def compare(first: str, second: str, metrics: Sequence[str] = ()) -> pd.DataFrame:
    """Return the paired differences of two sides, typed as for `sweeper compare`, one row for each metric.

    - `first`, `second`: mean of each side over its `pairs`; `difference`: mean of second - first
    - `low`, `high`: its 95 % interval over `n` replicates, or over what `over` says; `p`: the smallest level at which
      that excludes 0
    - `improved`, `improved_low`, `improved_high`: probability that a run of the second side is better

    Raises SpecError for sides that cannot be compared, and StoreError for a store that cannot be read.
    """
    from sweeper.commands.compare import compare as compared  # here: it imports SciPy

    return compared(first, second, metrics)


def table(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    table: str | None = None,
    store: Folder = "results",
) -> pd.DataFrame:
    """Return a table of a request as numbers, one row for each cell and metric.

    - `preset`, `changes`: as for `best`
    - `table`: one of the tables of the preset, or the metric of a heatmap; by default the only table

    First come the hyperparameters of the table and `metric`, then `mean`, the ends `low` and `high` of its 95 %
    interval over `n` replicates, `std`, `published` and `mark`, which is `best` or `not told apart`. Shares are in
    [0, 1]. Raises SpecError if there is no such request or table, or several, and StoreError if there are no rows.
    """
    from sweeper.commands.table import frame  # here: it imports SciPy

    try:
        return frame(name, preset=preset, changes=changes, table=table, store=store)
    except (SpecError, StoreError) as error:
        raise error.with_traceback(None) from None


def run(
    sweep: str | os.PathLike[str] | Sweep,
    *,
    name: str | None = None,
    preset: str | None = None,
    set: Mapping[str, Value] | None = None,
    axis: Axes | None = None,
    replicates: Axes | None = None,
    store: Folder = "results",
    data: Folder = "data",
    **options: Option,
) -> pd.DataFrame:
    """Run a sweep, or continue it, and return one row per trial, in the order of the trials.

    - `sweep`: as on the command line a name, a file or a module; or a `sweeper.Sweep`, which needs a `name` for
      its folder in the store
    - `preset`, `store`, `data`: as on the command line
    - `set`: hyperparameter -> value, as `--set`; `axis`: hyperparameter -> values, as `--axis`, or a range of these:
      `axis={"seed": "0..9"}`; `replicates`: hyperparameter -> values, as `--replicates`
    - `options`: all others of `sweeper run --help`, with underscores: `keep="all"`, `gpu_fraction=0.5`,
      `fresh=True`, `trials=64`, `track=["tensorboard", "mlflow=http://127.0.0.1:5000"]`

    If this process is connected to Ray, the sweep runs there, and Ray stays up. Otherwise Ray is started here, or
    joined at `address` or `RAY_ADDRESS`, and left at the end. It shows the same progress as the command line.

    Trials that failed are among the rows, with `status` failed. Raises SpecError for a wrong request, before anything
    starts; ClusterError or StoreError if Ray or the store cannot be used; and KeyboardInterrupt when it is interrupted,
    after it has stopped in order. The same call continues. Must be called in the main thread, which gets the signals.
    """
    try:
        return _run(
            _request(
                sweep,
                name,
                set,
                axis,
                {**options, "preset": preset, "store": os.fspath(store), "data": os.fspath(data)},
                replicates=replicates,
            )
        )
    except (SpecError, ClusterError, StoreError) as error:
        raise error.with_traceback(None) from None  # its message says all, where it arose says nothing to a user


def plan(
    sweep: str | os.PathLike[str] | Sweep,
    *,
    name: str | None = None,
    preset: str | None = None,
    set: Mapping[str, Value] | None = None,
    axis: Axes | None = None,
    replicates: Axes | None = None,
    store: Folder = "results",
    data: Folder = "data",
    **options: Option,
) -> dict[str, Any]:
    """Return what `run` would do with the same arguments, as `--plan --json` prints it: numbers of trials by status,
    axes, cohorts, and the time and cost where the devices have been measured. It writes nothing, and needs no data
    except the images of `dataset=folder`.

    With `measure=True` it measures now. Raises the same errors as `run`.
    """
    try:
        planned = SweepRun.planned(
            _request(
                sweep,
                name,
                set,
                axis,
                {**options, "preset": preset, "store": os.fspath(store), "data": os.fspath(data)},
                plan=True,
                replicates=replicates,
            )
        )
        outline = planned.outline()
        planned.print_damaged()
    except (SpecError, ClusterError, StoreError) as error:
        raise error.with_traceback(None) from None
    return outline


def _run(request: Request) -> pd.DataFrame:
    if threading.current_thread() is not threading.main_thread():
        raise SpecError("a sweep must run in the main thread, which gets the signals, but this is another thread")
    stopping = StopSignal(exits=False)
    with stopping.on_signals(), debugger_interrupts():
        started = SweepRun.planned(request).begin(stopping)
        started.run()
        return load_trials(started.store.files, started.plan.name, started.plan.ids)


def _request(
    sweep: str | os.PathLike[str] | Sweep,
    name: str | None,
    fixed: Mapping[str, Value] | None,
    axes: Axes | None,
    options: Mapping[str, Option],
    plan: bool = False,
    replicates: Axes | None = None,
) -> Request:
    """The request with these arguments. Raises SpecError as the command line does."""
    sweep = os.fspath(sweep) if isinstance(sweep, os.PathLike) else sweep
    if isinstance(sweep, str) and name is not None:
        raise SpecError(f"a name is for a Sweep that is given as a value, but got name={name!r} and sweep={sweep!r}")
    definition = None if isinstance(sweep, str) else _named(sweep, name)
    values = read_options(options)
    values |= {"name": definition.name if definition else sweep, "sweep": definition, "plan": plan, "json": plan}
    for option, given in {"set": fixed, "axis": axes, "replicates": replicates}.items():
        if given is not None and not isinstance(given, Mapping):
            raise SpecError(
                f"{option} must map hyperparameters to values, such as {{'lr': 0.1}}, but got {given!r:.60}"
            )
    values["fixed"] = {key: plain(value) for key, value in (fixed or {}).items()}
    values["axes"] = {key: _axis(key, of_axis) for key, of_axis in (axes or {}).items()}
    values["replicates"] = {key: _axis(key, own, "replicates") for key, own in (replicates or {}).items()}
    return request_of(values | {"address": values.get("address") or session_address()})


def _named(sweep: object, name: str | None) -> Sweep:
    """A sweep that is given as a value, with its name."""
    if not isinstance(sweep, Sweep):
        raise SpecError(f"a sweep must be a name or a sweeper.Sweep, but got {type(sweep).__name__}")
    if not (name or sweep.name):
        raise SpecError("a Sweep that is given as a value needs a name, which is that of its folder in the store")
    named = replace(sweep, name=name or sweep.name)
    if named.name in registry.names() and named != registry.find(named.name):
        registry.check_own_name(named.name, f"got name={named.name!r}; give another name=...")
    return named


def _axis(key: str, values: Sequence[Value], option: str = "axis") -> tuple[Value, ...]:
    if isinstance(values, str) and is_range(values):
        return tuple(map(Text, listed(values)))
    if not (plain_values := axis_values(key, values)):
        raise SpecError(f"{option} {key} must have at least one value, but it is empty")
    return plain_values
