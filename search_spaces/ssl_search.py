"""Tune each method of `ssl_cifar10` in its own search: does tuning change the order of the methods (VJE, Table 2)?

All methods train under the protocol of `ssl_cifar10`, with fewer epochs, and have the same number of trials. Each
search covers the learning rate, the weight decay and the method's own hyperparameters, preferably those that keep
tensor shapes, so that a wave fits into one stack. The objective is the k-NN accuracy on validation images, which are
held out of the training images. A probe's accuracy could not be used for pruning, because probes are trained only at
the end.
"""

from collections.abc import Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from search_spaces import _assumptions as assumed
from search_spaces import _protocols as protocols
from search_spaces._protocols import METHODS, METHODS_DIGITS, SMALL_IMAGES, Keys, not_searched
from sweeper.definition import Assumption, Halving, Metric, Search, Sweep

Space = Mapping[str, BaseDistribution]
KNN = Metric("val_knn_z", "maximize", percent=True)


def _log(low: float, high: float) -> FloatDistribution:
    return FloatDistribution(low, high, log=True)


OWN: Mapping[str, Space] = {
    "vje": {"beta": _log(0.1, 3.0), "nu": _log(0.3, 30.0)},
    "simsiam": {},
    "vicreg": {"invariance_weight": _log(2.5, 100.0), "variance_weight": _log(2.5, 100.0)},
    "simclr": {"tau": _log(0.03, 1.0)},
    "moco_v2": {"tau": _log(0.03, 1.0), "ema": FloatDistribution(0.9, 0.999)},
    "byol": {"ema": FloatDistribution(0.9, 0.999)},
    "swav": {"tau": _log(0.03, 1.0), "epsilon": _log(0.01, 0.3)},
    "barlow_twins": {"redundancy_weight": _log(1e-3, 0.5)},
}
"""Method -> hyperparameters searched besides lr and weight decay.

SimSiam's hyperparameters are shapes, which differ between presets. VICReg's covariance weight stays 1, because a common
factor of all three weights would act like the learning rate."""


def _searches(
    protocol: Keys,
    methods: Mapping[str, Keys],
    predictor_widths: tuple[int, ...],
    lr: FloatDistribution,
    trials: int,
    wave: int,
    pruner: Halving,
) -> tuple[Search, ...]:
    """One search per method. Keys that are not searched keep their values in the protocol or in `methods`."""
    method_spaces = {**OWN, "simsiam": {"predictor_width": CategoricalDistribution(predictor_widths)}}
    searches = []
    for method, own_space in method_spaces.items():
        space = {"lr": lr, "weight_decay": _log(1e-6, 1e-2), **own_space}
        fixed = not_searched({**protocol, "method": method, **methods[method]}, space)
        searches.append(Search(space, fixed, trials, KNN, wave, pruner=pruner))
    return tuple(searches)


PAPER = _searches(
    {**SMALL_IMAGES, "dataset": "cifar10", "validation": 0.1, "epochs": 200},
    METHODS,
    predictor_widths=(256, 512, 1024),
    lr=_log(5e-3, 0.5),
    trials=64,
    wave=16,
    pruner=Halving(first=20, factor=3),
)
DIGITS = _searches(
    {**protocols.DIGITS, "validation": 0.2, "epochs": 24, "report_every": 4},
    METHODS_DIGITS,
    predictor_widths=(16, 32, 64),
    lr=_log(1e-3, 0.3),
    trials=24,
    wave=12,
    pruner=Halving(first=8, factor=2),
)

ASSUMED = Assumption(
    "the paper has no search: the spaces, the epochs, the validation images and most baselines are ours",
    ("lr", "weight_decay", "epochs", "validation", "beta", "nu", "tau", "ema", "epsilon", "predictor_width"),
)

SWEEP = Sweep(
    about="k-NN accuracy of VJE and seven baselines after a search over each method's own hyperparameters",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.VJE,
    assumptions={"paper": (ASSUMED, assumed.REPORTS, assumed.PROBE)},
)
