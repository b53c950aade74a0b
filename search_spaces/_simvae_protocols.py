"""Training and evaluation protocols shared by several experiments of the SimVAE paper (arXiv 2402.01399)."""

import math
from collections.abc import Collection, Mapping, Sequence

from search_spaces._protocols import SEEDS, Keys
from sweeper.definition import Grid, Metric, Selection, Value

PROBE_MLP, KNN, PROBE_LINEAR, GMM, ARI, NMI = (
    Metric(name, "maximize", percent=True)
    for name in ("probe_mlp", "knn_best", "probe_linear", "gmm_accuracy", "ari", "nmi")
)
METHODS = ("random", "simclr", "moco_v2", "vicreg", "vae", "beta_vae", "cr_vae", "simvae")
"""The methods in the order of the paper's tables."""
AUTOENCODERS = ("vae", "beta_vae", "cr_vae", "simvae")

CONTENT: Keys = {"content_probe_epochs": 200, "content_knn": 15, "gmm_n_init": 200}
"""Evaluation of the representation by class probes, k-NN and a Gaussian mixture."""
AVERAGED_EPSILON = 1e-4 / 128
"""Adam's epsilon for losses averaged over the 128 views of a step. The authors sum losses and use 1e-4."""
TRAINING: Keys = {
    "optimiser": "adam",
    "lr_schedule": "constant",
    "lr": 8e-5,
    "epochs": 400,
    "report_every": 20,
    "normalise": False,
}
GREY: Keys = {
    "encoder": "relu_mlp",
    "hidden": "500+500+2000",
    "decoder": "relu_mlp",
    "decoder_hidden": "2000+500+500",
    "features": 10,
    "crop_scale": 0.4,
    "flip": 0.5,
    "flip_direction": "vertical",
}
"""Networks and views for grey images of 28 x 28 pixels."""
COLOUR: Keys = {
    "encoder": "simvae_resnet",
    "decoder": "simvae_deconv",
    "features": 64,
    "crop_scale": 0.6,
    "flip": 0.5,
    "flip_direction": "vertical",
    "brightness": 0.8,
    "contrast": 0.8,
    "saturation": 0.8,
    "hue": 0.2,
    "jitter": 0.8,
    "jitter_first": True,
}
"""Networks and views for colour images of 32 x 32 and 64 x 64 pixels."""
DATASETS: Mapping[str, Keys] = {
    "mnist": {**TRAINING, **GREY, "binarise": True},
    "fashion_mnist": {**TRAINING, **GREY},
    "celeba": {**TRAINING, **COLOUR},
    "cifar10": {**TRAINING, **COLOUR},
}
"""Data set -> its training, networks and views, in the order of the paper's tables. The classes of CelebA are the
genders."""

DISCRIMINATIVE: Keys = {"projector_width": 0, "batch_size": 64, "epochs": 600, "lr": 1e-4}
"""A step has 64 pairs of views. The paper trains for 600 to 800 epochs."""
OWN: Mapping[str, Keys] = {
    "random": {"epochs": 0},
    # The paper's learning rates differ between data sets, from 8e-5 to 1e-3, but it does not assign them.
    "simclr": {**DISCRIMINATIVE, "tau": 0.7, "lr": 3e-4},
    # The paper gives no hyperparameters for MoCo.
    "moco_v2": {**DISCRIMINATIVE, "tau": 0.07, "ema": 0.999, "queue": 4096},
    "vicreg": {**DISCRIMINATIVE, "variance_weight": 25.0},
    "vae": {"batch_size": 128, "sigma_x2": 1.0, "adam_epsilon": AVERAGED_EPSILON},
    "beta_vae": {"batch_size": 128, "sigma_x2": 0.02, "adam_epsilon": AVERAGED_EPSILON},
    "cr_vae": {"batch_size": 64, "sigma_x2": 0.02, "consistency_weight": 0.1, "adam_epsilon": AVERAGED_EPSILON},
    "simvae": {"batch_size": 12, "views": 10, "sigma_x2": 0.02, "sigma2": 0.15, "adam_epsilon": AVERAGED_EPSILON},
}
"""Method -> its own hyperparameters. A step encodes 128 images (SimVAE: 12 with 10 views each); an epoch is a pass over
all training images."""

