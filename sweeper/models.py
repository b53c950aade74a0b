"""Trained models for use outside a sweep: loaded from the store, or trained again where their weights were not kept."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.definition import registry
from sweeper.definition.space import unknown
from sweeper.definition.user_code import own_code, search_folder
from sweeper.errors import SpecError, StoreError
from sweeper.planning.cohorts import trial_id as trial_id_of
from sweeper.printing import print, printable
from sweeper.storage import local_disk
from sweeper.storage.files import Files
from sweeper.storage.layout import MODEL_SUFFIX, model_path, sweeps_in
from sweeper.storage.models import known_metadata
from sweeper.storage.rows import rows_of
from sweeper.storage.store import StoreReader
from trainables.reports import ModelError
from trainables.training.model_metadata import read_metadata

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from trainables.own_code import NotImportedError
    from trainables.sections import TrialConfig, Value

KINDS = ("models", "trials")
"""Folders of the store with a folder for each sweep, in which a trial is looked for."""


def load_model(
    store: str | os.PathLike[str] | Files,
    trial_id: str | None = None,
    *,
    sweep: str | None = None,
    epoch: int | None = None,
    methods: Sequence[str] = (),
    data: str | os.PathLike[str] = "data",
    device: str | torch.device = "cpu",
    alarm_rate: float | None = None,
    log: Callable[[str], None] | None = None,
) -> Any:
    """Return the model of a trial as an `nn.Module` in evaluation mode.

    `store` is the store, or without `trial_id` a file that `sweeper export` wrote. A method of images has the
    class `trainables.tasks.images.model.ImageModel`, with `embed`, `score` and `reconstruct`. Of a function it is what
    the trial gave to `trial.keep`, as a dict of tensors; the bytes of a file are one of uint8.

    `sweep` is the sweep of the trial. It matters where several sweeps of the store have trained the same trial: their
    models can differ by rounding, or by the version of the code.

    `epoch` chooses the model after that epoch, counted from 1, in place of the one that was kept: of the last epoch, or
    of the best one by `--keep best-epoch`. That of another epoch is trained again. `model.epoch` says of which epoch it
    is.

    `methods` names the methods of your own that may be imported, `methods=["my_method:MyMethod"]`, and likewise your
    encoders, and your data sets and views, which only a trial that is trained again needs. A store and a file are data,
    so no other module that they name is imported. Those that ship, those of installed packages, and those of sweeps
    that this process has run need no name.

    `alarm_rate` is the false-alarm rate of `model.threshold`, for a model with anomaly scores: of new normal images at
    most this share is flagged.

    A trial whose weights were not kept is trained again on `device`, alone, with the data sets in the folder `data`:
    the model is then equal up to rounding. `log` is called with a line before that, and where sweeps have different
    models of the trial; by default it is printed. Raises StoreError if there is no such trial, or if it has no final
    weights because it failed, diverged, was pruned, or is of a population; SpecError for a device that is not there,
    for a method that is none or must be named, and for a rate that the held-out normal images are too few for.
    """
    from trainables.own_code import NotImportedError
    from trainables.training.model_file import unpack_model

    import_own_code(methods)
    if trial_id is None and epoch is not None:
        raise SpecError(f"epoch chooses a model of a store, so it needs a trial_id, but got epoch={epoch} and a file")
    if trial_id is None:
        file, content = str(store), _exported(str(store))
    else:
        files = store if isinstance(store, Files) else Files(store)
        file, content = find_model(files, trial_id, sweep=sweep, epoch=epoch, data=data, device=device, log=log)
    try:
        trained = unpack_model(content)
        model: Any = trained.build()
    except NotImportedError as error:
        raise SpecError(not_imported(f"the model '{file}'", error)) from error
    except ModelError as error:
        remedy = "" if trial_id is None else "; without this file the trial is trained again"
        raise StoreError(f"the model '{file}' cannot be used: {error}{remedy}") from error
    if isinstance(model, dict):
        return model
    model.to(device).epoch = trained.epochs
    if alarm_rate is not None:
        set_alarm_rate(model, alarm_rate)
    return model


def set_alarm_rate(model: Any, rate: float) -> None:
    """Set the false-alarm rate of a model. Raises SpecError for one that it cannot have a threshold of."""
    if not hasattr(model, "threshold_at"):
        raise SpecError(f"a false-alarm rate needs a model of images, but got alarm_rate={rate}")
    try:
        model.threshold_at(rate)
    except ValueError as error:
        raise SpecError(str(error)) from error
    model.alarm_rate = rate


def with_alarm_rate(content: bytes, rate: float) -> tuple[bytes, str]:
    """Return the safetensors file of a model with this false-alarm rate, and a line about its threshold. Raises as
    `set_alarm_rate`."""
    from trainables.training.model_file import pack_model, unpack_model

    trained = unpack_model(content)
    model = trained.build()
    set_alarm_rate(model, rate)
    changed = replace(trained, inputs={**trained.inputs, "alarm_rate": rate})
    return pack_model(changed, read_metadata(content)), score_line(model)


def score_line(model: Any) -> str:
    """Return e.g. `score joint (chosen on validation images, val_auroc_joint): threshold 1.23 at a false-alarm rate of
    0.05, from 25 held-out normal images`; without a rate the score alone."""
    name = model.chosen_score
    how = f"chosen on validation images, {model.chosen_by}" if model.chosen_by else "the default"
    if model.alarm_rate is None:
        return f"score {name} ({how})"
    return (
        f"score {name} ({how}): threshold {model.threshold:.4g} at a false-alarm rate of {model.alarm_rate:g}, from "
        f"{len(model.held_out[name])} held-out normal images"
    )


def find_model(
    files: Files,
    trial_id: str,
    *,
    sweep: str | None = None,
    epoch: int | None = None,
    methods: Sequence[str] = (),
    data: str | os.PathLike[str] = "data",
    device: str | torch.device = "cpu",
    log: Callable[[str], None] | None = None,
) -> tuple[str, bytes]:
    """Return where a trial's model is, and its safetensors file. See `load_model`."""
    import_own_code(methods)
    if str(device) != "cpu":
        from trainables.training.train import check_device

        try:
            check_device(device)
        except ValueError as error:
            raise SpecError(str(error)) from error
    log = log or _print
    try:
        found = {name: _kept_model(files, name, trial_id, epoch) for name in _sweeps(files, sweep)}
    except ValueError as error:
        raise SpecError(f"no trial {trial_id!r}: {error}") from error
    kept = {name: model for name, model in found.items() if model is not None}
    if not kept:
        return f"trial {trial_id}, trained again", _trained_again(files, trial_id, sweep, epoch, data, device, log)
    chosen = next(iter(kept))
    if len({_weights(content) for _, content in kept.values()}) > 1:
        log(
            f"the sweeps {', '.join(kept)} have different models of trial {trial_id}; this is that of {chosen}, and "
            "sweep=NAME chooses another"
        )
    path, content = kept[chosen]
    return files.display_uri_of(path), content


