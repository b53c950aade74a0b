"""`sweeper export NAME --best METRIC`: write a trained model of a sweep to a file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed
from functools import partial
from pathlib import Path

import pandas as pd

from sweeper.commands.command_line import EXIT_OK, Parser, add_options, command_line
from sweeper.definition.metric import VALIDATION, Metric
from sweeper.definition.sweep import SEEDS
from sweeper.errors import SpecError, StoreError
from sweeper.models import find_model, sweep_and_code, with_alarm_rate
from sweeper.option_values import device, rate, whole
from sweeper.planning.changes import format_value
from sweeper.printing import print, printable
from sweeper.report.figures import PresetFigures
from sweeper.report.kinds import read_figures
from sweeper.results.best import BestSetting, best_settings
from sweeper.results.sentences import sentence
from sweeper.storage.files import Files
from sweeper.storage.layout import MODEL_SUFFIX
from sweeper.storage.load import load
from sweeper.storage.local_disk import replace
from sweeper.storage.rows import Columns, columns_of
from sweeper.storage.store import StoreReader
from trainables.metrics.meanings import family_of
from trainables.own_code import KINDS
from trainables.validation import nearest

ABOUT = "Write the model of a sweep's best trial, or of any, to a safetensors file, which `sweeper.load_model` reads."
EXITS = "Exit status: 0 the file is written; 2 the request was wrong, or the trial has no model; 130 interrupted."
NAMED = ("method", "dataset", "seed")
"""Columns that are printed of the trial."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("export", ABOUT, EXITS)
    add = parser.add_argument
    add("name", metavar="NAME", help="the sweep: its name in the store, or its file or module")
    which = parser.add_mutually_exclusive_group(required=True)
    best_help = "a trial of the best setting by this metric, on validation images where the sweep held some out"
    which.add_argument("--best", metavar="METRIC", help=best_help)
    which.add_argument("--trial", metavar="ID", help="the trial with this id")
    add("--preset", help="choose among the trials of this preset; required where the store has several")
    add("--seed", type=int, metavar="N", help="of the best setting the trial with this seed")
    add("--normal-class", type=int, metavar="N", help="of the best setting the trial with this class")
    rate_help = "false-alarm rate of the threshold in the file, from scores of held-out normal images"
    add("--alarm-rate", type=partial(rate, "--alarm-rate"), metavar="RATE", help=rate_help)
    epoch_help = "its model after this epoch, counted from 1, in place of the one that was kept"
    add("--epoch", type=partial(whole, "--epoch", least=1), metavar="N", help=epoch_help)
    add("--out", metavar="FILE", help=f"the file to write (default: NAME-ID{MODEL_SUFFIX})")
    add_options(parser, "store", "data")
    method_help = "code of your own that may be imported (again for more); that of a sweep's file may be, too"
    add("--method", action="append", default=[], metavar="MODULE:CLASS", help=method_help)
    on = partial(device, "--device")
    add("--device", type=on, default="cpu", metavar="cpu|cuda", help="where a trial is trained again")
    options = parser.parse_args(arguments)
    name, own_code = sweep_and_code(options.name)
    files, rows = Files(options.store), load(name, options.store, changes=None)
    about, scored = "", ""
    wanted = {"seed": options.seed, "normal_class": options.normal_class}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    if options.trial:
        if wanted:
            given = " and ".join(f"--{key.replace('_', '-')}" for key in wanted)
            raise SpecError(f"{given} must come with --best, because --trial names one trial already")
        trial = _trial(rows, options.trial)
    else:
        best = _best(rows, _columns(files, name), read_figures(files, name)[0], options.best, options.preset)
        trial, place = _replicate(rows, best, wanted)
        about = f"{sentence(best)}\ntrial {place} of its {len(best.values)}, best first\n"
    out = _checked(Path(options.out or f"{name}-{trial['trial_id']}{MODEL_SUFFIX}"))
    methods = [*options.method, *own_code.intersection(str(trial.get(key)) for key in ("method", *KINDS))]
    where = {"epoch": options.epoch, "data": options.data, "device": options.device}
    _, content = find_model(files, trial["trial_id"], sweep=name, methods=methods, **where)
    if options.alarm_rate is not None:
        content, line = with_alarm_rate(content, options.alarm_rate)
        scored = f"{line}\n"
    _write(out, content)
    print(f"{about}{_line(trial, options.best)}\n{scored}written: {out} ({len(content) / 2**20:.2f} MiB)")
    return EXIT_OK


