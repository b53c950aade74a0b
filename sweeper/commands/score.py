"""`sweeper score MODEL FOLDER`: anomaly scores of image files by a trained model, and which of them are flagged."""

import csv
import io
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK, Parser, command_line
from sweeper.errors import SpecError, StoreError
from sweeper.models import load_model, score_line, set_alarm_rate
from sweeper.option_values import device, named, rate
from sweeper.printing import print, printable
from sweeper.report.formatting import format_significant, text_table
from sweeper.storage.local_disk import replace

ABOUT = (
    "Score image files by a trained model, the most anomalous first, and flag those above its threshold. Files are "
    "resized as the training images were."
)
EXITS = (
    "Exit status: 0; 1 if some files cannot be read as images, each said in a line; 2 for a wrong request; 130 "
    "interrupted."
)
ALARM_RATE = 0.05
"""False-alarm rate of a model that has none of its own, if enough images were held out."""
AT_ONCE = 4096
"""Most files that are decoded at a time."""
MOST_PRINTED = 20
"""Most files that are printed; a CSV file has all."""
MOST_SHOWN = 20
"""Images of each end that the sample grid shows."""


@dataclass(frozen=True)
class ScoredFile:
    """An image file."""

    path: str
    """Below the folder."""
    score: float
    image: Any
    """uint8 `[C, H, W]`, as the model sees it."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("score", ABOUT, EXITS)
    add = parser.add_argument
    add("model", metavar="MODEL", help="file of the model: of sweeper export, or in the store's models/")
    add("folder", metavar="FOLDER", help="folder of the image files, with all folders in it")
    rate_help = f"flag at this false-alarm rate (default: that of the file, else {ALARM_RATE:g})"
    add("--alarm-rate", type=partial(rate, "--alarm-rate"), metavar="RATE", help=rate_help)
    add("--score", metavar="NAME", help="one of the model's scores (default: the chosen one)")
    add("--csv", type=partial(named, "--csv", noun="a file"), metavar="FILE", help="write file, score and flag of all")
    grid_help = "write a picture of the most and the least anomalous images (default: scores.png)"
    add("--grid", type=partial(named, "--grid", noun="a file"), default="scores.png", metavar="FILE", help=grid_help)
    flag_help = "copy the flagged files into this folder"
    add("--flag-to", type=partial(named, "--flag-to", noun="a folder"), metavar="FOLDER", help=flag_help)
    method_help = "code of your own that may be imported (again for more)"
    add("--method", action="append", default=[], metavar="MODULE:CLASS", help=method_help)
    add("--device", type=partial(device, "--device"), default="cpu", metavar="cpu|cuda", help="where it computes")
    options = parser.parse_args(arguments)
    folder = options.folder
    if not os.path.isdir(folder):
        raise SpecError(f"FOLDER must be a folder of image files, but '{folder}' is none")
    if options.flag_to:
        _check_apart(options.flag_to, folder)
    for name in filter(None, (options.csv, options.grid)):
        if os.path.isdir(name) or not os.path.isdir(os.path.dirname(os.path.abspath(name))):
            raise SpecError(f"a file to write must be in a folder that exists, but got '{name}'")
    model = load_model(options.model, methods=options.method, device=options.device)
    name, threshold = _flagging(model, options.score, options.alarm_rate)
    paths, skipped = _files(folder)
    if skipped:
        print(printable(f"skipped, as no images: {_few(skipped)}"), file=sys.stderr)
    scored, faults = _scored(model, name, folder, paths)
    for fault in faults.values():
        print(printable(fault), file=sys.stderr)
    if not scored:
        raise SpecError(f"FOLDER must have image files, but '{folder}' has none that can be read")
    scored.sort(key=lambda each: (-each.score, each.path))
    flagged = [each for each in scored if each.score > threshold]
    if options.csv:
        _write(options.csv, _csv(scored, threshold, faults).encode())
    _write(options.grid, _grid(model, name, scored, threshold, f"{Path(folder).name}: {len(scored)} images"))
    for each in flagged if options.flag_to else ():
        _copy(os.path.join(folder, each.path), os.path.join(options.flag_to, each.path))
    print(_table(scored[:MOST_PRINTED], threshold))
    for line in _lines(model, name, scored, threshold, options, len(flagged)):
        print(printable(line))
    return EXIT_FAILED if faults else EXIT_OK


def _check_apart(flag_to: str, folder: str) -> None:
    """Raise SpecError for a folder of flagged files within that of the images: the next call would score them again."""
    inner, outer = (os.path.realpath(path) for path in (flag_to, folder))
    if os.path.commonpath([inner, outer]) == outer:
        raise SpecError(f"--flag-to must be a folder outside of FOLDER, but '{flag_to}' is in '{folder}'")
    if os.path.exists(flag_to) and not os.path.isdir(flag_to):
        raise SpecError(f"--flag-to must be a folder, but '{flag_to}' is a file")


def _flagging(model: Any, score: str | None, alarm_rate: float | None) -> tuple[str, float]:
    """The name of the score, and the threshold of the model: infinite, and its rate None, if no rate was given and too
    few images were held out. Raises SpecError."""
    if not hasattr(model, "load_images") or not model.scores:
        raise SpecError("MODEL must be a model of images with anomaly scores, but has none")
    if score is not None and score not in model.scores:
        raise SpecError(f"no score '{score}'; there are: {', '.join(model.scores)}")
    name = score or model.chosen_score
    try:
        model.load_images([])
        wanted = alarm_rate or model.alarm_rate or ALARM_RATE
        set_alarm_rate(model, wanted)
        return name, model.threshold_at(wanted, name)
    except ValueError as error:
        raise SpecError(str(error)) from None
    except SpecError:
        if alarm_rate is not None:
            raise
        model.alarm_rate = None
        return name, np.inf


def _files(folder: str) -> tuple[list[str], list[str]]:
    """The paths of all files below a folder, sorted, and of those that file managers leave there."""
    from trainables.data.datasets.class_folders import is_ignored

    found, skipped = list[str](), list[str]()
    for root, folders, names in os.walk(folder):
        skipped += [os.path.relpath(os.path.join(root, name), folder) for name in folders if is_ignored(name)]
        folders[:] = [name for name in folders if not is_ignored(name)]
        for name in names:
            (skipped if is_ignored(name) else found).append(os.path.relpath(os.path.join(root, name), folder))
    return sorted(found), sorted(skipped)


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _scored(model: Any, name: str, folder: str, paths: Sequence[str]) -> tuple[list[ScoredFile], dict[str, str]]:
    """The image files with their scores, and the path of each other file with a line that says what is wrong."""
    from trainables.data.errors import DataError

    scored, faults = list[ScoredFile](), dict[str, str]()

    def load(path: str) -> Any:
        try:
            return model.load_images([os.path.join(folder, path)])[0]
        except DataError as error:
            return str(error)

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), AT_ONCE):
            part = paths[start : start + AT_ONCE]
            loaded = dict(zip(part, pool.map(load, part), strict=True))
            faults |= {path: image for path, image in loaded.items() if isinstance(image, str)}
            images = {path: image for path, image in loaded.items() if path not in faults}
            if images:
                values = model.score(np.stack([image.numpy() for image in images.values()]), name).tolist()
                scored += [ScoredFile(path, value, images[path]) for path, value in zip(images, values, strict=True)]
    return scored, faults


def _csv(scored: Sequence[ScoredFile], threshold: float, faults: dict[str, str]) -> str:
    """A line for each file: its score, whether it is flagged (1 or 0), and what is wrong with one that has no score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "score", "flagged", "error"])
    known = threshold < np.inf
    writer.writerows([each.path, repr(each.score), int(each.score > threshold) if known else "", ""] for each in scored)
    writer.writerows([path, "", "", fault] for path, fault in faults.items())
    return text.getvalue()


