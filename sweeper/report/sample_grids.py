"""Methods beside each other: images, composed of the sample grids of one trial of each, and maps of latents.

Maps are samples of each density among the representations of test images, placed by t-SNE in training.
"""

import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sweeper.errors import DamagedError
from sweeper.report.charts import COLOURS
from sweeper.report.formatting import MINUS, format_significant
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, sample_grid_path, sample_grids_folder

INK, MUTED, PALE = (COLOURS["light"][name] for name in ("ink", "muted", "line"))
"""Colours of text, of secondary text and axes, and of grid lines."""
PAD = 0.25
"""White space around a figure of Matplotlib, in inches."""
DOTS, MOST_DOTS = 160.0, 16000
"""Dots per inch, and most dots of a side, so that a figure stays within Agg's 65,536 pixels."""
COMPRESSION = 3
"""zlib's level. The default, 6, takes a third longer and saves a tenth of the bytes."""
DENSITY, NO_DENSITY = "density", "none"
"""The hyperparameter that names the density of latents that a trial samples, and its value for none."""
MAX_PIXELS, MAX_BYTES = 25_000_000, 64 << 20
"""Most pixels and bytes of a sample grid that is read."""
ABREAST = 4
"""Most methods beside each other; further ones follow below."""
GAP, TITLE = 16, 20
"""Pixels between methods that are beside each other, and height of the title above each."""


def write_sample_grids(files: Files, name: str, folder: str, rows: pd.DataFrame) -> None:
    """Write `sheets/FOLDER/DATASET-reconstructions.png` and `DATASET-samples.png` for each data set.

    They show the first trial of each method and density. Nothing is written for trials without sample grids.
    """
    for dataset, trials in first_trials(files, name, rows).items():
        for kind, compose in COMPOSED.items():
            paths = {title: sample_grid_path(name, trial, f"{kind}.png") for title, trial in trials.items()}
            grids = {title: grid for title, path in paths.items() if (grid := _read_grid(files, path))}
            if grids:
                files.write(figure_path("sheets", folder, f"{dataset}-{kind}.png"), _png(compose(grids)))


