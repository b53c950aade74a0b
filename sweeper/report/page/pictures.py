"""The sheets of a sweep as data URIs, within a limit of size: those that compare methods, then those of trials."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeper.errors import DamagedError
from sweeper.report.sheets.pictures import MAX_BYTES, open_sheet
from sweeper.storage.files import Files
from sweeper.storage.layout import sheets_folder

BYTES = 400_000
"""Size of all pictures of a page together."""
MAX_SIDE = 1200
"""Longest side of a picture in pixels; larger ones are scaled down."""


@dataclass(frozen=True)
class Picture:
    title: str
    trial: str | None
    """The trial whose sheet it is; None if it compares methods."""
    source: str
    """A data URI."""
    width: int
    height: int


@dataclass(frozen=True)
class Pictures:
    pictures: Sequence[Picture]
    left_out: int
    """Number of sheets that exceed the limit, or cannot be read."""


def collect(files: Files, name: str, trials: Sequence[str]) -> Pictures:
    """Return the sheets that compare methods, and then those of `trials`, in their order."""
    pictures, size, left_out = list[Picture](), 0, 0
    for title, trial, path in _paths(files, name, trials):
        small = None if size >= BYTES else _small(files, path)
        if small is None or size + len(small[1]) > BYTES:
            left_out += 1
            continue
        kind, content, (width, height) = small
        size += len(content)
        source = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
        pictures.append(Picture(title, trial, source, width, height))
    return Pictures(pictures, left_out)


def _paths(files: Files, name: str, trials: Sequence[str]) -> Iterator[tuple[str, str | None, str]]:
    """Yield title, trial and path of each sheet."""
    root, known = sheets_folder(name), set(trials)
    folders = files.list(root)
    for folder in (folder for folder in folders if folder not in known):
        for file in files.list(f"{root}/{folder}"):
            if file.endswith(".png"):
                yield f"{folder}: {file.removesuffix('.png')}", None, f"{root}/{folder}/{file}"
    with_sheets = known.intersection(folders)
    for trial in (trial for trial in trials if trial in with_sheets):
        for file in files.list(f"{root}/{trial}"):
            if file.endswith(".png"):
                yield file.removesuffix(".png"), trial, f"{root}/{trial}/{file}"


def _small(files: Files, path: str) -> tuple[str, bytes, tuple[int, int]] | None:
    """Return the picture as PNG or WebP, whichever is smaller, with its format and its size in pixels.

    Returns None if there is no picture, or if it is damaged.
    """
    try:
        data = files.read(path, MAX_BYTES)
        picture = open_sheet(data or b"")
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