EPOCHS_DIGITS, EPOCHS_HELD_OUT_DIGITS = 167, 215
"""Epochs that make 1,503 steps of 128 images with all 1,260 training images, and 1,505 steps without a fifth of
them."""
DIGITS: Keys = {
    "dataset": "digits",
    "encoder": "relu_mlp",
    "hidden": "256+256",
    "decoder": "relu_mlp",
    "decoder_hidden": "256+256",
    "features": 10,
    "crop_scale": 0.4,
    "normalise": False,
    "optimiser": "adam",
    "lr_schedule": "constant",
    "lr": 1e-3,
    "batch_unit": "views",
    "batch_size": 128,
    "epochs": EPOCHS_DIGITS,
    "report_every": EPOCHS_DIGITS,
}
"""Protocol for scikit-learn's digits: 1,503 steps, each of which encodes 128 images for every method (120 with 10
views), so that all methods cost the same. Methods with more views per image see fewer images."""
PROBE_LR_DIGITS = 1e-2
"""Learning rate of the probes. With the paper's 3e-4 probes are far from converged after 200 epochs of 1,260 images."""
CONTENT_DIGITS: Keys = {**CONTENT, "content_probe_lr": PROBE_LR_DIGITS, "gmm_n_init": 5}
"""As `CONTENT`, for the digits."""
TINT_VIEWS: Keys = {
    "brightness": 0.8,
    "contrast": 0.8,
    "saturation": 0.8,
    "hue": 0.5,
    "jitter": 0.8,
    "jitter_first": True,
}
"""Views of tinted digits. Hues rotate by up to half the colour circle, so a view may have any hue. With smaller
rotations a view's hue helps to find the other view of its image, and no method loses the hue."""
OWN_DIGITS: Mapping[str, Keys] = {
    "random": {"epochs": 0},
    "simclr": {"projector_width": 0, "tau": 0.7},
    "moco_v2": {"projector_width": 0, "tau": 0.2, "ema": 0.999, "queue": 512},
    "vicreg": {"projector_width": 0, "covariance_weight": 25.0},
    "vae": {"sigma_x2": 0.1},
    "beta_vae": {"sigma_x2": 0.005},
    "cr_vae": {"sigma_x2": 0.005, "consistency_weight": 0.1},
    "simvae": {"sigma_x2": 0.005, "sigma2": 0.15, "views": 10},
}
"""Method -> its own hyperparameters on the digits. The paper's likelihood variances do not suit images of 64 pixels: at
1.0 the VAE's posterior collapses onto the prior. Likelihood variances, VICReg's covariance weight, and MoCo's
temperature, decay and queue were chosen on validation images."""

FASHION: Keys = {
    **DATASETS["fashion_mnist"],
    "dataset": "fashion_mnist",
    "lr": 1e-3,
    "batch_unit": "views",
    "batch_size": 128,
    "epochs": 2,
    "report_every": 2,
}
"""Protocol for Fashion-MNIST in minutes on two cores: the paper's networks and views, but 936 steps of 128 images for
every method, with a learning rate that suits so few steps. The paper's 400 epochs are two million steps of SimVAE."""
CONTENT_FASHION: Keys = {
    "content_probe_epochs": 20,
    "content_probe_lr": 1e-2,
    "content_probe_batch_size": 512,
    "content_knn": 15,
    "gmm_n_init": 1,
}
"""As `CONTENT`, with 2,340 probe steps instead of 93,600, and one start of the mixture instead of 200."""
OWN_FASHION: Mapping[str, Keys] = {
    **{method: own for method, own in OWN_DIGITS.items() if method not in AUTOENCODERS},
    "moco_v2": {**OWN_DIGITS["moco_v2"], "queue": 4096},
    "vae": {"sigma_x2": 1.0},
    "beta_vae": {"sigma_x2": 0.02},
    "cr_vae": {"sigma_x2": 0.02, "consistency_weight": 0.1},
    "simvae": {"sigma_x2": 0.02, "sigma2": 0.15, "views": 10},
}
"""Method -> its own hyperparameters on Fashion-MNIST. Likelihood variances come from the paper, and settings of MoCo
and VICReg from the digits. None was chosen on Fashion-MNIST images."""

