"""One-class methods and settings shared by the sweeps `one_class_benchmark`, `normal_images` and `contamination`."""

from collections.abc import Collection, Mapping

from search_spaces._protocols import MOCO_V2_VIEWS, ONE_CLASS, ONE_CLASS_DIGITS, ONE_CLASS_FASHION, SEEDS, Keys
from sweeper.definition import Grid, Metric, Value

CHOSEN, BEST_ON_TEST = Metric("auroc_chosen", "maximize", percent=True), Metric("auroc_best_on_test", "maximize", True)
"""AUROC of a trial's score that is best on its validation images, and of the score that is best on test images."""
REPLICATES: Mapping[str, tuple[Value, ...]] = {"normal_class": tuple(range(10)), "seed": SEEDS}
ONE_SEED: Mapping[str, tuple[Value, ...]] = {**REPLICATES, "seed": SEEDS[:1]}
"""One seed per class: three seeds on Fashion-MNIST would take more than two hours on two idle cores. One seed suffices
to compare two methods over classes; a method's own number needs more seeds."""
UNTRAINED = ("pixels", "random")
FEW = ("pixels", "vje", "simclr", "deep_svdd")
"""The methods trained on fewer or contaminated images."""
SCORES: Keys = {"one_class_scores": "knn1+knn5+cosine1+kde+gaussian+ocsvm+forest"}
"""Scores fitted to the representations and projections of the training images."""


def _protocol(vje: Keys) -> Keys:
    """The protocol of a VJE sweep without VJE's own settings, evaluated at the end with all scores."""
    own = ("method", "bottleneck", "score_samples")
    return {**{key: value for key, value in vje.items() if key not in own}, "report_every": vje["epochs"], **SCORES}


DIGITS = _protocol(ONE_CLASS_DIGITS)
"""Protocol for the digits: 100 steps. A fifth of the training images of all classes is held out for validation."""
FASHION = _protocol(ONE_CLASS_FASHION)
"""Protocol for Fashion-MNIST in minutes on two cores: 800 steps, and a fifth of the training images held out."""
CIFAR10: Keys = {**_protocol(ONE_CLASS), "validation": 0.1}
"""Protocol for CIFAR-10. The papers hold out no images; here a tenth is held out to choose a score."""

CONTRASTIVE: Keys = {"lr": 0.005, "crop_scale": 0.5, "projector_width": 128, "projection": 64}
ADAM: Keys = {"optimiser": "adam", "lr": 1e-3, "weight_decay": 5e-7, "rotation": 0.0}
VARIATIONAL: Keys = {
    **ADAM,
    "encoder": "relu_mlp",
    "hidden": "256+256",
    "decoder": "relu_mlp",
    "decoder_hidden": "256+256",
    "features": 16,
    "normalise": False,
}
CONVOLUTIONAL: Keys = {**ADAM, "encoder": "convnet", "width": 16, "features": 64}
PREDICTION: Keys = {**CONVOLUTIONAL, "translation": 0.0}
"""Settings of methods that classify 4 rotations of an image (8 with mirror images), without other augmentation: with
shifts a step would encode nine times as many images. Of two encoders and two learning rates these gave the best AUROC
of rotation prediction's own score on validation images of the digits, with a seed that is not in `SEEDS`."""
LENET: Keys = {**ADAM, "encoder": "lenet", "decoder": "lenet", "features": 32, "contrast_normalise": True}
"""Deep SVDD's networks and pixels, with a learning rate that suits few steps."""


