"""One-class anomaly detection with VJE over beta x nu x class (vje.md 3.1: Fig. 4, Tables 3 and 4).

The preset `fashion` has Fashion-MNIST in place of CIFAR-10, a small network, and 8 epochs in place of the paper's 800.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import ONE_CLASS, ONE_CLASS_DIGITS, ONE_CLASS_DIGITS_LONG, ONE_CLASS_FASHION
from sweeper.spec import Assumption, Grid, Heatmap, Metric, Sweep

AXES = {
    "beta": (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    "nu": (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0),
    "normal_class": tuple(range(10)),
}

PAPER = Grid(ONE_CLASS, AXES)
DIGITS = Grid(ONE_CLASS_DIGITS, AXES)
DIGITS_LONG = Grid(ONE_CLASS_DIGITS_LONG, AXES)
FASHION = Grid(ONE_CLASS_FASHION, AXES)

PUBLISHED = {"paper": {(1.0, 0.5): 0.903, (1.0, 1.0): 0.899, (1.0, 0.25): 0.897}}
"""Preset -> (beta, nu) -> published AUROC of the joint score."""
PUBLISHED_AT_OPTIMUM = {
    "auroc_variance": {"paper": {(1.0, 0.5): 0.867}},
    "auroc_entropy": {"paper": {(1.0, 0.5): 0.852}},
}
"""Score -> preset -> (beta, nu) -> published AUROC, at the joint score's optimum only."""

SWEEP = Sweep(
    about="one-class anomaly AUROC of VJE over KL weight beta, degrees of freedom nu and the normal class",
    presets={"paper": PAPER, "digits": DIGITS, "digits_long": DIGITS_LONG, "fashion": FASHION},
    paper=assumed.VJE,
    assumptions={
        "paper": (
            assumed.REPORTS,
            Assumption("an image is scored at the mean of its posterior", ("score_samples",)),
        )
    },
    heatmaps=(
        Heatmap(Metric("auroc_joint", "maximize"), rows="beta", columns="nu", published=PUBLISHED),
        *(
            Heatmap(Metric(name, "maximize"), "beta", "nu", published=PUBLISHED_AT_OPTIMUM.get(name, {}))
            for name in ("auroc_dir", "auroc_rad", "auroc_variance", "auroc_entropy")
        ),
    ),
    over="classes",
    breakdown="normal_class",
    correlations=(("auroc_joint", "posterior_entropy"), ("auroc_joint", "posterior_variance")),
    claims=claimed.ANOMALY_GRID,
)
