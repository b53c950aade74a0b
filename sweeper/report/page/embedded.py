"""What a page embeds within a limit of size: the history of a sweep, sample grids as data URIs, and the ends of logs.

The history can be far larger than a page should be. Each metric is a matrix of trials and epochs, as float64. Within
the limit, all metrics are kept, with fewer epochs where needed; if even `MIN_EPOCHS` epochs are too many, the last
metrics are left out. What is left out is said.
"""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeper.errors import DamagedError
from sweeper.report.sample_grids import MAX_BYTES, open_grid
from sweeper.storage.files import Files
from sweeper.storage.layout import log_path, logs_folder, sample_grids_folder
from sweeper.storage.logs import logged_trials, read_log_end

CURVE_BYTES = 900_000
"""Size of the curves of a sweep of up to `CURVE_BYTES / BYTES_PER_TRIAL` trials, before compression."""
BYTES_PER_TRIAL = 160
"""Size of the curves of a larger sweep, for each of its trials: 20 values."""
MIN_EPOCHS = 8
"""Number of epochs below which a metric is left out instead of thinned further."""
MAX_VALUES = 1 << 27
"""Most trials times epochs of a metric; one with more is left out. A small file can have an epoch of its own for each
trial."""


@dataclass(frozen=True)
class Curves:
    series: Sequence[Mapping[str, Any]]
    """Of each metric `metric`, `epochs`, `trials` (indices into those that are packed) and `offset` in `values`."""
    values: np.ndarray
    """float64. Those of a series are [trials, epochs], flattened; NaN where there is no value."""
    note: str
    """What is left out; empty if nothing is."""


def pack_curves(history: pd.DataFrame, trials: Sequence[str], first: Sequence[str]) -> Curves:
    """Pack the history of `trials`. `first` are the metrics that matter most, in this order."""
    budget = max(CURVE_BYTES, BYTES_PER_TRIAL * len(trials)) // 8
    if history.empty:
        return Curves([], np.empty(0), "")
    known = history[history["trial_id"].isin(trials)]
    known = known.assign(trial=pd.Index(trials).get_indexer(known["trial_id"]))
    parts_by_name = {str(name): part for name, part in known.groupby("metric", sort=True)}
    left_out = [
        name for name, part in parts_by_name.items() if part["trial"].nunique() * part["epoch"].nunique() > MAX_VALUES
    ]
    matrices = {name: _matrix(part) for name, part in parts_by_name.items() if name not in left_out}
    names = [*(name for name in first if name in matrices), *(name for name in matrices if name not in first)]
    most = max((len(epochs) for _, epochs, _ in matrices.values()), default=0)

    def size(limit: int) -> int:
        return sum(len(rows) * min(len(epochs), limit) for rows, epochs, _ in matrices.values())

    limit = most
    while limit > MIN_EPOCHS and size(limit) > budget:
        limit = max(MIN_EPOCHS, limit * 3 // 4)
    series, parts, offset = list[dict[str, Any]](), list[np.ndarray](), 0
    for name in names:
        rows, epochs, matrix = matrices[name]
        kept = _evenly(len(epochs), limit)
        if series and offset + len(rows) * len(kept) > budget:
            left_out.append(name)
            continue
        series.append({"metric": name, "epochs": epochs[kept].tolist(), "trials": rows.tolist(), "offset": offset})
        parts.append(matrix[:, kept].ravel())
        offset += parts[-1].size
    thinned = f"curves show at most {limit} of up to {most} epochs" if limit < most else ""
    missing = f"there are no curves of {', '.join(left_out)}" if left_out else ""
    note = "; ".join(filter(None, (thinned, missing)))
    return Curves(series, np.concatenate(parts) if parts else np.empty(0), note and f"To keep this page small, {note}.")


def _matrix(reports: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices of the trials, the epochs, and the values [trials, epochs]."""
    trials, row = np.unique(reports["trial"].to_numpy(), return_inverse=True)
    epochs, column = np.unique(reports["epoch"].to_numpy(), return_inverse=True)
    matrix = np.full((len(trials), len(epochs)), np.nan)
    matrix[row, column] = reports["value"].to_numpy("float64")
    return trials, epochs, matrix


def _evenly(count: int, limit: int) -> np.ndarray:
    """Return the positions of at most `limit` of `count` epochs, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))


