"""One-class methods side by side on ten classes: is a score worth anything beside what a user would pick instead?

Every trial is evaluated by its method's own anomaly scores and by scores that are fitted to its representations, of which
validation images choose one. Figures of papers are of other networks and far more steps than the presets `fashion` and
`digits`, and some chose on test images.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_one_class as claimed
from search_spaces import _one_class_protocols as protocols
from search_spaces._one_class_protocols import BEST_ON_TEST, CHOSEN
from sweeper.spec import Assumption, Metric, Sweep, Table

FITTED = tuple(
    Metric(f"auroc_{name}_z", "maximize", percent=True)
    for name in ("knn1", "knn5", "cosine1", "kde", "gaussian", "ocsvm", "forest")
)

SWEEP = Sweep(
    about="one-class methods and scores on ten classes, beside what the papers report",
    presets={
        "paper": protocols.method_grids(protocols.CIFAR10, protocols.PAPER),
        "fashion": protocols.method_grids(protocols.FASHION, protocols.SMALL_FASHION),
        "digits": protocols.method_grids(protocols.DIGITS, protocols.SMALL_DIGITS),
    },
    paper=assumed.VJE,
    assumptions={
        "paper": (
            assumed.SEED,
            assumed.REPORTS,
            Assumption("the papers hold out no images; here they choose a score", ("validation",)),
            Assumption("scores beside those of the authors", ("one_class_scores",)),
            Assumption("the SGD of all methods in place of LARS", ("lr", "weight_decay"), ("simclr",)),
            Assumption("not in the papers' comparison", methods=("pixels", "random")),
        )
    },
    tables=(
        Table("methods", ("method",), (CHOSEN, BEST_ON_TEST)),
        Table("scores", ("method",), FITTED),
        Table("classes", ("method",), (CHOSEN,), columns="normal_class"),
    ),
    claims=claimed.ONE_CLASS_BENCHMARK,
)
