"""A classifier over learning rate, weight decay and label smoothing: accuracy and calibration.

Trials that differ in these keys and in the seed form one stack. The preset `paper` extends mixup's experiment on
CIFAR-10, whose learning rate and weight decay are one cell of the grid. The paper's settings were recalled, not read.
"""

from search_spaces import _assumptions as assumed
from search_spaces._protocols import SEEDS, Keys
from sweeper.definition import Assumption, Grid, Heatmap, Metric, Sweep, Table, Trajectory, Value

SMOOTHINGS = (0.0, 0.1)
PAPER: Keys = {
    "method": "classifier",
    "dataset": "cifar10",
    "validation": 0.1,
    "encoder": "resnet18",
    "small_stem": True,
    "epochs": 200,
    "batch_size": 128,
    "momentum": 0.9,
    "shift": 4.0,
    "flip": 0.5,
    "report_every": 20,
}
DIGITS: Keys = {
    "method": "classifier",
    "dataset": "digits",
    "validation": 0.2,
    "encoder": "mlp",
    "width": 64,
    "features": 32,
    "epochs": 20,
    "batch_size": 60,
    "rotation": 5.0,
    "shift": 0.25,
    "report_every": 5,
}
FASHION: Keys = {
    **DIGITS,
    "dataset": "fashion_mnist",
    "width": 128,
    "features": 64,
    "epochs": 5,
    "batch_size": 128,
    "rotation": 0.0,
    "shift": 1.0,
    "flip": 0.5,
    "report_every": 1,
}


def _grid(protocol: Keys, rates: tuple[Value, ...], decays: tuple[Value, ...]) -> Grid:
    return Grid(protocol, {"lr": rates, "weight_decay": decays, "smoothing": SMOOTHINGS, "seed": SEEDS})


METRICS = (Metric("accuracy", "maximize", percent=True), Metric("nll", "minimize"), Metric("ece", "minimize"))

SWEEP = Sweep(
    about="accuracy and calibration of a classifier over learning rate, weight decay and label smoothing",
    presets={
        "paper": _grid(PAPER, (0.03, 0.1, 0.3), (1e-4, 5e-4, 1e-3)),
        "digits": _grid(DIGITS, (0.02, 0.05, 0.1, 0.2), (0.0, 1e-3, 3e-3, 1e-2)),
        "fashion": _grid(FASHION, (0.01, 0.03, 0.06, 0.1), (0.0, 1e-4, 1e-3, 1e-2)),
    },
    paper="mixup (arXiv 1710.09412)",
    assumptions={
        "paper": (
            assumed.SEED,
            assumed.REPORTS,
            Assumption(
                "the paper has one cell of the grid, no label smoothing, and mixup with alpha 1 (`--axis mixup=0,1`)",
                ("lr", "weight_decay", "smoothing"),
            ),
            Assumption("a tenth of the training images is held out for model selection", ("validation",)),
            Assumption("the paper divides the rate by 10 after 100 and 150 epochs; here it follows half a cosine"),
            Assumption("a ResNet-18 with a stem for small images; the paper uses a PreAct ResNet-18", ("encoder",)),
            Assumption("shifts of up to 4 pixels and flips, as is usual for CIFAR-10", ("shift", "flip")),
        )
    },
    figures=(
        Heatmap(METRICS[0], "lr", "weight_decay"),
        Table("calibration", ("smoothing", "lr", "weight_decay"), METRICS),
        Trajectory("smoothing", METRICS, by=("smoothing",)),
    ),
    over="seeds",
    breakdown="smoothing",
)