AUTHORS_GREY: Keys = {
    **TRAINING,
    **GREY,
    "hidden": "2000+500+500",
    "decoder_hidden": "500+500+2000",
    "likelihood": "bernoulli",
}
AUTHORS_COLOUR: Keys = {
    **TRAINING,
    **COLOUR,
    "encoder": "simvae_resnet_authors",
    "decoder": "simvae_deconv_authors",
    "jitter": 1.0,
}
AUTHORS_DATASETS: Mapping[str, Keys] = {
    "mnist": {**AUTHORS_GREY, "binarise": True},
    "fashion_mnist": AUTHORS_GREY,
    "cifar10": AUTHORS_COLOUR,
}
"""As `DATASETS`, with the settings in which the authors' released code differs from the paper. The code does not
evaluate CelebA. Not reproduced: it enlarges CIFAR-10 to 256 pixels before the crop."""
AUTHORS_LOSS: Keys = {"sigma_x2": 0.01005, "entropy_weight": 2 * math.pi, "adam_epsilon": AVERAGED_EPSILON}
"""Settings of both methods in the released code: `exp(-4.6)` for the variance, and 2 pi times the entropy."""
AUTHORS_VAE: Keys = {"method": "vae", **AUTHORS_LOSS, "sampled_prior": True}
AUTHORS_SIMVAE: Keys = {"method": "simvae", **AUTHORS_LOSS, "sigma2": 0.15, "authors_centre": True}
AUTHORS_CONTENT: Keys = {**CONTENT, "content_probe_batch_size": 64, "content_knn": 20, "gmm_n_init": 20}


def method_grids(
    methods: Sequence[str],
    own: Mapping[str, Keys],
    protocols: Sequence[Keys],
    axes: Mapping[str, tuple[Value, ...]] | None = None,
) -> tuple[Grid, ...]:
    """One grid for each method and protocol, over the axes and the seeds."""
    return tuple(
        Grid(
            {**protocol, "method": method, **own[method]},
            {**(axes or {}), "seed": SEEDS},
            pinned=frozenset({"epochs"} if method == "random" else ()),
        )
        for protocol in protocols
        for method in methods
    )


def paper_protocols(evaluation: Keys, names: Collection[str] = tuple(DATASETS)) -> list[Keys]:
    """The paper's protocol for each of these data sets."""
    return [{"dataset": name, **DATASETS[name], **evaluation} for name in names]


def models(methods: Sequence[str], datasets: Sequence[str]) -> tuple[Selection, ...]:
    """Label the trials of each method and data set by both, on the axis `model`."""
    return tuple(
        Selection({"model": f"{method}, {dataset}"}, {"method": method, "dataset": dataset})
        for dataset in datasets
        for method in methods
    )


def published(
    rows: Mapping[str, Sequence[Sequence[float]]],
    metrics: Sequence[Metric],
    datasets: Collection[str] = tuple(DATASETS),
) -> dict[tuple[str, str], dict[str, float]]:
    """Convert rows of a paper's table to the `published` cells of a `Table` of methods by data set.

    A method's row contains the numbers of all metrics for each data set; empty where the paper has a dash.
    """
    names = [metric.name for metric in metrics]
    return {
        (method, dataset): dict(zip(names, figures, strict=True))
        for method, row in rows.items()
        for dataset, figures in zip(datasets, row, strict=True)
        if figures
    }