def _kept_model(files: Files, sweep: str, trial_id: str, epoch: int | None) -> tuple[str, bytes] | None:
    """The path and the content of a trial's model; None if it was not kept, or is not that of the `epoch`."""
    path = model_path(sweep, trial_id)
    if epoch is not None:
        metadata = known_metadata(files, path)
        if metadata.get("epoch", metadata.get("config", {}).get("epochs")) != epoch:
            return None
    content = files.read(path)
    return None if content is None else (path, content)


def config_of(row: Mapping[str, Any] | pd.Series, *, methods: Sequence[str] = ()) -> TrialConfig:
    """Rebuild the configuration of a trial from its row, a dict or a pandas Series: a key that is null in the row has
    its default. `flat()` of the result gives all keys and values. `methods`: as for `load_model`. Raises SpecError for
    a row that is none of a trial of this version of the code, and for a method that must be named."""
    from trainables.config import keys, resolve
    from trainables.own_code import NotImportedError

    import_own_code(methods)
    values: dict[str, Value] = {}
    try:
        for key, kind in keys(str(row["method"])).items():
            value: Any = row.get(key)
            value = value.item() if hasattr(value, "item") else value
            if isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value)):
                exact = kind is object or value != kind(value)  # pandas makes floats of ints with nulls
                values[key] = value if exact else kind(value)
        return resolve(values)
    except NotImportedError as error:
        raise SpecError(not_imported(f"trial {row.get('trial_id', 'of this row')}", error)) from error
    except KeyError as error:
        raise SpecError(f"a row must name a method of this version of the code, but got {error}") from error
    except (ValueError, OverflowError) as error:
        raise SpecError(f"no trial can have this row: {error}") from error


def config_to_train(row: Mapping[str, Any]) -> TrialConfig:
    """Return the configuration with which the trial of a row is trained again alone. Raises SpecError as `config_of`,
    and StoreError if that would be another trial."""
    trial_id = row["trial_id"]
    if row.get("schedule") is not None:
        raise StoreError(f"trial {trial_id} copied others of its population, so it cannot be trained again alone")
    config = config_of(row)
    if row.get("study_id") is None and trial_id_of(config) != trial_id:
        raise StoreError(f"trial {trial_id} is of another version of the code, whose defaults were others")
    return config


def row_of(files: Files, trial_id: str, sweep: str | None = None) -> dict[str, Any]:
    """Return the row of a trial of a sweep, by default of any; where several sweeps have one, the first that has
    finished. Raises StoreError if there is none."""
    reader, rows = StoreReader(files), list[dict[str, Any]]()
    for name in _sweeps(files, sweep):
        table = reader.rows(name)
        rows += rows_of(table, [trial_id]).to_pylist() if table is not None else []
    if not rows:
        where = "any of its sweeps" if sweep is None else f"sweep '{sweep}'"
        raise StoreError(f"store {files.display_uri}: no trial {trial_id!r} in {where}")
    return next((row for row in rows if row["status"] == "finished"), rows[0])


