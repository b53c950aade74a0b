"""Protocols shared by experiments of the GMJE paper (sections 5.2.1 and 5.2.2), and protocols of its collapses."""

from search_spaces._gmje_values import values
from search_spaces._protocols import CLASSIFIED, CLASSIFIED_DIGITS, MOCO_V2_VIEWS, Keys

CIFAR10: Keys = {
    "dataset": "cifar10",
    "encoder": "resnet18",
    "small_stem": True,
    "report_every": 20,
    **MOCO_V2_VIEWS,
    "crop_scale": 0.08,
    **CLASSIFIED,
    "geometry": "projection",
}
"""Protocol for CIFAR-10, to which each experiment adds its numbers in `_gmje_values.py`. The minimum crop area is the
default of the function that the paper names. The probe uses images without augmentation, in the paper random crops and
flips."""

DIGITS: Keys = {
    "dataset": "digits",
    "encoder": "convnet",
    "width": 16,
    "features": 32,
    "epochs": 28,
    "batch_size": 128,
    "optimiser": "adam",
    "lr": 2e-3,
    "rotation": 10.0,
    "shift": 1.0,
    **CLASSIFIED_DIGITS,
    "few_labels": 5,
    "geometry": "projection",
}
"""Protocol for scikit-learn's digits: 252 steps. Methods that can do without a projector have none, so that their loss
compares the 32 dimensions that probes read."""


MEASURED: Keys = {"few_labels": 5, "geometry": "projection"}
"""Evaluation of the vectors that the loss compares, and of the representation with five labels per class."""
COLLAPSE: Keys = {
    **CIFAR10,
    **values("ssl_benchmark"),
    "optimiser": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "projector_width": 512,
    "projection": 128,
    **MEASURED,
}
"""Protocol for CIFAR-10. The paper has no such experiment; data, network and epochs follow its benchmark."""
COLLAPSE_DIGITS: Keys = {
    "dataset": "digits",
    "encoder": "relu_mlp",
    "hidden": "256",
    "features": 64,
    "epochs": 25,
    "batch_size": 126,
    "optimiser": "adam",
    "lr": 3e-3,
    "weight_decay": 0.0,
    "rotation": 10.0,
    "shift": 1.0,
    "report_every": 5,
    "projector_width": 128,
    "projection": 32,
    **CLASSIFIED_DIGITS,
    **MEASURED,
}
"""Protocol for scikit-learn's digits: 250 steps of 126 images."""
