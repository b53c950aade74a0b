"""VJE compared with contrastive and non-contrastive methods under one schedule (VJE, Table 2, Fig. 3).

The preset `fashion` uses Fashion-MNIST instead of CIFAR-10, a small network, and one epoch instead of the paper's 800.
"""

from collections.abc import Mapping

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces import _protocols as protocols
from search_spaces._protocols import KNN, KNN_MU, METHODS, METHODS_DIGITS, PROBE, PROBE_MU, SEEDS, SMALL_IMAGES, Keys
from sweeper.definition import Assumption, Grid, Metric, Sweep, Table, Trajectory


def _grids(protocol: Keys, methods: Mapping[str, Keys], width: int) -> tuple[Grid, ...]:
    """One grid per method over the seeds (VJE also with a projector of this width), an untrained encoder, and
    pixels."""
    (vje, *others) = ({"method": method, **own} for method, own in methods.items())
    return (
        *(Grid({**protocol, **own}, {"seed": SEEDS}) for own in (vje, {**vje, "projector_width": width}, *others)),
        Grid({**protocol, "method": "random", "epochs": 0}, {"seed": SEEDS}, pinned=frozenset({"epochs"})),
        Grid({**protocol, "method": "pixels", "epochs": 0, "seed": 0}, {}, pinned=frozenset({"epochs", "seed"})),
    )


PAPER = _grids({**SMALL_IMAGES, "dataset": "cifar10", "epochs": 800}, METHODS, 2048)
DIGITS = _grids(protocols.DIGITS, METHODS_DIGITS, 64)
FASHION = _grids(protocols.FASHION, METHODS_DIGITS, 64)

PAPER_SETS = tuple(
    Grid({**protocol, "epochs": 800, "method": method, **METHODS[method]}, {"seed": SEEDS})
    for protocol in ({**SMALL_IMAGES, "dataset": "cifar100"}, protocols.STL10)
    for method in ("vje", "simsiam", "vicreg")
)
"""On these data sets the paper has only VJE."""
CONTROLS = Grid({**protocols.DIGITS, "method": "vje", **METHODS_DIGITS["vje"]}, {"blur": (0.0, 0.5), "seed": SEEDS})

TABLED = ("paper", "digits", "fashion")
METHOD_AND_WIDTH = ("method", "projector_width")
WEIGHTED_KNN = tuple(Metric(f"knn_weighted_{vector}", "maximize", percent=True) for vector in ("z", "mu"))
TABLE_2 = {
    ("simsiam", 2048): {"knn_z": 90.60, "probe_z": 91.8},
    ("vicreg", 4096): {"knn_z": 86.37, "probe_z": 89.4},
    ("vje", 0): {"knn_z": 89.98, "probe_z": 92.1, "knn_mu": 89.02, "probe_mu": 90.8},
    ("vje", 2048): {"knn_z": 89.5},
}

OTHERS = Assumption(
    "the paper compares VJE only with SimSiam and VICReg",
    ("tau", "ema", "queue", "epsilon", "prototypes", "redundancy_weight", "loss_scale"),
    ("simclr", "moco_v2", "byol", "swav", "barlow_twins", "random", "pixels"),
)

SWEEP = Sweep(
    about="VJE, seven baselines, an untrained encoder and raw pixels on one data set by k-NN and linear probe",
    presets={"paper": PAPER, "digits": DIGITS, "fashion": FASHION, "paper_sets": PAPER_SETS, "controls": CONTROLS},
    paper=assumed.VJE,
    assumptions={"paper": (assumed.SEED, assumed.REPORTS, assumed.PROBE, OTHERS)},
    figures=(
        Table(
            "accuracy",
            METHOD_AND_WIDTH,
            (KNN, PROBE, KNN_MU, PROBE_MU),
            presets=TABLED,
            published={"paper": TABLE_2},
            place="Table 2",
        ),
        Table("weighted_knn", METHOD_AND_WIDTH, (*WEIGHTED_KNN, Metric("var_mean"), Metric("var_cv")), presets=TABLED),
        Table("further", ("method", "blur"), (KNN, PROBE), "dataset", presets=("paper_sets", "controls"), place="5.2"),
        Trajectory("knn", (KNN, KNN_MU), by=METHOD_AND_WIDTH, place="Fig. 3"),
    ),
    claims=claimed.SSL_CIFAR10,
)