def _small(epochs: int) -> dict[str, Keys]:
    """Method -> its own settings on the digits and on Fashion-MNIST. VJE has the paper's optimum. SimCLR's learning
    rate of 0.005 was the best of three on validation images of the digits; nothing was chosen on test images. Methods
    that encode 4 or 8 copies of an image per step have fewer epochs, so that they encode as many images as VJE, which
    encodes 2."""
    return {
        "pixels": {"one_class_scores": "all"},
        "random": {},
        "vje": {"beta": 1.0, "nu": 0.5, "bottleneck": 64, "score_samples": 0},
        "vae": {**VARIATIONAL, "sigma_x2": 0.1},
        "simvae": {**VARIATIONAL, "sigma_x2": 0.02, "sigma2": 0.15, "views": 4, "rotation": 5.0},
        "simclr": {**CONTRASTIVE, "tau": 0.5},
        "moco_v2": {**CONTRASTIVE, "tau": 0.2, "queue": 96},
        "gje": {"projector_width": 0, "lr": 0.005},
        "deep_svdd": {**LENET, "pretrain_epochs": epochs // 2},
        "autoencoder": LENET,
        "rotation_prediction": {**PREDICTION, **_epochs(epochs // 2)},
        "geom": {**PREDICTION, **_epochs(epochs // 4)},
        "goad": {**PREDICTION, **_epochs(epochs // 4)},
        "csi": {**CONVOLUTIONAL, "rotation": 5.0, "projector_width": 64, "projection": 32, **_epochs(epochs // 4)},
    }


def _epochs(count: int) -> Keys:
    return {"epochs": count, "report_every": count}


def small(methods: Collection[str], epochs: int) -> Mapping[str, Keys]:
    """The settings of these methods for this many epochs."""
    return {method: own for method, own in _small(epochs).items() if method in methods}


SMALL_DIGITS, SMALL_FASHION = _small(50), _small(8)
WITHOUT_VIEWS: Keys = {"crop_scale": 1.0, "flip": 0.0, "jitter": 0.0, "greyscale": 0.0}
PAPER_LENET: Keys = {
    **WITHOUT_VIEWS,
    "encoder": "lenet_wide",
    "decoder": "lenet_wide",
    "features": 128,
    "contrast_normalise": True,
    "batch_size": 200,
    "optimiser": "adam",
    "lr": 1e-4,
    "weight_decay": 5e-7,
}
PAPER_PREDICTION: Keys = {**WITHOUT_VIEWS, "lr": 0.1, "weight_decay": 5e-4}
PAPER_CONTRASTIVE: Keys = {
    **MOCO_V2_VIEWS,
    "crop_scale": 0.08,
    "epochs": 1000,
    "report_every": 1000,
    "batch_size": 512,
    "lr": 0.1,
    "weight_decay": 1e-6,
}
PAPER: Mapping[str, Keys] = {
    "pixels": {"one_class_scores": "all"},
    "random": {},
    "vje": {"beta": 1.0, "nu": 0.5, "bottleneck": 128, "score_samples": 0},
    "deep_svdd": {**PAPER_LENET, "pretrain_epochs": 350, "epochs": 500, "report_every": 500},
    "autoencoder": {**PAPER_LENET, "epochs": 350, "report_every": 350},
    "rotation_prediction": {**PAPER_PREDICTION, "epochs": 200, "report_every": 200, "batch_size": 128},
    "geom": {**PAPER_PREDICTION, "encoder": "wide_resnet10_4", "epochs": 3, "report_every": 3, "batch_size": 128},
    "goad": {**PAPER_PREDICTION, "encoder": "wide_resnet10_4", "epochs": 15, "report_every": 15, "batch_size": 64},
    "simclr": {**PAPER_CONTRASTIVE, "tau": 0.5},
    "csi": {**PAPER_CONTRASTIVE, "tau": 0.5},
}
"""Method -> its authors' settings on CIFAR-10 that differ from those of VJE."""


def method_grids(
    protocol: Keys, methods: Mapping[str, Keys], axes: Mapping[str, tuple[Value, ...]] = REPLICATES
) -> tuple[Grid, ...]:
    """One grid for each method over the axes. Methods that do not train have no epochs. Pixels also have seeds, because
    isolation forests depend on them and settings without seeds would not be compared with the others."""
    return tuple(_grid({**protocol, "method": method, **own}, axes) for method, own in methods.items())


def _grid(keys: Keys, axes: Mapping[str, tuple[Value, ...]]) -> Grid:
    if keys["method"] not in UNTRAINED:
        return Grid(keys, axes)
    return Grid({**keys, "epochs": 0, "report_every": 1}, axes, pinned=frozenset({"epochs"}))
