"""Out-of-distribution detection: all classes of the training set are normal, other images are outliers (VJE, version
3)."""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import SEEDS, SMALL_IMAGES, VJE_DIGITS, Keys
from sweeper.definition import Assumption, Direction, Grid, Metric, Sweep, Table

VJE: Keys = {"method": "vje", "bottleneck": 128, "beta": 1.0, "nu": 3.0, "epochs": 800}
SCORES = ("joint", "dir", "rad", "variance", "entropy")
MEASURES: tuple[tuple[str, Direction], ...] = (("auroc", "maximize"), ("aupr", "maximize"), ("fpr95", "minimize"))
FAR = ("svhn", "cifar10", "cifar100", "stl10")
"""Data sets that serve as outliers in the preset `paper`."""
NEAR = ("held_out", "noise", "inverted", "shuffled", "blurred")
"""Held-out classes and corruptions that serve as outliers in the preset `digits`."""

PAPER = tuple(
    Grid({**SMALL_IMAGES, **VJE, "dataset": dataset, "outliers": f"svhn+{other}+stl10"}, {"seed": SEEDS})
    for dataset, other in (("cifar10", "cifar100"), ("cifar100", "cifar10"))
)
DIGITS = Grid(
    {**VJE_DIGITS, "beta": 1.0, "nu": 3.0, "outliers": "+".join(NEAR)},
    {"held_out": tuple(str(digit) for digit in range(10)), "seed": SEEDS},
)


def _tables(preset: str, sets: tuple[str, ...]) -> tuple[Table, ...]:
    """Two tables of a preset: all measures of the joint score, and the AUROC of every score, for each set in `sets`."""
    joint = tuple(Metric(f"{measure}_joint_{name}", direction) for name in sets for measure, direction in MEASURES)
    aurocs = tuple(Metric(f"auroc_{score}_{name}", "maximize") for name in sets for score in SCORES)
    return (
        Table(
            f"joint_{preset}", ("method",), joint, columns="dataset", listed=True, presets=(preset,), place="abstract"
        ),
        Table(
            f"auroc_{preset}", ("method",), aurocs, columns="dataset", listed=True, presets=(preset,), place="abstract"
        ),
    )


ASSUMED = Assumption(
    "our reconstruction: only the abstract was read; training follows `ssl_cifar10`",
    ("dataset", "outliers", "epochs", "batch_size", "lr", "weight_decay", "beta", "nu", "bottleneck"),
)

SWEEP = Sweep(
    about="AUROC, AUPR and FPR95 of VJE's scores against other data sets, held-out classes and corruptions",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.VJE,
    assumptions={"paper": (ASSUMED, assumed.SEED, assumed.REPORTS, assumed.PROBE)},
    figures=(*_tables("paper", FAR), *_tables("digits", NEAR)),
    claims=claimed.OOD_DETECTION,
)
