"""Gaussian joint embeddings compared with contrastive and non-contrastive methods (GMJE, Table 1).

On the digits a linear probe on all labels hardly separates the methods, so a probe on five labels per class is added.

The paper's general SMC-GMJE (`smc_joint_gmje`) is largely our reconstruction: the particle weights in the loss are
equal weights updated by the batch, because the bank is resampled in every step.
"""

from collections.abc import Mapping

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as claimed
from search_spaces import _gmje_protocols as protocols
from search_spaces import _gmje_values as printed
from search_spaces._protocols import COSINE, GEOMETRY, KNN, PROBE, PROBE_5, RANK, SEEDS, Keys
from sweeper.definition import Assumption, Grid, Metric, Sweep, Table, Trajectory, Value

METHODS: tuple[Keys, ...] = (
    *({"method": method, **printed.values("ssl_benchmark", method)} for method in ("simclr", "byol", "moco_v2")),
    {"method": "smc_gmje", **printed.values("ssl_benchmark", "smc_gmje")},
    {"method": "swav", **printed.values("ssl_benchmark", "swav")},
    {"method": "vicreg", **printed.values("ssl_benchmark", "vicreg")},
    {"method": "gje"},
    {"method": "gmje_parametric", **printed.values("ssl_benchmark", "gmje_parametric")},
    {"method": "gmje_mdn", **printed.values("ssl_benchmark", "gmje_mdn")},
    {"method": "dam_gmje", "tau": 0.1},
    {"method": "smc_joint_gmje", "entropy_weight": 12.8},
    {"method": "hsic"},
    {"method": "gpje"},
    {"method": "gpje", "random_features": 1024},
    {"method": "jepa"},
    {"method": "vje", "bottleneck": 128},
)
"""The methods with their own hyperparameters on CIFAR-10: those of the paper are in `_gmje_values.py`. Weights of
entropies are lambda times 2P: 12.8 is lambda = 0.05 for P = 128, as is 3.2 for the 32 dimensions on the digits."""
METHODS_DIGITS: tuple[Keys, ...] = (
    {"method": "simclr", "tau": 0.5, "projector_width": 0},
    {"method": "byol", "ema": 0.99, "projector_width": 128, "projection": 32, "predictor_width": 128},
    {"method": "moco_v2", "tau": 0.2, "queue": 128, "projector_width": 0},
    {"method": "smc_gmje", "tau": 0.2, "bank": 128, "projector_width": 0},
    {"method": "swav", "projector_width": 128, "projection": 32, "prototypes": 30},
    {"method": "vicreg", "projector_width": 128},
    {"method": "gje", "projector_width": 0},
    {
        "method": "gmje_parametric",
        **{"tau": 1.0, "entropy_weight": 3.2, "alignment_weight": 2.0, "tied": True, "prototypes": 50},
        "projector_width": 0,
    },
    {"method": "gmje_mdn", "parameter_width": 64, "projector_width": 0},
    {"method": "dam_gmje", "tau": 0.2, "projector_width": 0},
    {"method": "smc_joint_gmje", "bank": 128, "entropy_weight": 3.2, "projector_width": 0},
    {"method": "hsic", "projector_width": 0},
    {"method": "gpje", "projector_width": 0},
    {"method": "gpje", "random_features": 128, "projector_width": 0},
    {"method": "jepa", "ema": 0.99, "projector_width": 128, "projection": 32, "predictor_width": 128},
    {"method": "vje", "bottleneck": 32},
)
"""As `METHODS`, for the digits: settings that train small encoders in 252 steps. VICReg has a projector, without which
it scores below raw pixels."""


def _grids(protocol: Keys, methods: tuple[Keys, ...], seeds: tuple[int, ...] = SEEDS) -> tuple[Grid, ...]:
    """One grid per method over the seeds, an untrained encoder, and pixels."""
    untrained = {**protocol, "epochs": 0}
    return (
        *(Grid({**protocol, **own}, {"seed": seeds}) for own in methods),
        Grid({**untrained, "method": "random"}, {"seed": seeds}, pinned=frozenset({"epochs"})),
        Grid({**untrained, "method": "pixels", "seed": seeds[0]}, {}, pinned=frozenset({"epochs", "seed"})),
    )