def sweep_and_code(reference: str) -> tuple[str, frozenset[str]]:
    """Return the name of a sweep in the store, and the code of the user's own that its definition names: what was typed
    and none, or that of the sweep that a file or a module defines."""
    if registry.is_plain_name(reference):
        return registry.name_in_store(reference), frozenset()
    sweep = registry.find(reference)
    return sweep.name, own_code(sweep)


def defaults_of(method: str, code: Collection[str]) -> Mapping[str, Value]:
    """Return the defaults of all keys of a method's trials; none for one of the user's own that this process has not
    imported and that is not among the `code` which may be imported, or that cannot be."""
    from trainables.config import defaults

    try:
        import_own_code([method] if method in code else [])
        return defaults(method)
    except (KeyError, ValueError, SpecError):
        return {}


def import_own_code(names: Sequence[str]) -> None:
    """Import methods, data sets, encoders and views that the user names, as in a sweep also from the working directory.
    Raises SpecError."""
    from trainables.catalog import import_method
    from trainables.contract import Method
    from trainables.functions.command import is_command
    from trainables.functions.method import FunctionError, is_plain_function
    from trainables.own_code import import_own

    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"methods must be a list of names, as in ['my_method:MyMethod'], but got {names!r}")
    if any(":" in name for name in names):
        search_folder(Path.cwd())
    try:
        for name in names:
            own = import_own("method", name) if ":" in name and not is_command(name) else None
            if own is None or (isinstance(own, type) and issubclass(own, Method)):
                import_method(name)
            elif is_plain_function(own):
                with contextlib.suppress(FunctionError):  # a data set may be a function, too
                    import_method(name)
    except ValueError as error:
        raise SpecError(str(error)) from None


def not_imported(what: str, error: NotImportedError, command: str = "export") -> str:
    """A line about a model or a trial whose code would have to be imported because data name it."""
    name = f"{error.name:.80}"
    return (
        f"{what} names the {error.kind} {name!r}, which neither ships nor is installed; it is imported only if you "
        f"name it, because that runs its code: methods=[{name!r}] in Python, --method for sweeper {command}"
    )


def _trained_again(
    files: Files,
    trial_id: str,
    sweep: str | None,
    epoch: int | None,
    data: str | os.PathLike[str],
    device: str | torch.device,
    log: Callable[[str], None],
) -> bytes:
    """The safetensors file of a trial whose weights were not kept."""
    from trainables.data.errors import DataError
    from trainables.own_code import NotImportedError
    from trainables.training.model_file import pack_model
    from trainables.training.train import retrain

    row = row_of(files, trial_id, sweep)
    if row["status"] != "finished":
        raise StoreError(f"trial {trial_id} has no final weights, because it is {row['status']}: {row['error']}")
    config = config_to_train(row)
    epochs = config.training.epochs if epoch is None else epoch
    if epoch is not None and not 1 <= epoch <= row["epochs_run"]:
        raise SpecError(f"trial {trial_id} has epochs 1 to {row['epochs_run']}, but got epoch={epoch}")
    what = "model" if epoch is None else f"model of epoch {epoch}"
    log(f"trial {trial_id} has no {what} in the store; training it again alone, {epochs} epochs")
    try:
        return pack_model(retrain(config, Path(data), device, epoch), {"trial_id": trial_id, "kept": "all"})
    except NotImportedError as error:
        raise SpecError(not_imported(f"trial {trial_id}", error)) from error
    except (DataError, ModelError, ValueError) as error:
        raise StoreError(f"trial {trial_id} cannot be trained again: {error}") from error


def _sweeps(files: Files, sweep: str | None = None) -> list[str]:
    """The sweeps in the store, or the one that was asked for."""
    names = [name for kind in KINDS for name in sweeps_in(files.list(kind))]
    if sweep is not None and sweep not in names:
        raise SpecError(unknown("sweep", sweep, sorted(set(names))))
    return list(dict.fromkeys(names)) if sweep is None else [sweep]


def _weights(content: bytes) -> object:
    """What is equal for models with equal weights: the digest that a model's file has, or all of a damaged file."""
    try:
        return read_metadata(content)["digest"]
    except ModelError:
        return content


def _exported(file: str) -> bytes:
    """The content of a file that was exported."""
    if not file.endswith(MODEL_SUFFIX):
        raise SpecError(f"a trial_id is required, or a file that ends in {MODEL_SUFFIX}, but got {file!r} alone")
    try:
        return local_disk.read(Path(file))
    except OSError as error:
        raise StoreError(f"the model '{file}' cannot be read: {error.strerror}") from error


def _print(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)
