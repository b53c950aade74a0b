"""`sweeper inspect FOLDER --normal good`: learn what is normal from images, and say which defects are found."""

import contextlib
import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from sweeper.commands.command_line import Parser, add_options, command_line
from sweeper.commands.conclusion import best_of, finish
from sweeper.commands.score import ScoredFile, draw_grid
from sweeper.commands.sweep_run import SweepRun
from sweeper.definition import Grid, Metric, Sweep, Table, Value
from sweeper.errors import SpecError
from sweeper.execution.signals import LAST_LINE, StopSignal
from sweeper.models import load_model
from sweeper.option_values import data_dir, named, rate, whole
from sweeper.planning.plan import Plan
from sweeper.printing import print, printable
from sweeper.request import Request
from sweeper.results.sentences import percent_text, share_text
from sweeper.storage.layout import figure_path, report_path
from sweeper.storage.load import load_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from trainables.metrics.detection import Detection, Share, detection, detections_of
from trainables.metrics.meanings import CHOSEN
from trainables.metrics.roc import alarm_bound, clopper_pearson, mann_whitney
from trainables.validation import unknown

if TYPE_CHECKING:
    from trainables.data.datasets.dataset import ImageListing

ABOUT = (
    "Train several methods on the images of one class in FOLDER/train/NAME/, test them on FOLDER/test/CLASS/, and say "
    "in ten lines which is best, which share of each defect it flags, and how sure that is. The same command continues."
)
EXITS = "Exit status: 0; 1 if a method failed; 2 for a wrong request, said in one line; 130 interrupted."
NAME = "inspect"
"""The sweep's name in the store."""
RATES = (0.01, 0.05, 0.1)
"""False-alarm rates of which the smallest two that the held-out images allow are reported."""
SIZES = (32, 48, 64)
"""Sides of images that are chosen by themselves; of larger ones training takes minutes on a CPU."""
DETAIL, LEAST_DETAIL = 4, 2
"""Pixels of a detail in a file of the median size, and the fewest that it should have after the resize."""
LOOKED_AT = 64
"""Most training images whose sizes and colours are looked at."""
GREY = 8
"""Largest difference of the channels of a pixel that is grey."""
STEPS = 240
"""Training steps of a method that is trained by gradients."""
BATCH = 32
MOST_OF_CLASS = 5
"""Images of a class in the sample grid."""
UNTRAINED: Mapping[str, Value] = {"encoder": "lenet_wide", "patch_layers": "layers.2+layers.6"}
"""The encoder of `patchcore` without a file of weights, and its layers: of the full and of half the resolution."""
MASK = 127
"""Grey level of a mask above which a pixel is of a defect."""
MOST_PIXELS = 4096
"""Most numbers of an image whose covariance is estimated: of more it takes minutes and gigabytes."""


Masks = dict[str, Any]
"""Path of a test image -> where its defect is, bool `[H, W]`."""


