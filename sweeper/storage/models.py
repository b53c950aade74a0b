"""Trained models in a store: found by trial, and deleted where others are better.

Workers write them before their rows, to `models/sweep=NAME/TRIAL.safetensors`. Every file says under which `--keep` it
was written, so a run with `--keep best` deletes no model of a run with `--keep all`. Each request with `--keep best`
lists the trials whose models stay in `models/best/SWEEP/REQUEST.json`: its best, and those without a result, which may
become the best. Of a search whose trials are not all known it lists the study. No other request deletes their models.
"""

import itertools
import json
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any

from sweeper.errors import DamagedError
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import (
    MODEL_SUFFIX,
    best_models_path,
    model_path,
    models_folder,
    unwritten_models_folder,
)
from sweeper.storage.rows import is_id
from trainables.reports import ModelError
from trainables.training.model_metadata import LENGTH_BYTES, metadata_bytes, read_metadata


def trials_with_models(files: Files, sweep: str) -> list[str]:
    """The ids of the sweep's trials whose models are in the store, sorted."""
    names = (name.removesuffix(MODEL_SUFFIX) for name in files.list_files(models_folder(sweep), MODEL_SUFFIX))
    return list(filter(is_id, names))


def write_kept(files: Files, request_folder: str, ids: Collection[str]) -> None:
    """List the trials and studies whose models a request keeps. `request_folder`: `SWEEP/REQUEST`."""
    path, data = best_models_path(request_folder), json.dumps(sorted(ids)).encode()
    if files.read(path) != data:
        files.write(path, data)


def read_kept(files: Files, request_folder: str) -> frozenset[str]:
    """The listed trials and studies whose models a request keeps; none without a list. `request_folder`:
    `SWEEP/REQUEST`."""
    return frozenset(read_record(files, best_models_path(request_folder), list[str]) or ())


def kept_by_others(files: Files, request_folder: str) -> frozenset[str]:
    """What all requests of a sweep but this one list. `request_folder`: `SWEEP/REQUEST`."""
    path = PurePosixPath(best_models_path(request_folder))
    folder = str(path.parent)

    def read(once: Files, name: str) -> list[str] | None:
        return read_record(once, f"{folder}/{name}", list[str])

    others = [name for name in files.list_files(folder, path.suffix) if name != path.name]
    return frozenset(each for ids in files.each("read", folder, read, others) for each in ids or ())


def delete_models(files: Files, sweep: str, trials: Collection[str]) -> None:
    """Delete the models of these trials, where there are some."""
    files.each("delete", models_folder(sweep), Files.delete, [model_path(sweep, trial) for trial in trials])


def delete_displaced(files: Files, sweep: str, trials: Collection[str]) -> None:
    """Delete those models of these trials that were written under `--keep best`."""

    def kept(once: Files, trial: str) -> str | None:
        policy: str | None = known_metadata(once, model_path(sweep, trial)).get("kept")
        return policy

    policies = files.each("read", models_folder(sweep), kept, trials)
    delete_models(files, sweep, [trial for trial, policy in zip(trials, policies, strict=True) if policy == "best"])


def model_metadata(files: Files, path: str) -> dict[str, Any]:
    """The metadata of the model at `path`, whose weights are not read. Raises ModelError if it is damaged or absent,
    and DamagedError if it is no file."""
    header = files.read_start(path, metadata_bytes(files.read_start(path, LENGTH_BYTES) or b"")) or b""
    return read_metadata(header)


def known_metadata(files: Files, path: str) -> dict[str, Any]:
    """The metadata of the model at `path`; none if there is no such file, or it is damaged."""
    try:
        return model_metadata(files, path)
    except (ModelError, DamagedError):
        return {}


def record_unwritten(files: Files, sweep: str, name: str, trials: Collection[str]) -> None:
    """List the trials whose models could not be written. `name`: that of the list, such as the id of their cohort."""
    data = json.dumps(sorted(trials)).encode()
    files.write(f"{unwritten_models_folder(sweep)}/{name}.json", data)


def unwritten_models(files: Files, sweep: str) -> frozenset[str]:
    """The trials whose models could not be written, and are not in the store. Lists of models that have all been
    written since are deleted by `forget_written`."""
    return frozenset(itertools.chain.from_iterable(_unwritten_lists(files, sweep).values()))


def forget_written(files: Files, sweep: str) -> None:
    """Delete the lists of models that have all been written since."""
    for path, trials in _unwritten_lists(files, sweep).items():
        if not trials:
            files.delete(path)


def _unwritten_lists(files: Files, sweep: str) -> dict[str, list[str]]:
    """Path of each list -> its trials whose models are not in the store."""
    folder = unwritten_models_folder(sweep)
    if not (names := files.list_files(folder, ".json")):
        return {}
    stored = set(trials_with_models(files, sweep))

    def unwritten(once: Files, name: str) -> list[str]:
        listed: list[str] | None = read_record(once, f"{folder}/{name}", list[str])
        return [trial for trial in listed or () if trial not in stored]

    lists = files.each("read", folder, unwritten, names)
    return {f"{folder}/{name}": models for name, models in zip(names, lists, strict=True)}