def _grid(model: Any, name: str, scored: Sequence[ScoredFile], threshold: float, title: str) -> bytes:
    """A PNG file of the images with the highest and with the lowest scores, the most anomalous first."""
    shown = min(MOST_SHOWN // (2 if model.has_heat else 1), (len(scored) + 1) // 2)
    ends = {"most anomalous": scored[:shown], "least anomalous": scored[max(shown, len(scored) - shown) :][::-1]}
    return draw_grid(model, name, ends, threshold, title)


def draw_grid(model: Any, name: str, parts: Mapping[str, Sequence[ScoredFile]], threshold: float, title: str) -> bytes:
    """A PNG file of images below the names of their parts, each with a heat map beside it if the model has one."""
    from sweeper.report.anomalies import SheetImage, draw_images  # here: they import Matplotlib
    from sweeper.report.sample_grids import png

    def sheet_image(each: ScoredFile) -> SheetImage:
        heat = model.heat(each.image[None])[0].cpu().numpy() if model.has_heat else None
        pixels = each.image.permute(1, 2, 0).numpy()
        return SheetImage(pixels, _short(each.path), each.score, each.score > threshold, heat=heat)

    beside = "; beside each image where it is anomalous (bright)" if model.has_heat else ""
    about = [f"score {name}{beside}", "no image is flagged: the model has no threshold"]
    if threshold < np.inf:
        about[1] = f"framed are those above {format_significant(threshold)}: a false-alarm rate of {model.alarm_rate:g}"
    return png(draw_images(title, about, {part: [*map(sheet_image, files)] for part, files in parts.items()}))


def _short(path: str) -> str:
    """The end of a file's name, which tells files apart more often than its beginning."""
    from sweeper.report.anomalies import LONGEST_NAME  # here: it imports Matplotlib

    name = os.path.basename(path)
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def _table(first: Sequence[ScoredFile], threshold: float) -> str:
    """The files that are printed, with their scores."""
    marks = ["flagged" if each.score > threshold else "" for each in first]
    scores = [format_significant(each.score) for each in first]
    return text_table({"score": scores, "": marks, "file": [each.path for each in first]}, right=("score",))


def _lines(
    model: Any, name: str, scored: Sequence[ScoredFile], threshold: float, options: Any, flagged: int
) -> Iterator[str]:
    """What is printed below the first files: how many were flagged, and what has been written."""
    if len(scored) > MOST_PRINTED:
        yield f"and {len(scored) - MOST_PRINTED} less anomalous files{'' if options.csv else '; --csv FILE has all'}"
    if name == model.chosen_score:
        yield score_line(model)
    if threshold < np.inf:
        yield f"flagged: {flagged} of {len(scored)} images, with a score above {threshold:.4g}"
    else:
        yield "flagged: none, as the model has no threshold: too few normal images were held out (validation=0.2)"
    for what, where in (("scores", options.csv), ("sample grid", options.grid)):
        if where:
            yield f"{what}: {where}"
    if options.flag_to:
        yield f"flagged files: {options.flag_to}"


def _copy(source: str, target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise StoreError(f"cannot write '{target}': {error.strerror}") from error


def _write(path: str, content: bytes) -> None:
    try:
        replace(Path(path), content)
    except OSError as error:
        raise StoreError(f"cannot write '{path}': {error.strerror}") from error