@dataclass(frozen=True)
class ImageFolder:
    """The user's images, and what is chosen by them."""

    path: str
    normal: str
    listing: "ImageListing"
    side: float
    """Median of the shorter sides of the training images, in pixels."""
    grey: bool

    @property
    def images(self) -> int:
        """Number of normal training images."""
        return self.listing.train[self.listing.classes.index(self.normal)]

    @property
    def validation(self) -> float:
        """Share that is held out for thresholds: half, or of many images as many as the smallest rate needs twice."""
        return round(max(0.2, min(0.5, 200 / max(1, self.images))), 3)

    @property
    def rates(self) -> tuple[float, ...]:
        """The false-alarm rates that are reported. Raises SpecError if too few images are held out for any."""
        held_out = math.floor(self.validation * self.images)
        needed = {rate: math.ceil(1 / rate) - 1 for rate in RATES}
        possible = [rate for rate in RATES if needed[rate] <= held_out]
        if not possible:
            least = 2 * needed[RATES[-1]] + 2
            raise SpecError(
                f"inspect needs at least {least} training images of {self.normal}, half of them for a threshold at a "
                f"false-alarm rate of {RATES[-1]:g}, but {self.path}/train/{self.normal} has {self.images}; add images "
                f"there ({2 * needed[RATES[0]] + 2} for a rate of {RATES[0]:g})"
            )
        return tuple(possible[:2])

    def checked(self, alarm_rate: float) -> float:
        """The rate. Raises SpecError if too few images are held out for it."""
        held_out, needed = math.floor(self.validation * self.images), math.ceil(1 / alarm_rate) - 1
        if needed > held_out:
            raise SpecError(
                f"--alarm-rate {alarm_rate:g} needs {needed} held-out images of {self.normal}, but inspect holds out "
                f"{held_out} of {self.images}; choose {1 / (held_out + 1):.2g} or more, or add images"
            )
        return alarm_rate

    def size(self) -> int:
        """Side of the images that methods see: the smallest of `SIZES` in which a detail keeps its pixels, if any."""
        wanted = LEAST_DETAIL / DETAIL * self.side
        return next((size for size in SIZES if size >= wanted), SIZES[-1])


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("inspect", ABOUT, EXITS)
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="folder with train/NAME/ and test/CLASS/")
    add("--normal", required=True, type=partial(named, "--normal", noun="a class"), metavar="NAME", help="normal class")
    size_help = f"side of the images that methods see (default: chosen by the files, at most {SIZES[-1]})"
    add("--image-size", type=partial(whole, "--image-size", least=16), metavar="N", help=size_help)
    add(
        "--weights",
        default="",
        metavar="NAME=FILE",
        help="weights of patchcore's encoder: a network of torchvision and a file with its state dict, as "
        "wide_resnet50_2=wrn50.pth (default: random ones)",
    )
    rates_text = ", ".join(map(str, RATES))
    rate_help = f"say what is flagged at this false-alarm rate (default: the first two of {rates_text} that can be had)"
    add("--alarm-rate", type=partial(rate, "--alarm-rate"), metavar="RATE", help=rate_help)
    add_options(parser, "store")
    options = parser.parse_args(arguments)
    stopping = StopSignal()
    with stopping.on_signals():
        found = image_folder(data_dir("FOLDER", options.folder), options.normal)
        size = options.image_size or found.size()
        request, masks = request_for(found, size, options.store, options.weights), read_masks(found, size)
        if options.alarm_rate:
            request = replace(request, alarm_rate=found.checked(options.alarm_rate))
        run = SweepRun.planned(request, backends=_in_this_process, conclude=partial(conclude, found, masks))
        for line in _of_files(found, size):
            print(printable(line))
        return run.begin(stopping).execute(shlex.join(["sweeper", "inspect", *arguments]))


def image_folder(path: str, normal: str) -> ImageFolder:
    """Look at the user's images. Raises SpecError, with one line, if they cannot be used."""
    from trainables.data.datasets.class_folders import list_folder  # here: it imports torch
    from trainables.data.errors import DataError
    from trainables.data.image_files import decode_file

    try:
        listing = list_folder(Path(path))
        if normal not in listing.classes:
            raise SpecError(unknown("class", normal, listing.classes))
        index = listing.classes.index(normal)
        own = listing.paths[0][sum(listing.train[:index]) :][: listing.train[index]]
        chosen = [own[place] for place in np.linspace(0, len(own) - 1, min(len(own), LOOKED_AT), dtype=int)]
        images = [decode_file(file, lambda image: [image.copy()])[0] for file in chosen]
    except DataError as error:
        raise SpecError(str(error)) from error
    side = float(median(min(image.size) for image in images)) if images else 0.0
    return ImageFolder(path, normal, listing, side, all(map(_is_grey, images)))


def _is_grey(image: Image.Image) -> bool:
    pixels = np.asarray(image.convert("RGB").resize((32, 32)), dtype=int)
    return bool((pixels.max(-1) - pixels.min(-1)).max() <= GREY)