def _controls(protocol: Keys) -> tuple[Grid, ...]:
    """Control trials: methods at one temperature, memories on a longer schedule, styles, and the time of increasing
    batch sizes."""
    own = {str(keys["method"]): keys for keys in METHODS_DIGITS if "random_features" not in keys}
    seeds: dict[str, tuple[Value, ...]] = {"seed": SEEDS}
    styles: Keys = {"styles": "ink+slant", "content_probe_epochs": 200, "content_probe_lr": 1e-2}
    timed: Keys = {key: value for key, value in protocol.items() if key not in UNTIMED}
    long: Keys = {key: value for key, value in protocol.items() if key != "epochs"}
    return (
        *(Grid({**protocol, **own[method], "tau": 0.2}, seeds) for method in ("dam_gmje", "simclr")),
        *(Grid({**long, **own[method]}, {"epochs": (28, 112), **seeds}) for method in ("smc_gmje", "moco_v2")),
        *(Grid({**protocol, **own[method], **styles}, seeds) for method in ("gje", "simclr")),
        *(
            Grid({**timed, **own[method], **more, "weight_decay": 0.0}, {"batch_size": (64, 256, 1024), **seeds})
            for method, more in (("gje", {}), ("gpje", {"random_features": 0}), ("gpje", {"random_features": 128}))
        ),
    )


UNTIMED = ("batch_size", "knn", "probe_epochs", "probe_lr", "probe_batch_size", "probe_standardize", "few_labels")
"""Keys of evaluations, which would count towards the time."""
METHOD = ("method", "random_features")
CONTROLLED = (*METHOD, "tau", "epochs", "styles", "batch_size")
TABLE_1: Mapping[tuple[str, None], Mapping[str, float]] = {
    ("simclr", None): {"probe_z": 81.50},
    ("byol", None): {"probe_z": 79.04},
    ("moco_v2", None): {"probe_z": 79.02},
    ("smc_gmje", None): {"probe_z": 74.52},
}

STYLES = tuple(Metric(f"style_{style}", "maximize", percent=True) for style in ("ink", "slant"))

ASSUMED = (
    assumed.ONLY_42,
    assumed.REPORTS,
    *printed.not_legible("ssl_benchmark"),
    Assumption("SGD, as for the other methods; the paper uses LARS", ("lr",), ("vicreg",)),
    Assumption(
        "not in the paper's comparison",
        ("tau", "entropy_weight", "random_features", "bottleneck"),
        ("gje", "dam_gmje", "smc_joint_gmje", "hsic", "gpje", "jepa", "vje", "random", "pixels"),
    ),
    Assumption(
        "largely our reconstruction: our copy of the paper does not show the particle weights at the start of a step "
        "(here equal), nor an alignment term",
        ("entropy_weight",),
        ("smc_joint_gmje",),
    ),
    assumed.CROPS,
    assumed.NO_PROBE_VIEWS,
    assumed.MEASURED,
)

SWEEP = Sweep(
    about="Gaussian joint embeddings and eight other methods on one data set: linear probes on all labels and on five "
    "per class; the general SMC-GMJE is largely our reconstruction",
    presets={
        "paper": _grids(
            {**protocols.CIFAR10, **printed.values("ssl_benchmark"), "few_labels": 5},
            METHODS,
            printed.seeds("ssl_benchmark"),
        ),
        "digits": _grids({**protocols.DIGITS, "report_every": 7}, METHODS_DIGITS),
        "controls": _controls({**protocols.DIGITS, "report_every": 28}),
    },
    paper=assumed.GMJE,
    assumptions={"paper": ASSUMED},
    figures=(
        Table(
            "accuracy",
            METHOD,
            (PROBE, PROBE_5, KNN),
            presets=("paper", "digits"),
            published={"paper": TABLE_1},
            place="Table 1",
        ),
        Table("embeddings", METHOD, GEOMETRY, presets=("paper", "digits")),
        Table("controls", CONTROLLED, (PROBE, PROBE_5, *STYLES), presets=("controls",)),
        Trajectory("embeddings", (KNN, RANK, COSINE), by=METHOD),
    ),
    claims=claimed.SSL_BENCHMARK,
)
