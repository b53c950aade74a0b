"""Small streams of the digits and of image files."""

from functools import cache
from pathlib import Path

from trainables.catalog import METHODS
from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.image_trial import Data, ImageTrial
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.sections import Value
from trainables.tasks.images.stream import ImageStream, select_classes
from trainables.tasks.images.task import image_method

THREE = Data(normal_class=3)
FILES: dict[str, Value] = {
    "dataset": "imagenet", "normal_class": None, "batch_size": 4, "rotation": 0.0, "shift": 0.0, "crop_scale": 0.2,
}  # fmt: skip
"""Three steps of four of the twelve images of `write_imagenet`."""


@cache
def digits() -> Dataset:
    return load("digits", Path())


def config_of(method: str = "vje", /, **changes: Value) -> ImageTrial:
    config = resolve({
        "method": method, "normal_class": 3, "width": 8, "features": 4, "batch_size": 20, "rotation": 10.0,
        "shift": 0.5, **({"bottleneck": 4} if method == "vje" else {}), **changes,
    })  # fmt: skip
    assert isinstance(config, ImageTrial)
    return config


def stream_of(config: ImageTrial, dataset: Dataset | None = None, peers: Peers = SINGLE_PROCESS) -> ImageStream:
    """A trial's stream, by default of the digits."""
    split = select_classes(dataset or digits(), config.data)
    return ImageStream(config, image_method(METHODS[config.method]), split, "cpu", peers)
