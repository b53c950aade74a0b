"""Protocols of the sweeps over collapses of joint embeddings (gmje.md 1, 2 and 4)."""

from search_spaces._gmje_protocols import CIFAR10
from search_spaces._protocols import CLASSIFIED_DIGITS, Keys

MEASURED: Keys = {"few_labels": 5, "geometry": "projection"}
"""Evaluation of what the loss compares, and of the representation by five labels of each class."""
PAPER: Keys = {
    **CIFAR10,
    "epochs": 200,
    "optimiser": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "projector_width": 512,
    "projection": 128,
    **MEASURED,
}
"""Protocol for CIFAR-10. The paper has no such experiment; data, network and epochs are those of its benchmark."""
DIGITS: Keys = {
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