def first_trials(files: Files, name: str, rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Data set -> title -> id of the first trial, by seed and then in the order of `rows`, that has sample grids.

    A title is the method, followed by the density that is sampled, if there is one: `gje, gaussian`.
    """
    folders = files.list(sample_grids_folder(name))
    if not folders:
        return {}
    with_grids = rows[rows["trial_id"].isin(folders)].sort_values("seed", kind="stable")
    densities = with_grids.get(DENSITY, pd.Series(NO_DENSITY, with_grids.index)).fillna(NO_DENSITY)
    named = zip(with_grids["method"], densities, strict=True)
    titles = [method if density == NO_DENSITY else f"{method}, {density}" for method, density in named]
    shown = with_grids.assign(title=titles).drop_duplicates(["dataset", "title"]).sort_index()
    return {
        str(dataset): dict(zip(part["title"], part["trial_id"], strict=True))
        for dataset, part in shown.groupby("dataset")
    }


def reconstructions(grids: Mapping[str, Image.Image]) -> Image.Image:
    """The originals above a row of reconstructions for each method. The upper half of a method's grid has the
    originals, the lower half the reconstructions, each with its label on the left."""
    halves = [
        (grid.crop((0, 0, grid.width, grid.height // 2)), grid.crop((0, grid.height // 2, *grid.size)))
        for grid in grids.values()
    ]
    return _stacked([halves[0][0], *(lower for _, lower in halves)])


def samples(grids: Mapping[str, Image.Image]) -> Image.Image:
    """The samples of the methods beside each other, up to `ABREAST` in a line, each below the name of its method."""
    titled = [_titled(method, grid) for method, grid in grids.items()]
    return _stacked([_abreast(titled[start : start + ABREAST]) for start in range(0, len(titled), ABREAST)], left=True)


COMPOSED: Mapping[str, Callable[[Mapping[str, Image.Image]], Image.Image]] = {
    "reconstructions": reconstructions,
    "samples": samples,
}
"""Name of a trial's sample grid -> the function that composes those of several methods."""


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


def _read_grid(files: Files, path: str) -> Image.Image | None:
    """The picture at `path`, or None if there is none, or if it is damaged, about which a line is logged."""
    try:
        data = files.read(path, MAX_BYTES)
        return None if data is None else open_grid(data)
    except (DamagedError, ValueError) as error:
        files.log(f"store {files.display_uri}: '{path}' cannot be shown: {error}")
        return None


def open_grid(data: bytes) -> Image.Image:
    """Return a sample grid, a PNG of at most `MAX_PIXELS`, as RGB. Raises ValueError for anything else."""
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


Arrays = TypeVar("Arrays")


def read_arrays(files: Files, path: str, parse: Callable[[Mapping[str, Any]], Arrays]) -> Arrays | None:
    """Return `parse` of the arrays at `path`, by name. None if there is no such file, or if it is damaged, about which
    a line is logged."""
    try:
        data = files.read(path, MAX_BYTES)
        if data is None:
            return None
        _check_sizes(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return parse(arrays)
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds for a damaged file
        files.log(f"store {files.display_uri}: '{path}' cannot be shown: {error}")
        return None


def _check_sizes(data: bytes) -> None:
    """Raise ValueError if arrays declare more bytes than they have or may have: NumPy would allocate them first."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (size := sum(member.file_size for member in archive.infolist())) > MAX_BYTES:
            raise ValueError(f"its arrays must have at most {MAX_BYTES >> 20} MiB, but declare {size / 2**20:.1f}")
        for member in archive.infolist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, _, kind = header[version](stream)
            if math.prod(shape) * kind.itemsize > member.file_size:
                raise ValueError(f"array {member.filename} declares {shape} values, more than its bytes hold")


MAP_FILE = "tsne.npz"
"""A trial's map, in the folder of its sample grids."""
PANEL, MAP_GAP, MAP_TITLE = 3.0, 0.25, 0.45
"""Side of a panel, space between two, and height of the title above each, in inches."""
TOP, BOTTOM = 0.95, 0.55
"""Space above and below the panels, in inches."""


@dataclass(frozen=True)
class LatentMap:
    """Places on a trial's map, `[N, 2]`."""

    samples: NDArray[np.float32]
    test: NDArray[np.float32]
    labels: NDArray[np.int16]
    """Class of each test image, below 0 if it is unknown."""
    dimensions: int
    """Dimensions of the latents."""
    components: int
    """Gaussians of the density."""


def write_latent_maps(files: Files, name: str, folder: str, rows: pd.DataFrame, about: str = "") -> None:
    """Write `sheets/FOLDER/DATASET-tsne.png` for each data set, with a panel for the first trial of each method and
    density that has a map. `about` is a line below the title."""
    for dataset, trials in first_trials(files, name, rows).items():
        paths = {title: sample_grid_path(name, trial, MAP_FILE) for title, trial in trials.items()}
        maps = {title: latent_map for title, path in paths.items() if (latent_map := _read_map(files, path))}
        if maps:
            metrics = {title: rows[rows["trial_id"] == trials[title]].iloc[0] for title in maps}
            files.write(
                figure_path("sheets", folder, f"{dataset}-tsne.png"), png(draw_latent_maps(maps, metrics, about))
            )


def draw_latent_maps(maps: Mapping[str, LatentMap], metrics: Mapping[str, pd.Series], about: str = "") -> Figure:
    """Draw a panel for each map, with its density's volume and spread, if these are in `metrics`, below its title."""
    columns = min(ABREAST, len(maps))
    lines = -(-len(maps) // columns)
    figure = Figure(
        (columns * (PANEL + MAP_GAP) - MAP_GAP, TOP + lines * (PANEL + MAP_TITLE + MAP_GAP) - MAP_GAP + BOTTOM)
    )
    FigureCanvasAgg(figure)
    width, height = figure.get_size_inches()
    for index, (title, latent_map) in enumerate(maps.items()):
        row, column = divmod(index, columns)
        top = TOP + row * (PANEL + MAP_TITLE + MAP_GAP) + MAP_TITLE
        box = (column * (PANEL + MAP_GAP) / width, 1 - (top + PANEL) / height, PANEL / width, PANEL / height)
        axis = figure.add_axes(box)
        _draw_panel(axis, latent_map)
        axis.text(0, 1.085, title, transform=axis.transAxes, fontsize=10, weight="bold", color=INK)
        axis.text(0, 1.02, _measured(metrics[title]), transform=axis.transAxes, fontsize=8.5, color=MUTED)
    first = next(iter(maps.values()))
    texts = (("samples among representations of test images", 12.5, "bold", 0.22), (about, 10, "normal", 0.48))
    for text, size, weight, below in texts:
        figure.text(0, 1 - below / height, text, fontsize=size, weight=weight, color=INK, va="center")
    figure.text(0, 1 - 0.72 / height, map_caption(maps), fontsize=9, color=INK, va="center")
    _add_legend(figure, first)
    return figure


def map_caption(maps: Mapping[str, LatentMap]) -> str:
    """What the points are, and the largest volume and spread that unit vectors can have."""
    sizes = {(latent_map.dimensions, len(latent_map.samples), len(latent_map.test)) for latent_map in maps.values()}
    (dimensions, samples, test) = max(sizes)
    volume = format_significant(dimensions * math.log(dimensions))
    counts = sorted({latent_map.components for latent_map in maps.values()} - {1})
    spreads = [f"{format_significant(math.sqrt(2 * count / (count - 1)))} (K = {count})" for count in counts]
    limits = f"ceilings for unit vectors: volume {MINUS}D log D = {MINUS}{volume} (D = {dimensions})"
    spread = f", spread sqrt(2K/(K{MINUS}1)) = {' and '.join(spreads)}" if spreads else ""
    return f"t-SNE of {samples} samples and {test} images; {limits}{spread}"


def _draw_panel(axis: Axes, latent_map: LatentMap) -> None:
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_color(PALE)
    known = latent_map.labels >= 0
    colours = np.array([*map(_colour, latent_map.labels)])
    unknown, shown, samples = latent_map.test[~known], latent_map.test[known], latent_map.samples
    axis.scatter(unknown[:, 0], unknown[:, 1], s=5, c=PALE, linewidths=0)
    axis.scatter(shown[:, 0], shown[:, 1], s=5, c=colours[known], linewidths=0, alpha=0.75)
    axis.scatter(samples[:, 0], samples[:, 1], s=13, c=INK, marker="x", linewidths=0.8)


def _colour(label: int) -> tuple[float, float, float]:
    """The colour of a class; from the eleventh class on they repeat."""
    red, green, blue, _ = colormaps["tab10"](int(label) % 10)
    return float(red), float(green), float(blue)


def _add_legend(figure: Figure, latent_map: LatentMap) -> None:
    labels = [int(label) for label in np.unique(latent_map.labels) if 0 <= label < 10]
    style: dict[str, Any] = {"linestyle": "", "markersize": 5}
    handles = [Line2D([], [], marker="o", color=_colour(label), label=str(label), **style) for label in labels]
    handles.append(Line2D([], [], marker="x", color=INK, label="sample", **style))
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 0),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handletextpad=0.1,
        columnspacing=1.0,
        borderaxespad=0,
    )


def _measured(row: pd.Series) -> str:
    """The volume and the spread of a trial, as far as it has them."""
    shown = {"volume": row.get("density_volume"), "spread": row.get("spread"), "sure": row.get("sample_confident")}
    known = {name: float(value) for name, value in shown.items() if value is not None and not pd.isna(value)}
    return ", ".join(f"{name} {format_significant(value)}" for name, value in known.items())


def _read_map(files: Files, path: str) -> LatentMap | None:
    """The map at `path`, or None if there is none, or if it is damaged."""

    def parse(parts: Mapping[str, Any]) -> LatentMap:
        return LatentMap(
            parts["samples"], parts["test"], parts["labels"], int(parts["dimensions"]), int(parts["components"])
        )

    return read_arrays(files, path, parse)


def png(figure: Figure) -> bytes:
    """Return the figure, and what stands out from it, as a PNG with `PAD` around it."""
    picture = io.BytesIO()
    dots = float(min(DOTS, MOST_DOTS / max(figure.get_size_inches())))
    figure.set_dpi(dots)
    box = figure.get_tightbbox().padded(PAD)  # what `bbox_inches="tight"` finds, after drawing the figure once more
    settings = {"compress_level": COMPRESSION}
    figure.savefig(picture, format="png", dpi=dots, facecolor="white", bbox_inches=box, pil_kwargs=settings)
    return picture.getvalue()
