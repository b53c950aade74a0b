"""Search VJE's hyperparameters for the best one-class AUROC (VJE, beside Fig. 4).

Keys that are not searched have the values of `anomaly_grid`, so a study is comparable with that grid's 56 cells of the
same class, but it must find the learning rate itself.

The class has room for improvement. On CIFAR-10 it is the cat, whose AUROC of 0.828 at the paper's optimum is the lowest
of the ten classes. On the digits it is the digit 1: half of the random draws from roughly this space stay below an
AUROC of 0.82, a tenth exceed 0.94, and the best reach 0.99. `--axis normal_class=0,1,2` makes one study per class.

The objective is the AUROC on validation images, which are held out of the training images. The paper chooses the best
cell of its grid on test images; here, test images only evaluate the chosen trial.
"""

from collections.abc import Mapping
from dataclasses import replace

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search_spaces import _assumptions as assumed
from search_spaces._protocols import ONE_CLASS, ONE_CLASS_DIGITS, not_searched
from sweeper.definition import Assumption, Halving, Metric, Population, Search, Sweep

AUROC = Metric("val_auroc_joint", "maximize")
LIKELIHOOD = {"beta": FloatDistribution(0.03, 3.0, log=True), "nu": FloatDistribution(0.1, 50.0, log=True)}


PAPER_SPACE: Mapping[str, BaseDistribution] = {
    **LIKELIHOOD,
    "lr": FloatDistribution(1e-6, 1e-3, log=True),
    "weight_decay": FloatDistribution(1e-6, 1e-2, log=True),
    "bottleneck": CategoricalDistribution((64, 128, 256)),
}
PAPER = Search(
    space=PAPER_SPACE,
    fixed=not_searched({**ONE_CLASS, "validation": 0.1, "normal_class": 3}, PAPER_SPACE),
    trials=128,
    wave=16,
    metric=AUROC,
    pruner=Halving(first=100, factor=3),
)

ADAPTED = {
    **LIKELIHOOD,
    "lr": FloatDistribution(1e-4, 0.1, log=True),
    "weight_decay": FloatDistribution(1e-6, 0.1, log=True),
}
DIGITS_SPACE: Mapping[str, BaseDistribution] = {**ADAPTED, "width": CategoricalDistribution((32, 64, 128, 256))}
DIGITS = Search(
    space=DIGITS_SPACE,
    fixed=not_searched({**ONE_CLASS_DIGITS, "normal_class": 1, "report_every": 5}, DIGITS_SPACE),
    trials=64,
    wave=32,
    metric=AUROC,
    pruner=Halving(first=10, factor=2),
)
POPULATION = replace(
    DIGITS.changed({"width": 128}, {}), trials=32, sampler="random", pruner=None, population=Population(every=5)
)
FRONT = replace(DIGITS, metric=(AUROC, Metric("seconds", "minimize")), sampler="nsga2", pruner=None)
"""Trade-off between AUROC and training time. A trial's time is its share of its cohort's time, so it depends on the
width."""

ASSUMED = Assumption(
    "the paper has no search: the space, the class and the validation images are ours",
    ("beta", "nu", "lr", "weight_decay", "bottleneck", "normal_class", "validation"),
)

SWEEP = Sweep(
    about="the best one-class AUROC of VJE over beta, nu, lr, weight decay and a width, in waves that train together",
    presets={"paper": PAPER, "digits": DIGITS, "digits_population": POPULATION, "digits_front": FRONT},
    paper=assumed.VJE,
    assumptions={"paper": (ASSUMED, assumed.REPORTS)},
    contours=(("beta", "nu"), ("beta", "lr")),
)
