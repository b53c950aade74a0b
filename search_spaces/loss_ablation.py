"""Ablation of the terms of VJE's loss (VJE, Tables 6 and 7)."""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import KNN, KNN_MU, PROBE, SEEDS, SETS, VJE_DIGITS, ablation, accuracies
from sweeper.definition import Grid, Metric, Sweep, Table, Trajectory

TERMS = ("dir+rad+kl", "dir+kl", "dir+rad", "rad+kl", "rad", "dir")

PAPER = ablation({"beta": 1.0, "nu": 3.0}, "terms", TERMS)
DIGITS = Grid({**VJE_DIGITS, "beta": 1.0, "nu": 3.0}, {"terms": TERMS, "seed": SEEDS})

VARIANCE = (Metric("var_mean"), Metric("var_cv"))
TABLE_6 = {
    "dir+rad+kl": (86.18, 88.91, 53.65, 62.70, 79.74, 85.11),
    "dir+kl": (86.08, 88.97, 53.34, 62.00, 79.41, 84.40),
    "dir+rad": (19.86, 22.68, 3.69, 6.30, 10.10, 10.01),
    "rad+kl": (25.41, 31.63, 4.53, 9.38, 23.58, 27.83),
    "rad": (18.19, 19.13, 4.58, 9.67, 18.66, 23.48),
    "dir": (13.44, 15.66, 3.90, 5.52, 9.78, 10.00),
}
TABLE_7 = {
    "dir+rad+kl": ((0.32, 0.78), (0.33, 0.73), (0.28, 0.70)),
    "dir+kl": ((0.32, 0.77), (0.33, 0.74), (0.27, 0.70)),
    "dir+rad": ((0.00,), (0.00,), (0.00,)),
    "rad+kl": ((0.99, 0.00), (0.99, 0.00), (0.99, 0.00)),
    "rad": ((0.07, 0.06), (0.32, 0.11), (0.21, 0.07)),
    "dir": ((0.00,), (0.00,), (0.00,)),
}
"""Mean of the posterior's variance, and its coefficient of variation if defined, for each of `SETS`."""
VARIANCES = {
    (terms, dataset): dict(zip(("var_mean", "var_cv"), figures[index], strict=False))
    for terms, figures in TABLE_7.items()
    for index, dataset in enumerate(SETS)
}
"""Table 7 as the `published` cells of a `Table`."""

SWEEP = Sweep(
    about="VJE without some of its loss terms: accuracy, and the posterior's variance in its three regimes",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.VJE,
    assumptions={"paper": (assumed.SEED, assumed.REPORTS, assumed.PROBE, *assumed.STL10)},
    figures=(
        Table(
            "accuracy",
            ("terms",),
            (KNN, PROBE),
            columns="dataset",
            published={"paper": accuracies(TABLE_6)},
            place="Table 6",
        ),
        Table("variance", ("terms",), VARIANCE, columns="dataset", published={"paper": VARIANCES}, place="Table 7"),
        Trajectory("knn", (KNN, KNN_MU), by=("terms",)),
        Trajectory("variance", VARIANCE, by=("terms",)),
    ),
    claims=claimed.LOSS_ABLATION,
)