PICTURE_BYTES = 400_000
"""Size of all pictures of a page together."""
MAX_SIDE = 1200
"""Longest side of a picture in pixels; larger ones are scaled down."""


@dataclass(frozen=True)
class Picture:
    title: str
    trial: str | None
    """The trial whose sample grid it is; None if it compares methods."""
    source: str
    """A data URI."""
    width: int
    height: int


@dataclass(frozen=True)
class Pictures:
    pictures: Sequence[Picture]
    left_out: int
    """Number of sample grids that exceed the limit, or cannot be read."""


def collect_pictures(files: Files, name: str, trials: Sequence[str]) -> Pictures:
    """Return the sample grids that compare methods, and then those of `trials`, in their order."""
    pictures, size, left_out = list[Picture](), 0, 0
    for title, trial, path in _paths(files, name, trials):
        small = None if size >= PICTURE_BYTES else _small(files, path)
        if small is None or size + len(small[1]) > PICTURE_BYTES:
            left_out += 1
            continue
        kind, content, (width, height) = small
        size += len(content)
        source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
        pictures.append(Picture(title, trial, source, width, height))
    return Pictures(pictures, left_out)


def _paths(files: Files, name: str, trials: Sequence[str]) -> Iterator[tuple[str, str | None, str]]:
    """Yield title, trial and path of each sample grid."""
    root, known = sample_grids_folder(name), set(trials)
    folders = files.list(root)
    for folder in (folder for folder in folders if folder not in known):
        for file in files.list(f"{root}/{folder}"):
            if file.endswith(".png"):
                yield f"{folder}: {file.removesuffix('.png')}", None, f"{root}/{folder}/{file}"
    with_grids = known.intersection(folders)
    for trial in (trial for trial in trials if trial in with_grids):
        for file in files.list(f"{root}/{trial}"):
            if file.endswith(".png"):
                yield file.removesuffix(".png"), trial, f"{root}/{trial}/{file}"


def _small(files: Files, path: str) -> tuple[str, bytes, tuple[int, int]] | None:
    """Return the picture as PNG or WebP, whichever is smaller, with its format and its size in pixels.

    Returns None if there is no picture, or if it is damaged.
    """
    try:
        data = files.read(path, MAX_BYTES)
        picture = open_grid(data or b"")
    except (DamagedError, ValueError):
        return None
    is_large = max(picture.size) > MAX_SIDE
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=82)
    webp = buffer.getvalue()
    if data and not is_large and len(data) <= len(webp):  # few colours, such as enlarged pixels
        return "png", data, picture.size
    return "webp", webp, picture.size


LOG_BYTES, MOST_LOGS = 4096, 50
"""Size of the end of a log that a page has, and the most logs."""


@dataclass(frozen=True)
class Log:
    trial: str
    text: str
    cut: bool
    """Whether the text is the end of a longer one."""
    path: str
    """Link to the whole log from a page in the store."""


def collect_logs(files: Files, name: str, trials: Sequence[str]) -> tuple[list[Log], int]:
    """Return the logs of the first of `trials` that have one, and the number of those that are left out."""
    known = logged_trials(files, name)
    logged = [trial for trial in trials if trial in known]

    def read(once: Files, trial: str) -> tuple[str, bool]:
        try:
            return read_log_end(once, name, trial, LOG_BYTES)
        except DamagedError:
            return "", False

    ends = files.each("read", logs_folder(name), read, logged[:MOST_LOGS])
    found = zip(logged, ends, strict=False)
    logs = [Log(trial, text, cut, f"../{log_path(name, trial)}") for trial, (text, cut) in found if text]
    return logs, len(logged) - len(logs)
