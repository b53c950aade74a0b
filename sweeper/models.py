"""Trained models for use outside a sweep: loaded from the store, or trained again where their weights were not kept."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import SpecError, StoreError
from sweeper.plan.trials import content_hash
from sweeper.storage.arrow_tables import rows_of
from sweeper.storage.io.files import Files
from sweeper.storage.layout import MODEL_SUFFIX, model_path
from sweeper.storage.store_reader import StoreReader

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from trainables.config.trial_config import TrialConfig, Value

KINDS = ("models", "trials")
"""Folders of the store with a folder for each sweep, in which a trial is looked for."""


def load_model(
    store: str | os.PathLike[str] | Files,
    trial_id: str | None = None,
    *,
    data: str | os.PathLike[str] = "data",
    device: str | torch.device = "cpu",
    log: Callable[[str], None] | None = None,
) -> Any:
    """Return the model of a trial as an `nn.Module` in evaluation mode.

    `store` is the store, or without `trial_id` a file that `python -m sweeper.export` wrote. A method of images has the
    class `trainables.tasks.images.model.ImageModel`, with `embed`, `score` and `reconstruct`.

    A trial whose weights were not kept is trained again on `device`, alone, with the data sets in the folder `data`:
    the model is then equal up to rounding. `log` is called with a line before that; by default it is printed.
    Raises StoreError if there is no such trial, or if it has no final weights because it failed, diverged, was pruned,
    or is of a population.
    """
    from trainables.reports import ModelError
    from trainables.training.model_file import unpack_model

    if trial_id is None:
        file, content = str(store), _exported(str(store))
    else:
        files = store if isinstance(store, Files) else Files(store)
        file, content = find_model(files, trial_id, data=data, device=device, log=log)
    try:
        return unpack_model(content).build().to(device)
    except ModelError as error:
        remedy = "" if trial_id is None else "; without this file the trial is trained again"
        raise StoreError(f"the model '{file}' cannot be used: {error}{remedy}") from error


def find_model(
    files: Files,
    trial_id: str,
    *,
    data: str | os.PathLike[str] = "data",
    device: str | torch.device = "cpu",
    log: Callable[[str], None] | None = None,
) -> tuple[str, bytes]:
    """Return where a trial's model is, and its safetensors file. See `load_model`."""
    try:
        for sweep in _sweeps(files):
            path = model_path(sweep, trial_id)
            if (content := files.read(path)) is not None:
                return files.display_uri_of(path), content
    except ValueError as error:
        raise SpecError(f"no trial {trial_id!r}: {error}") from error
    return f"trial {trial_id}, trained again", _trained_again(files, trial_id, data, device, log or _print)


def config_of(row: Mapping[str, Any] | pd.Series) -> TrialConfig:
    """Rebuild the configuration of a trial from its row, a dict or a pandas Series: a key that is null in the row has
    its default. `flat()` of the result gives all keys and values. Raises SpecError for a row that is none of a trial of
    this version of the code."""
    from trainables.config.trial import keys, resolve

    values: dict[str, Value] = {}
    try:
        for key, kind in keys(str(row["method"])).items():
            value: Any = row.get(key)
            value = value.item() if hasattr(value, "item") else value
            if isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value)):
                values[key] = kind(value) if value == kind(value) else value  # pandas makes floats of ints with nulls
        return resolve(values)
    except KeyError as error:
        raise SpecError(f"a row must name a method of this version of the code, but got {error}") from error
    except (ValueError, OverflowError) as error:
        raise SpecError(f"no trial can have this row: {error}") from error


def row_of(files: Files, trial_id: str) -> dict[str, Any]:
    """Return the row of a trial of any sweep. Raises StoreError if there is none."""
    reader = StoreReader(files)
    for sweep in _sweeps(files):
        rows = reader.rows(sweep)
        found = rows_of(rows, [trial_id]).to_pylist() if rows is not None else []
        if found:
            return dict(found[0])
    raise StoreError(f"store {files.display_uri}: no trial {trial_id!r} in any of its sweeps")


def _trained_again(
    files: Files,
    trial_id: str,
    data: str | os.PathLike[str],
    device: str | torch.device,
    log: Callable[[str], None],
) -> bytes:
    """The safetensors file of a trial whose weights were not kept."""
    from trainables.data.errors import DataError
    from trainables.reports import ModelError
    from trainables.training.model_file import pack_model
    from trainables.training.retrain import retrain

    row = row_of(files, trial_id)
    if row["status"] != "finished":
        raise StoreError(f"trial {trial_id} has no final weights, because it is {row['status']}: {row['error']}")
    if row.get("schedule") is not None:
        raise StoreError(f"trial {trial_id} copied others of its population, so it cannot be trained again alone")
    config = config_of(row)
    if row.get("study_id") is None and content_hash(config.flat()) != trial_id:
        raise StoreError(f"trial {trial_id} is of another version of the code, whose defaults were others")
    log(f"trial {trial_id} has no model in the store; training it again alone, {config.training.epochs} epochs")
    try:
        return pack_model(retrain(config, Path(data), device), {"trial_id": trial_id, "kept": "all"})
    except (DataError, ModelError, ValueError) as error:
        raise StoreError(f"trial {trial_id} cannot be trained again: {error}") from error


def _sweeps(files: Files) -> list[str]:
    """The sweeps in the store."""
    names = [name.removeprefix("sweep=") for kind in KINDS for name in files.list(kind) if name.startswith("sweep=")]
    return list(dict.fromkeys(names))


def _exported(file: str) -> bytes:
    """The content of a file that was exported."""
    if not file.endswith(MODEL_SUFFIX):
        raise SpecError(f"a trial_id is required, or a file that ends in {MODEL_SUFFIX}, but got {file!r} alone")
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise StoreError(f"the model '{file}' cannot be read: {error.strerror}") from error


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