def _checked(out: Path) -> Path:
    """The file to write. Raises SpecError if it is a folder or in none."""
    if os.path.isdir(out) or not os.path.isdir(out.parent):  # unlike those of Path, they raise no error
        raise SpecError(f"--out must be a file in a folder that exists, but got '{out}'")
    return out


def _write(out: Path, content: bytes) -> None:
    try:
        replace(out, content)
    except OSError as error:
        raise StoreError(f"cannot write '{out}': {error.strerror}") from error


def _trial(rows: pd.DataFrame, trial_id: str) -> "pd.Series[object]":
    """The row with this id."""
    found = rows[rows["trial_id"] == trial_id]
    if found.empty:
        raise SpecError(f"no trial '{trial_id}'{nearest(trial_id, list(rows['trial_id']))} among {len(rows)} trials")
    return found.iloc[0]


def _columns(files: Files, name: str) -> Columns:
    """The columns of a sweep's rows."""
    table = StoreReader(files).rows(name)
    return Columns({}, ()) if table is None else columns_of(table.schema)


def _best(
    rows: pd.DataFrame, columns: Columns, figures: Mapping[str, PresetFigures], metric: str, preset: str | None
) -> BestSetting:
    """The best setting of a preset: of the preset as it is defined if there are such trials.

    The figures of the preset say what repeats an experiment, names a setting and is a share, as in the terminal.
    """
    presets = sorted(rows["preset"].dropna().unique())
    if preset is not None and preset not in presets:
        raise SpecError(f"no rows of preset '{preset}'; there are: {', '.join(presets)}")
    if preset is None and len(presets) > 1:
        raise SpecError(f"--preset must choose among the presets of the store: {', '.join(presets)}")
    rows = rows if preset is None else rows[rows["preset"] == preset]
    unchanged = rows[rows["changes"].fillna("") == ""]
    rows = rows if unchanged.empty else unchanged
    families = {name: family_of(name) for name in columns.metrics if rows[name].notna().any()}
    known = [name for name, family in families.items() if family and family.direction]
    if metric not in known:
        raise SpecError(
            f"no trial has a value of '{metric}' to be ranked by{nearest(metric, known)}; there are: {', '.join(known)}"
        )
    family = families[metric]
    shown = figures.get(preset or (presets[0] if presets else ""))
    declared = shown.metric(metric) if shown else None
    ranked = changed(declared, name=metric) if declared else Metric(metric, family.direction if family else None)
    constraints = shown.constraints if shown else ()
    found = best_settings(
        rows.to_dict("records"),
        ranked,
        columns.hyperparameters,
        repeats=shown.repeats if shown else SEEDS,
        named=shown.naming if shown else (),
        constraints=constraints,
    )
    if not found:
        met = f" and meets {', '.join(constraint.text for constraint in constraints)}" if constraints else ""
        raise SpecError(f"no trial has finished with a value of {metric}{met}, so there is none to export")
    if len(found) > 1:
        texts = "; ".join(map(sentence, found[:3]))
        raise SpecError(f"--trial must choose one, because there are {len(found)} best settings: {texts}")
    return found[0]


def _replicate(rows: pd.DataFrame, best: BestSetting, wanted: Mapping[str, int]) -> "tuple[pd.Series[object], int]":
    """The row of the best of a setting's trials that have the wanted values, and its place among all of them."""
    trials = list(best.values)
    own = rows.set_index("trial_id", drop=False).loc[trials]
    for key, value in wanted.items():
        if key not in own or not (own[key] == value).any():
            known = sorted(str(int(known)) for known in own[key].dropna().unique()) if key in own else []
            raise SpecError(
                f"the best setting has no trial with {key}={value}; there are: {', '.join(known) or 'none'}"
            )
        own = own[own[key] == value]
    return own.iloc[0], trials.index(str(own["trial_id"].iloc[0])) + 1


def _line(trial: "pd.Series[object]", metric: str | None) -> str:
    """A line about the trial."""
    metrics = [name for name in (metric, f"{VALIDATION}{metric}") if metric and name in trial and pd.notna(trial[name])]
    values = [f"{name}={format_value(trial[name])}" for name in (*NAMED, *metrics) if name in trial]
    return printable(f"trial {trial['trial_id']}: {' '.join(values)}")
