"""VJE compared with contrastive and non-contrastive methods under one schedule (vje.md 3.4: Table 2, Fig. 3)."""

from collections.abc import Mapping

from search_spaces._protocols import DIGITS as DIGITS_PROTOCOL
from search_spaces._protocols import SEEDS, SMALL_IMAGES
from sweeper.spec import Grid, Grids, Metric, Sweep, Table, Trajectory, Value

CIFAR10: Mapping[str, Value] = {**SMALL_IMAGES, "dataset": "cifar10", "epochs": 800}


def _grids(protocol: Mapping[str, Value], methods: tuple[Mapping[str, Value], ...]) -> Grids:
    """One grid per method over the seeds, an untrained encoder, and raw pixels."""
    return Grids(
        (
            *(Grid({**protocol, **method}, {"seed": SEEDS}) for method in methods),
            Grid({**protocol, "method": "random", "epochs": 0}, {"seed": SEEDS}, pinned=frozenset({"epochs"})),
            Grid({**protocol, "method": "pixels", "epochs": 0, "seed": 0}, {}, pinned=frozenset({"epochs", "seed"})),
        )
    )


PAPER = _grids(
    CIFAR10,
    (
        {"method": "vje", "beta": 1.0, "nu": 3.0, "bottleneck": 128},
        {"method": "vje", "beta": 1.0, "nu": 3.0, "bottleneck": 128, "projector_width": 2048},
        {"method": "simsiam", "projector_layers": 2, "projector_width": 2048},
        {"method": "vicreg", "projector_layers": 3, "projector_width": 4096},
        {"method": "simclr", "tau": 0.5},
        {"method": "moco_v2", "tau": 0.2, "ema": 0.99, "queue": 4096},
        {"method": "byol", "ema": 0.996},
        {"method": "swav", "tau": 0.1, "epsilon": 0.05, "prototypes": 512},
        # Unscaled, Eq. 1 suits a learning rate about forty times smaller; the authors' code has this scale.
        {"method": "barlow_twins", "redundancy_weight": 5e-3, "loss_scale": 0.024},
    ),
)
DIGITS = _grids(
    DIGITS_PROTOCOL,
    (
        {"method": "vje", "beta": 1.0, "nu": 3.0, "bottleneck": 64},
        {"method": "vje", "beta": 1.0, "nu": 3.0, "bottleneck": 64, "projector_width": 64},
        {"method": "simsiam", "projector_width": 128, "predictor_width": 32},
        {"method": "vicreg", "projector_width": 128},
        {"method": "simclr", "projector_width": 128, "projection": 64},
        {"method": "moco_v2", "projector_width": 128, "projection": 64, "queue": 512},
        {"method": "byol", "ema": 0.99, "projector_width": 256, "projection": 64, "predictor_width": 256},
        {"method": "swav", "projector_width": 128, "projection": 32, "prototypes": 30},
        # lambda x width is 6.4, and 10 in the paper's preset; the scale acts like a learning rate of 0.001.
        {"method": "barlow_twins", "projector_width": 128, "redundancy_weight": 0.05, "loss_scale": 0.1},
    ),
)

KNN, PROBE = Metric("knn_z", "maximize", percent=True), Metric("probe_z", "maximize", percent=True)
KNN_MU, PROBE_MU = Metric("knn_mu", "maximize", percent=True), Metric("probe_mu", "maximize", percent=True)
TABLE_2 = {
    ("simsiam", 2048): {"knn_z": 90.60, "probe_z": 91.8},
    ("vicreg", 4096): {"knn_z": 86.37, "probe_z": 89.4},
    ("vje", 0): {"knn_z": 89.98, "probe_z": 92.1, "knn_mu": 89.02, "probe_mu": 90.8},
    ("vje", 2048): {"knn_z": 89.5},
}

SWEEP = Sweep(
    about="VJE, seven baselines, an untrained encoder and raw pixels on one data set: k-NN in training, linear probe",
    presets={"paper": PAPER, "digits": DIGITS},
    tables=(
        Table(
            "accuracy",
            ("method", "projector_width"),
            (KNN, PROBE, KNN_MU, PROBE_MU),
            published={"paper": TABLE_2},
        ),
        Table(
            "weighted_knn",
            ("method", "projector_width"),
            (
                Metric("knn_weighted_z", "maximize", percent=True),
                Metric("knn_weighted_mu", "maximize", percent=True),
                Metric("var_mean"),
                Metric("var_cv"),
            ),
        ),
    ),
    trajectories=(Trajectory("knn", (KNN, KNN_MU), by=("method", "projector_width")),),
)
