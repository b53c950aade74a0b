"""One-class methods and the settings that the sweeps `one_class_benchmark`, `normal_images` and `contamination` share."""

from collections.abc import Mapping

from search_spaces._protocols import (
    MOCO_V2_VIEWS,
    ONE_CLASS,
    ONE_CLASS_DIGITS,
    ONE_CLASS_FASHION,
    SEEDS,
    Keys,
)
from sweeper.spec import Grid, Value

CLASSES = tuple(range(10))
REPLICATES: Mapping[str, tuple[Value, ...]] = {"normal_class": CLASSES, "seed": SEEDS}
"""Every method is trained on each class with each seed."""
UNTRAINED = ("pixels", "random")
OF_VJE = ("method", "bottleneck", "score_samples")


def without(protocol: Keys, keys: tuple[str, ...]) -> Keys:
    """The protocol without the keys that are a method's own."""
    return {key: value for key, value in protocol.items() if key not in keys}


FITTED: Keys = {"one_class_scores": "knn1+knn5+cosine1+kde+gaussian+ocsvm+forest"}
"""Scores that are fitted to each representation of the training images."""
DIGITS: Keys = {**without(ONE_CLASS_DIGITS, OF_VJE), "report_every": 50, **FITTED}
"""As `anomaly_grid --preset digits`: a fifth of the training images is held out, two steps make an epoch."""
FASHION: Keys = {**without(ONE_CLASS_FASHION, OF_VJE), "report_every": 8, **FITTED}
"""As `anomaly_grid --preset fashion`: 800 steps, a fifth of the training images is held out."""
CONTRASTIVE: Keys = {"lr": 0.02, "crop_scale": 0.6, "projector_width": 128, "projection": 64}
AUTOENCODER: Keys = {
    "optimiser": "adam",
    "lr": 1e-3,
    "encoder": "relu_mlp",
    "hidden": "256+256",
    "decoder": "relu_mlp",
    "decoder_hidden": "256+256",
    "features": 16,
    "normalise": False,
}
SMALL: Mapping[str, Keys] = {
    "pixels": {},
    "random": {},
    "vje": {"beta": 1.0, "nu": 0.5, "bottleneck": 64, "score_samples": 0},
    "vae": {**AUTOENCODER, "sigma_x2": 0.1},
    "simvae": {**AUTOENCODER, "sigma_x2": 0.02, "sigma2": 0.15, "views": 4},
    "simclr": {**CONTRASTIVE, "tau": 0.5},
    "moco_v2": {**CONTRASTIVE, "tau": 0.2, "queue": 96},
    "gje": {"projector_width": 0, "lr": 0.01},
}
"""Method -> its own settings on the digits and on Fashion-MNIST. None was chosen on test images; those of VJE are the
paper's optimum."""


def method_grids(
    protocol: Keys, methods: Mapping[str, Keys], axes: Mapping[str, tuple[Value, ...]] = REPLICATES
) -> tuple[Grid, ...]:
    """One grid for each method over the axes. Pixels have no seed, and what does not train has no epochs."""
    return tuple(_grid({**protocol, "method": method, **own}, axes) for method, own in methods.items())


def _grid(keys: Keys, axes: Mapping[str, tuple[Value, ...]]) -> Grid:
    if keys["method"] not in UNTRAINED:
        return Grid(keys, axes)
    untrained = {**keys, "epochs": 0}
    if keys["method"] == "random":
        return Grid(untrained, axes, pinned=frozenset({"epochs"}))
    return Grid(
        {**untrained, "seed": 0},
        {key: values for key, values in axes.items() if key != "seed"},
        pinned=frozenset({"epochs", "seed"}),
    )