def request_for(found: ImageFolder, size: int, store: str, weights: str = "") -> Request:
    """The request that trains the methods on the user's images, in order of what a reader may expect of them: pixels
    first, the networks after them. Each has one score, its first, for normal images alone choose none. `weights`: see
    `--weights`."""
    channels = 1 if found.grey else 3
    held_out = math.floor(found.validation * found.images)
    batch = max(2, min(BATCH, (found.images - held_out) // 2))
    epochs = math.ceil(STEPS / max(1, (found.images - held_out) // batch))
    rates = found.rates
    fixed: dict[str, Value] = {
        "dataset": "folder",
        "image_size": size,
        "image_channels": channels,
        "validation": found.validation,
        "alarm_rates": "+".join(f"{rate:g}" for rate in rates),
        "sheets": True,
        **{"crop_scale": 1.0, "flip": 0.0, "jitter": 0.0, "greyscale": 0.0, "rotation": 0.0},
    }
    by_gradients: dict[str, Value] = {"batch_size": batch, "optimiser": "adam", "lr": 1e-3, "weight_decay": 0.0}
    lenet: dict[str, Value] = {"encoder": "lenet", "decoder": "lenet", "features": 32, "epochs": epochs}
    lenet |= {**by_gradients, "report_every": epochs, "one_class_scores": "knn1"}
    untrained: dict[str, Value] = {**by_gradients, "epochs": 0}
    scores = ("knn1", "gaussian") if channels * size**2 <= MOST_PIXELS else ("knn1",)
    random: dict[str, Value] = {"encoder": "convnet", "width": 16, "features": 64, "one_class_scores": "gaussian"}
    patches = _pretrained(weights) if weights else UNTRAINED
    of_methods: list[dict[str, Value]] = [
        *({**untrained, "method": "pixels", "one_class_scores": score} for score in scores),
        {**untrained, "method": "random", **random},
        {"method": "patchcore", "epochs": 1, **patches, "one_class_scores": "knn1"},
        {**lenet, "method": "autoencoder"},
        {**lenet, "method": "deep_svdd", "pretrain_epochs": epochs // 2},
    ]
    sweep = Sweep(
        "which defects are found by what was learned from normal images",
        {"methods": tuple(Grid({**fixed, **own}, {"seed": (0,)}) for own in of_methods)},
        figures=(Table("methods", ("method", "one_class_scores"), (Metric(CHOSEN, "maximize"),)),),
        name=NAME,
    )
    wanted: Value = found.listing.classes.index(found.normal)
    return Request(NAME, sweep, store=store, data=found.path, fixed={"normal_class": wanted})


def _pretrained(weights: str) -> dict[str, Value]:
    """The keys of an encoder whose network and file of weights `NAME=FILE` names. Raises SpecError."""
    name, equals, file = weights.partition("=")
    if not (name and equals and file):
        raise SpecError(f"--weights must be a network of torchvision and its file, resnet18=FILE, but got '{weights}'")
    return {"encoder": f"torchvision:{name}", "weights": file, "normalise": False}


@contextlib.contextmanager
def _in_this_process(request: Request, *_: object) -> Iterator[Any]:
    """Context with what trains the methods, one after the other: no cluster need be started for a few minutes."""
    from sweeper.execution.local_backend import LocalBackend

    yield LocalBackend(request.data)


def _of_files(found: ImageFolder, size: int) -> Iterator[str]:
    """What methods see of the files."""
    kind = "grey" if found.grey else "colour"
    yield f"images: {kind}, {found.side:.0f} pixels a side in the median, resized to {size} x {size}"
    kept = DETAIL * size / found.side if found.side else DETAIL
    if kept < LEAST_DETAIL:
        wanted = math.ceil(LEAST_DETAIL / DETAIL * found.side / 16) * 16
        yield (
            f"note: a detail of {DETAIL} pixels in a file is {kept:.1f} pixels then, and hardly seen; --image-size "
            f"{wanted} keeps {LEAST_DETAIL}, and takes longer"
        )


def conclude(found: ImageFolder, masks: Masks, plan: Plan, store: Store, columns: Columns, request: Request) -> int:
    """Write figures and page as any run does, and print ten lines in place of what it prints. Returns the exit
    status."""
    with contextlib.redirect_stdout(io.StringIO()):
        status = finish(plan, store, columns, replace(request, alarm_rate=request.alarm_rate or found.rates[0]))
    for line in lines(found, masks, plan, store, columns, request):
        print(printable(line))
    return status


def lines(
    found: ImageFolder, masks: Masks, plan: Plan, store: Store, columns: Columns, request: Request
) -> Iterator[str]:
    """Which method is best, what it flags, how sure that is and would be, and where everything is."""
    rows = load_request(store.files, plan.name, plan.request_rows)
    answer = best_of(plan, store, columns, rows, request)
    choice = answer.choice if len(answer.choices) == 1 else None
    if choice is None or choice.model is None:
        yield f"no model can be used: {answer.text}"
        return
    trial, file = choice.trials[0], choice.model
    row = {name: value for name, value in rows.set_index("trial_id").loc[trial].items() if isinstance(value, float)}
    model = load_model(store.files, trial, sweep=plan.name)
    name, held_out = model.chosen_score, len(model.held_out[model.chosen_score])
    tested = dict(zip(found.listing.classes, found.listing.test, strict=True))
    defects = {label: count for label, count in tested.items() if label != found.normal and count}
    yield (
        f"{found.path}: {found.images - held_out} images of {found.normal} to learn from and {held_out} for "
        f"thresholds; tested on {tested[found.normal]} others and {sum(defects.values())} of {len(defects)} kinds "
        "of defect"
    )
    interval = f" [{choice.low:.3f}, {choice.high:.3f}]" if math.isfinite(choice.low) else ""
    area = f"AUROC {choice.mean:.3f}{interval}{' (95 % interval over test images)' if interval else ''}"
    others = f"{choice.not_told_apart} of the others are not told" if choice.not_told_apart else "all others are told"
    alike = f"; {others} apart from it" if interval else ""
    yield f"best of {choice.compared} methods: {choice.at.get('method', '')} by its score {name}, {area}{alike}"
    scored = _tested(found, model, name)
    asked = request.alarm_rate
    reported = _detections_at(asked, model, scored, found) if asked else detections_of(row)
    known = [each for each in reported if each.normal and each.anomalous]
    for each in known:
        yield _detected(each, found.listing.classes, found.normal)
    if known:
        yield from _surer(known[0], found, held_out, choice.chosen_on)
    threshold = model.threshold_at(known[0].rate) if known else math.inf
    model.alarm_rate = known[0].rate if known else None
    picture = draw_grid(model, name, _hardest(scored, found, threshold), threshold, f"{found.path}: test images")
    store.files.write(_grid_path(plan), picture)
    if model.has_heat and masks:
        yield _where(model, scored, masks, found)
    yield f"model: {file}"
    yield f"sample grid: {store.files.display_uri_of(_grid_path(plan))}"
    yield f"page: {store.files.display_uri_of(report_path(plan.name))}"
    next_rate = known[0].rate if known else found.rates[0]
    words = [file, "NEW_IMAGES", "--alarm-rate", f"{next_rate:g}", "--csv", "scores.csv", "--flag-to", "flagged"]
    yield f"next: sweeper score {shlex.join(words)}"


def _tested(found: ImageFolder, model: Any, name: str) -> list[ScoredFile]:
    """The test images with their scores, the most anomalous first."""
    paths = found.listing.paths[1]
    images = model.load_images(paths)
    values = model.score(images, name).tolist()
    scored = [ScoredFile(path, value, image) for path, value, image in zip(paths, values, images, strict=True)]
    return sorted(scored, key=lambda each: (-each.score, each.path))


def _detections_at(alarm_rate: float, model: Any, scored: Sequence[ScoredFile], found: ImageFolder) -> list[Detection]:
    """What the model flags of the test images at any rate: its file has the scores of the held-out images, by which
    the threshold is set."""
    classes = found.listing.classes
    label_N = np.array([classes.index(Path(each.path).parent.name) for each in scored])
    score_N, held_out_M = np.array([each.score for each in scored]), model.held_out[model.chosen_score].double().numpy()
    outlier_N = label_N != classes.index(found.normal)
    return detections_of(detection([alarm_rate], score_N, held_out_M, label_N, outlier_N, len(classes)))


def _hardest(scored: Sequence[ScoredFile], found: ImageFolder, threshold: float) -> dict[str, list[ScoredFile]]:
    """Of each class the images nearest to the wrong side of the threshold: the least anomalous of each kind of defect,
    and the most anomalous normal ones."""
    parts = {}
    for label in (*(name for name in found.listing.classes if name != found.normal), found.normal):
        own = [each for each in scored if Path(each.path).parent.name == label]
        flagged = sum(each.score > threshold for each in own)
        if own:
            which = "most" if label == found.normal else "least"
            shown = own[:MOST_OF_CLASS] if label == found.normal else own[::-1][:MOST_OF_CLASS]
            parts[f"{label}: {flagged} of {len(own)} flagged, the {which} anomalous"] = shown
    return parts


def read_masks(found: ImageFolder, size: int) -> Masks:
    """Path of each test image with a mask -> the mask, bool `[H, W]`: `ground_truth/CLASS/NAME_mask.png`, as MVTec has
    them, resized as images are. Raises SpecError for one that cannot be read."""
    from trainables.data.errors import DataError
    from trainables.data.image_files import decode_file

    masks = {}
    for path in found.listing.paths[1]:
        image = Path(path)
        file = Path(found.path) / "ground_truth" / image.parent.name / f"{image.stem}_mask.png"
        if file.is_file():
            try:
                (mask,) = decode_file(str(file), lambda opened: [opened.convert("L").resize((size, size))])
            except DataError as error:
                raise SpecError(str(error)) from error
            masks[path] = np.asarray(mask) > MASK
    return masks


def _where(model: Any, scored: Sequence[ScoredFile], masks: Masks, found: ImageFolder) -> str:
    """How well the heat map finds the defects of the images that have masks, among all of their pixels and those of
    normal images."""
    own = [each for each in scored if each.path in masks or Path(each.path).parent.name == found.normal]
    heat_NHW = model.heat(np.stack([each.image.numpy() for each in own])).double().numpy()
    mask_NHW = np.stack(
        [masks.get(each.path, np.zeros(heat.shape, bool)) for each, heat in zip(own, heat_NHW, strict=True)]
    )
    if not mask_NHW.any() or mask_NHW.all():
        return f"where: the masks of {len(masks)} images mark no pixels, or all"
    area = mann_whitney(heat_NHW[~mask_NHW], heat_NHW[mask_NHW])
    return f"where: the heat map beside each image has a pixel AUROC of {area:.3f}, by the masks of {len(masks)} images"


def _grid_path(plan: Plan) -> str:
    return figure_path("sheets", plan.request_folder, "folder-anomalies.png")


def _detected(each: Detection, classes: Sequence[str], normal: str) -> str:
    """Return e.g. `found at 1 % false alarms (at most 3.6 %): bent 53 % [27, 79], scratch 0 % [0, 22]; good 2.5 %
    [0.06, 13] (95 % intervals over images)`."""
    assert each.normal
    shares = ", ".join(f"{classes[number]} {share_text(share)}" for number, share in each.classes.items())
    return (
        f"found at {percent_text(each.rate)} false alarms (at most {percent_text(each.bound)}): {shares}; {normal} "
        f"{share_text(each.normal)} (95 % intervals over images)"
    )


def _surer(each: Detection, found: ImageFolder, held_out: int, chosen_on: str) -> Iterator[str]:
    """What would make it surer: more images of the kind of defect that is known least, and more good ones."""
    counts = found.listing.test
    number = max(each.classes, key=lambda label: each.classes[label].high - each.classes[label].low)
    share, more = each.classes[number], 4 * counts[number]
    then = Share(share.share, *clopper_pearson(round(share.share * more), more))
    surer = f"surer of {found.listing.classes[number]}: with {more} test images in place of {counts[number]}"
    bound = percent_text(alarm_bound(4 * held_out, each.rate))
    yield f"{surer} it would be about {share_text(then)}"
    yield (
        f"surer of false alarms: with {4 * held_out} held-out images of {found.normal} in place of {held_out} they are "
        f"at most {bound}"
    )
    if chosen_on == "test images":
        yield (
            "surer of the method: it was chosen on the test images, so that its numbers are a little too good; a few "
            f"labelled defects in {found.path}/train/ choose it on images of their own"
        )
