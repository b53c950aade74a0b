"""Sheets that show methods beside each other, composed of one trial's sheets for each method."""

import io
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from sweeper.errors import DamagedError
from sweeper.report.style import INK
from sweeper.storage.files import Files
from sweeper.storage.layout import sheet_path, sheets_folder

DENSITY, NO_DENSITY = "density", "none"
"""The hyperparameter that names the density of latents that a trial samples, and its value for none."""
MAX_PIXELS, MAX_BYTES = 25_000_000, 64 << 20
"""Most pixels and bytes of a sheet that is read."""
ABREAST = 4
"""Most methods beside each other; further ones follow below."""
GAP, TITLE = 16, 20
"""Pixels between methods that are beside each other, and height of the title above each."""


def write(files: Files, name: str, folder: str, rows: pd.DataFrame) -> None:
    """Write `sheets/FOLDER/DATASET-reconstructions.png` and `DATASET-samples.png` for each data set.

    They show the first trial of each method and density. Nothing is written for trials without sheets.
    """
    for dataset, trials in first_trials(files, name, rows).items():
        for kind, compose in COMPOSED.items():
            paths = {title: sheet_path(name, trial, f"{kind}.png") for title, trial in trials.items()}
            sheets = {title: sheet for title, path in paths.items() if (sheet := _read(files, path))}
            if sheets:
                files.write(f"sheets/{folder}/{dataset}-{kind}.png", _png(compose(sheets)))


def first_trials(files: Files, name: str, rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Data set -> title -> id of the first trial, by seed and then in the order of `rows`, that has a folder of sheets.

    A title is the method, followed by the density that is sampled, if there is one: `gje, gaussian`.
    """
    folders = files.list(sheets_folder(name))
    if not folders:
        return {}
    with_sheets = rows[rows["trial_id"].isin(folders)].sort_values("seed", kind="stable")
    densities = with_sheets.get(DENSITY, pd.Series(NO_DENSITY, with_sheets.index)).fillna(NO_DENSITY)
    named = zip(with_sheets["method"], densities, strict=True)
    titles = [method if density == NO_DENSITY else f"{method}, {density}" for method, density in named]
    shown = with_sheets.assign(title=titles).drop_duplicates(["dataset", "title"]).sort_index()
    return {
        str(dataset): dict(zip(part["title"], part["trial_id"], strict=True))
        for dataset, part in shown.groupby("dataset")
    }


def reconstructions(sheets: Mapping[str, Image.Image]) -> Image.Image:
    """The originals above a row of reconstructions for each method. The upper half of a method's sheet has the
    originals, the lower half the reconstructions, each with its label on the left."""
    halves = [
        (sheet.crop((0, 0, sheet.width, sheet.height // 2)), sheet.crop((0, sheet.height // 2, *sheet.size)))
        for sheet in sheets.values()
    ]
    return _stacked([halves[0][0], *(lower for _, lower in halves)])


def samples(sheets: Mapping[str, Image.Image]) -> Image.Image:
    """The sheets of samples beside each other, up to `ABREAST` in a line, each below the name of its method."""
    titled = [_titled(method, sheet) for method, sheet in sheets.items()]
    return _stacked([_abreast(titled[start : start + ABREAST]) for start in range(0, len(titled), ABREAST)], left=True)


COMPOSED: Mapping[str, Callable[[Mapping[str, Image.Image]], Image.Image]] = {
    "reconstructions": reconstructions,
    "samples": samples,
}
"""Name of a trial's sheet -> the function that composes those of several methods."""


def _titled(title: str, picture: Image.Image) -> Image.Image:
    canvas = _canvas(picture.width, TITLE + picture.height)
    canvas.paste(picture, (0, TITLE))
    ImageDraw.Draw(canvas).text((picture.width // 2, TITLE // 2), title, INK, ImageFont.load_default(14), anchor="mm")
    return canvas


def _abreast(pictures: Sequence[Image.Image]) -> Image.Image:
    width = sum(picture.width + GAP for picture in pictures) - GAP
    canvas, left = _canvas(width, max(picture.height for picture in pictures)), 0
    for picture in pictures:
        canvas.paste(picture, (left, 0))
        left += picture.width + GAP
    return canvas


def _stacked(pictures: Sequence[Image.Image], left: bool = False) -> Image.Image:
    """The pictures below each other, aligned on the right, or on the `left`."""
    width = max(picture.width for picture in pictures)
    canvas, top = _canvas(width, sum(picture.height for picture in pictures)), 0
    for picture in pictures:
        canvas.paste(picture, (0 if left else width - picture.width, top))
        top += picture.height
    return canvas


def _canvas(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), "white")


def _read(files: Files, path: str) -> Image.Image | None:
    """The picture at `path`, or None if there is none, or if it is damaged, about which a line is logged."""
    try:
        data = files.read(path, MAX_BYTES)
        return None if data is None else open_sheet(data)
    except (DamagedError, ValueError) as error:
        files.log(f"store {files.display_uri}: '{path}' cannot be shown: {error}")
        return None


def open_sheet(data: bytes) -> Image.Image:
    """Return a sheet, a PNG of at most `MAX_PIXELS`, as RGB. Raises ValueError for anything else."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise ValueError(f"it must have at most {MAX_PIXELS} pixels, but has {width} x {height}")
            return picture.convert("RGB")
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:  # a SyntaxError for damage in its middle
        raise ValueError(" ".join(str(error).split())) from error


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()
