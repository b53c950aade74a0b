"""One-class anomaly detection with VJE over beta x nu x class (VJE, Fig. 4, Tables 3 and 4).

The preset `paper_gaussian` is the grid's Gaussian limit, which the paper says collapses for every class. It is no
column of the grid, whose correlations are over 56 cells with finite `nu`. The preset `controls` adds, on the digits,
what the grid lacks: the Gaussian likelihood (`nu=inf`), untrained networks, and scores from posterior samples.

The preset `fashion` uses Fashion-MNIST instead of CIFAR-10, a small network, and 8 epochs instead of the paper's 800.
"""

import math

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import ONE_CLASS, ONE_CLASS_DIGITS, ONE_CLASS_DIGITS_LONG, ONE_CLASS_FASHION
from sweeper.definition import Assumption, Grid, Heatmap, Metric, Selection, Sweep, Table

AXES = {
    "beta": (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    "nu": (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0),
    "normal_class": tuple(range(10)),
}

PAPER = Grid(ONE_CLASS, AXES)
DIGITS = Grid(ONE_CLASS_DIGITS, AXES)
DIGITS_LONG = Grid(ONE_CLASS_DIGITS_LONG, AXES)
FASHION = Grid(ONE_CLASS_FASHION, AXES)

CLASSES = {"normal_class": AXES["normal_class"]}
GAUSSIAN = Grid({**ONE_CLASS, "beta": 1.0, "nu": math.inf}, CLASSES)
OPTIMUM = {**ONE_CLASS_DIGITS, "beta": 1.0, "nu": 0.5}
CONTROLS = (
    Grid({**OPTIMUM, "nu": math.inf, "score_samples": 0}, CLASSES),
    Grid(OPTIMUM, {"score_samples": (0, 8), **CLASSES}),
    Grid({**OPTIMUM, "score_samples": 0, "epochs": 0}, CLASSES, pinned=frozenset({"epochs"})),
)
SETTINGS = (
    Selection({"setting": "trained"}, {"epochs": 50, "score_samples": 0}),
    Selection({"setting": "scored with eight samples"}, {"score_samples": 8}),
    Selection({"setting": "untrained"}, {"epochs": 0}),
)
GRIDS = ("paper", "digits", "digits_long", "fashion", "paper_gaussian")

PUBLISHED = {"paper": {(1.0, 0.5): 0.903, (1.0, 1.0): 0.899, (1.0, 0.25): 0.897}}
"""Preset -> (beta, nu) -> published AUROC of the joint score."""
PUBLISHED_AT_OPTIMUM = {
    "auroc_variance": {"paper": {(1.0, 0.5): 0.867}},
    "auroc_entropy": {"paper": {(1.0, 0.5): 0.852}},
}
"""Score -> preset -> (beta, nu) -> published AUROC, at the joint score's optimum only."""
NAMED = tuple(
    Selection({"class": name}, {"beta": 1.0, "nu": 0.5, "normal_class": index})
    for index, name in enumerate(claimed.TABLE_3)
)
"""The cells of Table 3."""

JOINT = Metric("auroc_joint", "maximize")

SWEEP = Sweep(
    about="one-class anomaly AUROC of VJE over KL weight beta, degrees of freedom nu and the normal class",
    presets={
        "paper": PAPER,
        "digits": DIGITS,
        "digits_long": DIGITS_LONG,
        "fashion": FASHION,
        "controls": CONTROLS,
        "paper_gaussian": GAUSSIAN,
    },
    paper=assumed.VJE,
    assumptions={
        "paper": (assumed.REPORTS, assumed.AT_THE_MEAN),
        "paper_gaussian": (
            assumed.REPORTS,
            assumed.AT_THE_MEAN,
            Assumption("that of the paper's optimum; it states none here", ("beta",)),
        ),
    },
    figures=(
        Heatmap(JOINT, "beta", "nu", PUBLISHED, presets=GRIDS, place="Fig. 4"),
        *(
            Heatmap(
                Metric(name, "maximize"), "beta", "nu", PUBLISHED_AT_OPTIMUM.get(name, {}), presets=GRIDS, place="5.3"
            )
            for name in ("auroc_dir", "auroc_rad", "auroc_variance", "auroc_entropy")
        ),
        Table(
            "classes",
            ("class",),
            (JOINT,),
            presets=("paper",),
            selections=NAMED,
            published={"paper": {(name,): {"auroc_joint": figure} for name, figure in claimed.TABLE_3.items()}},
            place="Table 3",
        ),
        Table(
            "gaussian",
            ("normal_class",),
            (JOINT, Metric("posterior_variance")),
            presets=("paper_gaussian",),
            place="5.3",
        ),
        Heatmap(JOINT, "setting", "nu", presets=("controls",), selections=SETTINGS, place="5.3"),
    ),
    over="classes",
    breakdown="normal_class",
    correlations=(("auroc_joint", "posterior_entropy"), ("auroc_joint", "posterior_variance")),
    claims=claimed.ANOMALY_GRID,
)
