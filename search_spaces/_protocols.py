"""Protocols shared by several experiments of the VJE paper, and metrics that many sweeps show."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.definition import Grid, Metric, Value

Keys = Mapping[str, Value]
"""Hyperparameter -> its value."""

SEEDS = (0, 1, 2)

MOCO_V2_VIEWS: Keys = {
    "crop_scale": 0.2,
    "flip": 0.5,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "hue": 0.1,
    "jitter": 0.8,
    "greyscale": 0.2,
}
"""MoCo v2's augmentations without blur, for images of 32 x 32 pixels."""

CLASSIFIED: Keys = {"knn": 30, "probe_epochs": 100, "probe_lr": 0.1, "probe_batch_size": 256}
"""Evaluation of representations with k-NN and a linear probe."""

CLASSIFIED_DIGITS: Keys = {
    **CLASSIFIED,
    "probe_standardize": True,
    "probe_lr": 0.5,
    "probe_batch_size": 64,
}
"""As `CLASSIFIED`, for the digits.

Features of such small encoders can be as small as 0.001, on which the papers' probe does not converge. These settings
were chosen for agreement with scikit-learn's LogisticRegression (C=1) on standardised features: over five folds of the
training images no representation differs by more than 0.95 points (2.2 points with lr 0.2). `python -m
tests.benchmarks.bench_probe` prints the agreement."""

SMALL_IMAGES: Keys = {
    "encoder": "resnet18",
    "small_stem": True,
    "batch_size": 256,
    "lr": 0.05,
    "momentum": 0.9,
    "weight_decay": 5e-6,
    "report_every": 20,
    **MOCO_V2_VIEWS,
    **CLASSIFIED,
}
"""Protocol for CIFAR-10 and CIFAR-100. Each experiment sets its own data set and epochs."""

STL10: Keys = {**SMALL_IMAGES, "dataset": "stl10", "small_stem": False, "blur": 0.5}
"""Protocol for STL-10: images of 96 x 96 pixels, with the standard stem and with blur."""

DIGITS: Keys = {
    "dataset": "digits",
    "encoder": "convnet",
    "width": 16,
    "features": 64,
    "epochs": 80,
    "batch_size": 60,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 5e-6,
    "rotation": 10.0,
    "shift": 1.0,
    "report_every": 10,
    **CLASSIFIED_DIGITS,
}
"""Protocol for scikit-learn's digits, which takes minutes on two cores."""

METHODS: Mapping[str, Keys] = {
    "vje": {"beta": 1.0, "nu": 3.0, "bottleneck": 128},
    "simsiam": {"projector_layers": 2, "projector_width": 2048},
    "vicreg": {"projector_layers": 3, "projector_width": 4096},
    "simclr": {"tau": 0.5},
    "moco_v2": {"tau": 0.2, "ema": 0.99, "queue": 4096},
    "byol": {"ema": 0.996},
    "swav": {"tau": 0.1, "epsilon": 0.05, "prototypes": 512},
    # Without a scale, Eq. 1 of the paper suits an about 40 times smaller learning rate; the authors' code has this
    # scale.
    "barlow_twins": {"redundancy_weight": 5e-3, "loss_scale": 0.024},
}
"""Method -> its own hyperparameters on CIFAR-10."""
METHODS_DIGITS: Mapping[str, Keys] = {
    "vje": {"beta": 1.0, "nu": 3.0, "bottleneck": 64},
    "simsiam": {"projector_width": 128, "predictor_width": 32},
    "vicreg": {"projector_width": 128},
    "simclr": {"projector_width": 128, "projection": 64},
    "moco_v2": {"projector_width": 128, "projection": 64, "queue": 512},
    "byol": {"ema": 0.99, "projector_width": 256, "projection": 64, "predictor_width": 256},
    "swav": {"projector_width": 128, "projection": 32, "prototypes": 30},
    # lambda x width is 6.4 here and 10 in the preset `paper`; the scale acts like a learning rate of 0.001.
    "barlow_twins": {"projector_width": 128, "redundancy_weight": 0.05, "loss_scale": 0.1},
}
"""Method -> its own hyperparameters on the digits."""

FASHION: Keys = {
    **CLASSIFIED,
    "dataset": "fashion_mnist",
    "encoder": "strided_convnet",
    "width": 16,
    "features": 64,
    "epochs": 1,
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 5e-6,
    "crop_scale": 0.4,
    "flip": 0.5,
    "report_every": 1,
    "probe_epochs": 20,
    "probe_standardize": True,
}
"""Protocol for Fashion-MNIST in minutes on two cores: 937 steps, about half as many as in `DIGITS`. The paper trains
for 800 epochs on CIFAR-10 and probes for 100. The methods have the settings of `METHODS_DIGITS`; none was chosen on
Fashion-MNIST images."""

