"""One-class methods side by side on ten classes: does a score beat the simple alternatives?

Every trial is evaluated with its method's own anomaly scores and with scores fitted to its representations; validation
images choose one of them. The papers' numbers come from other networks and far more steps than in the presets `fashion`
and `digits`, and some were chosen on test images.
"""

from collections.abc import Mapping

from search_spaces import _assumptions as assumed
from search_spaces import _claims_one_class as claimed
from search_spaces import _one_class_protocols as protocols
from search_spaces._one_class_protocols import BEST_ON_TEST, CHOSEN
from sweeper.definition import Assumption, Metric, Published, Ranking, Sweep, Table, Value

OWN = ("joint", "distance", "reconstruction", "probability", "log_probability", "dirichlet", "csi")
FITTED = ("knn1_z", "knn5_z", "cosine1_z", "kde_z", "gaussian_z", "ocsvm_z", "forest_z")
SCORES = tuple(Metric(f"auroc_{name}", "maximize", percent=True) for name in (*OWN, *FITTED))
"""The methods' own scores, and the scores fitted to the representation."""

CIFAR10: Mapping[tuple[Value, ...], Published] = {
    ("pixels",): Published(0.648),
    ("deep_svdd",): Published(0.648),
    ("DROCC",): Published(0.716),
    ("geom",): Published(0.860),
    ("simclr",): Published(0.879),
    ("goad",): Published(0.882),
    ("rotation_prediction",): Published(0.898),
    ("vje",): Published(0.903),
    ("rotation and KDE (Sohn 2021)",): Published(0.913, recalled=True),
    ("contrastive and OCSVM (Sohn 2021)",): Published(0.925),
    ("csi",): Published(0.943),
    ("CutPaste, as quoted",): Published(0.952),
    ("PANDA, ImageNet features",): Published(0.962),
    ("SimpleNet, as quoted",): Published(0.996),
}
FASHION_MNIST: Mapping[tuple[Value, ...], Published] = {
    ("deep_svdd",): Published(0.848, recalled=True),
    ("pixels",): Published(0.928, recalled=True),
    ("rotation_prediction",): Published(0.932, recalled=True),
    ("geom",): Published(0.935, recalled=True),
    ("goad",): Published(0.941, recalled=True),
    ("contrastive and OCSVM (Sohn 2021)",): Published(0.948, recalled=True),
    ("PANDA, ImageNet features",): Published(0.956, recalled=True),
    ("rotation and KDE (Sohn 2021)",): Published(0.958, recalled=True),
}
DEEP_SVDD = (61.7, 65.9, 50.8, 59.1, 60.9, 65.7, 67.7, 67.3, 75.9, 73.1)
"""Deep SVDD's published AUROC for each class of CIFAR-10."""
BY_CLASS = {("deep_svdd", index): {"auroc_chosen": figure} for index, figure in enumerate(DEEP_SVDD)}

SWEEP = Sweep(
    about="one-class methods and scores on ten classes, beside the papers' numbers",
    presets={
        "paper": protocols.method_grids(protocols.CIFAR10, protocols.PAPER),
        "fashion": protocols.method_grids(protocols.FASHION, protocols.SMALL_FASHION, protocols.ONE_SEED),
        "digits": protocols.method_grids(protocols.DIGITS, protocols.SMALL_DIGITS),
    },
    paper=assumed.VJE,
    assumptions={
        "paper": (
            assumed.SEED,
            assumed.REPORTS,
            assumed.AT_THE_MEAN,
            Assumption("the papers hold out no images; here held-out images choose a score", ("validation",)),
            Assumption("scores in addition to the authors' own", ("one_class_scores",)),
            Assumption("SGD instead of LARS", ("lr", "weight_decay"), ("simclr", "csi")),
            Assumption(
                "the authors' schedules were not consulted",
                ("epochs", "batch_size", "lr", "weight_decay"),
                ("rotation_prediction", "geom", "goad"),
            ),
            Assumption("a ResNet-18 instead of the authors' network", ("encoder",), ("rotation_prediction",)),
            Assumption(
                "SimpleNet's and CutPaste's numbers are those that Table 4 quotes; they look like those of MVTec AD, "
                "and not of CIFAR-10"
            ),
            Assumption("not in the papers' comparison", methods=("pixels", "random")),
        )
    },
    figures=(
        Ranking(
            "methods",
            ("method",),
            CHOSEN,
            tasks="normal_class",
            over="classes",
            reference=("vje",),
            leak=BEST_ON_TEST,
            published={"paper": CIFAR10, "fashion": FASHION_MNIST},
            place="Table 4",
            note="numbers for pixels were chosen on test images",
        ),
        Table(
            "classes", ("method",), (CHOSEN,), columns="normal_class", published={"paper": BY_CLASS}, place="Table 4"
        ),
        Table("scores", ("method",), SCORES),
    ),
    over="classes",
    claims=claimed.ONE_CLASS_BENCHMARK,
)
