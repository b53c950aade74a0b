"""Ablation of the degrees of freedom of VJE's likelihood, up to the Gaussian limit (VJE, Table 5)."""

import math

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import KNN, KNN_MU, PROBE, PROBE_MU, SEEDS, VJE_DIGITS, ablation, accuracies
from sweeper.definition import Grid, Metric, Sweep, Table, Trajectory

NU = (1.0, 3.0, 7.0, 20.0, 50.0, math.inf)

PAPER = ablation({"beta": 1.0}, "nu", NU)
DIGITS = Grid({**VJE_DIGITS, "beta": 1.0}, {"nu": NU, "seed": SEEDS})

TABLE_5 = {
    1.0: (86.18, 89.23, 54.17, 63.05, 78.71, 84.23),
    3.0: (86.2, 88.9, 53.7, 62.7, 79.7, 85.1),
    7.0: (86.02, 88.71, 53.26, 62.08, 79.4, 84.58),
    20.0: (85.82, 88.5, 53.42, 62.29, 79.35, 84.93),
    50.0: (85.4, 88.08, 51.93, 61.53, 78.91, 84.68),
    math.inf: (29.0, 62.0, 3.3, 23.4, 37.8, 55.7),
}

SWEEP = Sweep(
    about="k-NN and linear probe of VJE over the degrees of freedom nu, including the Gaussian limit",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.VJE,
    assumptions={"paper": (assumed.SEED, assumed.REPORTS, assumed.PROBE, *assumed.STL10)},
    figures=(
        Table(
            "accuracy",
            ("nu",),
            (KNN, PROBE),
            columns="dataset",
            published={"paper": accuracies(TABLE_5)},
            place="Table 5",
        ),
        Table("posterior", ("nu",), (KNN_MU, PROBE_MU, Metric("var_mean"), Metric("var_cv")), columns="dataset"),
        Trajectory("knn", (KNN, KNN_MU), by=("nu",)),
    ),
    claims=claimed.NU_ABLATION,
)