VJE_DIGITS: Keys = {**DIGITS, "method": "vje", "bottleneck": 64}
"""VJE on the digits."""

ONE_CLASS: Keys = {
    "method": "vje",
    "dataset": "cifar10",
    "encoder": "resnet18",
    "small_stem": True,
    "bottleneck": 128,
    "epochs": 800,
    "batch_size": 64,
    "lr": 5e-6,
    "momentum": 0.9,
    "weight_decay": 5e-6,
    **MOCO_V2_VIEWS,
    "score_samples": 0,
    "report_every": 20,
}
"""VJE trained on one class of CIFAR-10 and evaluated with its anomaly scores."""

ONE_CLASS_DIGITS: Keys = {
    "method": "vje",
    "dataset": "digits",
    "validation": 0.2,
    "encoder": "mlp",
    "width": 128,
    "features": 64,
    "bottleneck": 64,
    "epochs": 50,
    "batch_size": 48,
    "lr": 0.002,
    "momentum": 0.9,
    "weight_decay": 5e-6,
    "rotation": 5.0,
    "shift": 0.0,
    "report_every": 10,
}
"""VJE trained on one digit.

A fifth of the training images is held out for validation; the remaining 98 to 102 images make two steps per epoch.
Rotation and shift are the best of four settings (5 or 10 degrees, 0 or 0.25 pixels) by AUROC on validation images."""

ONE_CLASS_DIGITS_LONG: Keys = {
    **ONE_CLASS_DIGITS,
    "width": 256,
    "features": 128,
    "bottleneck": 128,
    "epochs": 100,
}
"""As `ONE_CLASS_DIGITS`, with twice the width and twice the epochs."""

ONE_CLASS_FASHION: Keys = {
    **ONE_CLASS_DIGITS,
    "dataset": "fashion_mnist",
    "epochs": 8,
    "report_every": 4,
}
"""VJE trained on one class of Fashion-MNIST, with the settings chosen on the digits.

A fifth of the 6,000 training images is held out for validation; the remaining 4,800 make 100 steps per epoch. The paper
trains for 800 epochs on 5,000 CIFAR-10 images. All 10,000 test images are used for testing."""

SETS = ("cifar10", "cifar100", "stl10")
"""The data sets of the ablations, in the order of the paper's tables."""


def not_searched(values: Keys, space: Mapping[str, object]) -> dict[str, Value]:
    """Return the values of the keys that are not in the space of a search."""
    return {key: value for key, value in values.items() if key not in space}


def ablation(vje: Keys, key: str, values: tuple[Value, ...]) -> tuple[Grid, ...]:
    """Return VJE over the values of a key on each of `SETS`, for 200 epochs."""
    fixed: Keys = {"method": "vje", "bottleneck": 128, **vje, "epochs": 200}
    axes = {key: values, "seed": SEEDS}
    return (
        Grid({**SMALL_IMAGES, **fixed}, {"dataset": ("cifar10", "cifar100"), **axes}),
        Grid({**STL10, **fixed}, axes),
    )


def accuracies(rows: Mapping[Any, Sequence[float]]) -> dict[tuple[Any, str], dict[str, float]]:
    """Convert rows of a paper's table to the `published` cells of a `Table`.

    Each row contains accuracies in percent: k-NN on z and probe on z for the first data set in `SETS`, then for the
    next.
    """
    return {
        (row, dataset): {"knn_z": figures[2 * index], "probe_z": figures[2 * index + 1]}
        for row, figures in rows.items()
        for index, dataset in enumerate(SETS)
    }


KNN, PROBE, KNN_MU, PROBE_MU, PROBE_5 = (
    Metric(name, "maximize", percent=True) for name in ("knn_z", "probe_z", "knn_mu", "probe_mu", "probe_5")
)
RANK, COSINE, VOLUME = (Metric(name, "maximize") for name in ("effective_rank", "cosine", "volume"))
"""Metrics of embeddings. Higher values mean that embeddings have not collapsed to one point, where the cosine is 1."""
TRACE, NORM = Metric("trace"), Metric("norm")
GEOMETRY = (RANK, COSINE, VOLUME, TRACE, NORM)
