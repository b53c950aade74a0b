"""Small trials that are evaluated in several ways, of tiny data sets in place of the published ones or of the digits.

Shapes: K members, N images, D dimensions; C channels, H by W pixels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tests.trainables.methods.method_configs import OVERRIDES
from tests.trainables.small import HERE, image_trial, metrics_of
from trainables.catalog import METHODS
from trainables.contract import ImageMethod
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.dataset import Attribute, Dataset
from trainables.image_trial import ImageTrial
from trainables.methods.variational.vje import VJE
from trainables.metrics.evaluator import Floats
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.stacks import build_models
from trainables.training.train import train

K, N, M, D, C = 3, 130, 70, 7, 5
"""Members, bank images, test images, features and classes of the sets on which probes are tested."""
Sets = tuple[Tensor, Tensor, Tensor, Tensor]

TRAIN, TEST = 12, 5
"""Images of each class."""
CPU = torch.device("cpu")


def tiny(name: str) -> Dataset:
    """Random images with the shape, classes and attributes that are declared; a class is told by its mean."""
    declared, source = DATASETS[name].declaration, torch.Generator().manual_seed(0)

    def images(count: int) -> tuple[Tensor, Tensor]:
        labels_N = torch.arange(declared.classes).repeat_interleave(count)
        shade_NCHW = (labels_N / declared.classes).view(-1, 1, 1, 1)
        pixels = 0.7 * torch.rand(len(labels_N), *declared.shape, generator=source) + 0.3 * shade_NCHW
        return (declared.levels * pixels).byte(), labels_N

    (train_images, train_labels), (test_images, test_labels) = images(TRAIN), images(TEST)
    return Dataset(
        name=name,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=tuple(map(str, range(declared.classes))),
        levels=declared.levels,
        mean=(0.4,) * declared.shape[0],
        std=(0.3,) * declared.shape[0],
        attributes={
            attribute: Attribute(
                torch.randint(classes, train_labels.shape, generator=source),
                torch.randint(classes, test_labels.shape, generator=source),
                classes,
            )
            for attribute, classes in declared.attributes.items()
        },
    )


def trial(method: str, **changes: Value) -> ImageTrial:
    """An untrained trial with small networks."""
    small: Mapping[str, Value] = {"width": 6, "features": 6, "decoder_hidden": "8", "epochs": 0}
    own: Mapping[str, Value] = {"encoder": "convnet"} if METHODS[method].fitted() else {"batch_size": 8}
    return image_trial({"method": method, **OVERRIDES.get(method, {}), **small, **own, **changes})


def evaluated(*configs: ImageTrial, width: int | None = None, last: bool = True) -> dict[str, Floats]:
    """Metrics `[K]` of members as they are initialised."""
    return TrainingCohort(configs, HERE, CPU, width).evaluate(last)


def model_of(config: ImageTrial) -> ImageMethod:
    """The model of a trial as it is initialised, in evaluation mode."""
    (model,) = build_models([config], {"views": DATASETS[config.data.dataset].declaration.shape})
    assert isinstance(model, ImageMethod)
    return model.eval()


def pixels_of(images: object, dataset: Dataset) -> Tensor:
    """Images with pixels in [0, 1]."""
    assert isinstance(images, Tensor)
    return images / dataset.levels


@torch.no_grad()
def features(config: ImageTrial, images: object, dataset: Dataset) -> Tensor:
    """Representations `[N, D]` of images, which are normalised first."""
    return model_of(config)((pixels_of(images, dataset) - dataset.mean[0]) / dataset.std[0])


# --- Trials on all classes of the digits ---

SMALL: dict[str, dict[str, Value]] = {
    "vje": {"bottleneck": 8}, "random": {"epochs": 0}, "simsiam": {"projector_width": 8, "predictor_width": 4},
}  # fmt: skip
EVERYTHING: dict[str, Value] = {"knn": 5, "probe_epochs": 3, "outliers": "inverted+noise"}


def eval_config(method: str = "vje", /, **changes: Value) -> ImageTrial:
    defaults: dict[str, Value] = {
        "method": method, "width": 16, "features": 8, "batch_size": 60, "epochs": 2, "lr": 0.02, "rotation": 10.0,
    }  # fmt: skip
    return image_trial({**defaults, **SMALL.get(method, {}), **changes})


def last_metrics(config: TrialConfig) -> dict[str, float]:
    """The final metrics of a trial that are defined."""
    metrics = metrics_of(list(train([config], HERE)), 0)[-1]
    return {name: value for name, value in metrics.items() if value is not None}


def untrained(config: TrialConfig) -> VJE:
    """The model of a trial on the digits as it is initialised, in evaluation mode."""
    (model,) = build_models([config], {"views": (1, 8, 8)})
    assert isinstance(model, VJE)
    return model.eval()


def prepared(images: object) -> Tensor:
    """Digits as encoders take them."""
    assert isinstance(images, Tensor)
    return (images / 16 - 0.305470) / 0.376049


def scores_of(model: VJE, images: object) -> dict[str, Tensor]:
    """Anomaly scores of digits, of the posterior's mean."""
    return model.score(prepared(images), {"posterior": torch.empty(0)})
