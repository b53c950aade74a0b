"""The linear probe of the digits beside scikit-learn's logistic regression on the same features, of real encoders.

Trains every method of `ssl_cifar10 --preset digits` (or those of `--methods`) and prints a line for each
representation: its k-NN accuracy, and three classifiers of the same frozen features. `raw` is the papers' probe on
features as they are, `probe` that of the digits presets, `regression` scikit-learn's LogisticRegression (C=1) on
standardised features, and `agree` how much `probe` exceeds it. All are percent of the images that the preset evaluates
on, the mean over the seeds.

    python -m tests.benchmarks.bench_probe --seeds 0 --methods vje,random
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from search_spaces._protocols import CLASSIFIED
from search_spaces.ssl_cifar10 import DIGITS
from trainables.catalog import METHODS
from trainables.config import resolve
from trainables.metrics import probes
from trainables.metrics.evaluator import Floats, ProbeData
from trainables.sections import TrialConfig
from trainables.tasks.images.task import image_method
from trainables.training.train import train

SHOWN = ("knn", "raw", "probe", "regression", "agree")


class Comparison:
    """Stands in for `probes.sgd_accuracies`: classifies the features that it is given in the other two ways as well."""

    def __init__(self) -> None:
        self.classify = probes.sgd_accuracies
        self.raw: list[Floats] = []
        self.regression: list[Floats] = []
        self.seconds = [0.0, 0.0]
        """Of the probes and of the regressions."""

    def __call__(self, data: ProbeData, schedule: probes.Schedule, **options: Any) -> dict[int, Floats]:
        size = min(int(str(CLASSIFIED["probe_batch_size"])), len(data.bank_labels_N))
        lr = float(str(CLASSIFIED["probe_lr"])) * size / 256
        papers = replace(schedule, epochs=int(str(CLASSIFIED["probe_epochs"])), lr=lr, batch_size=size)
        self.raw.append(self.classify(data, papers, **options | {"standardize": False})[1])
        begun = time.perf_counter()
        regression = [
            make_pipeline(StandardScaler(), LogisticRegression(C=1, max_iter=10_000))
            .fit(bank_ND.double().numpy(), data.bank_labels_N.numpy())
            .score(test_MD.double().numpy(), data.test_labels_M.numpy())
            for bank_ND, test_MD in zip(data.bank_KND, data.test_KMD, strict=True)
        ]
        self.regression.append(np.array(regression))
        fitted = time.perf_counter()
        accuracies = self.classify(data, schedule, **options)
        self.seconds[0] += time.perf_counter() - fitted
        self.seconds[1] += fitted - begun
        return accuracies


def rows(configs: Sequence[TrialConfig], comparison: Comparison) -> Iterator[tuple[str, list[float]]]:
    """A name and the values of SHOWN for each representation of the members of one cohort, which differ in the seed."""
    begin = len(comparison.raw)
    *_, report = train(configs, Path())
    method = image_method(METHODS[configs[0].method])
    for index, vector in enumerate(method.representations, begin):
        knn, probe = (
            np.array([member.metrics[f"{name}_{vector}"] for member in report.members], dtype=np.float64)
            for name in ("knn", "probe")
        )
        raw, regression = comparison.raw[index], comparison.regression[index]
        projector = " projector" if getattr(configs[0].options, "projector_width", 0) and method.variance else ""
        values = [float(100 * np.mean(value)) for value in (knn, raw, probe, regression, probe - regression)]
        yield f"{configs[0].method}{projector} {vector}", values


def report(seeds: Sequence[int], methods: Sequence[str]) -> None:
    torch.manual_seed(0)
    configs = [resolve(trial | {"seed": seed}) for trial in _first_seeds() for seed in seeds]
    chosen = [config for config in configs if config.method in methods]
    comparison = Comparison()
    print(f"{'%':18}" + "".join(f"{name:>12}" for name in SHOWN), flush=True)
    differences = []
    with patch.object(probes, "sgd_accuracies", comparison):
        for _, cohort in groupby(chosen, key=lambda config: (config.method, config.options)):
            for name, values in rows(list(cohort), comparison):
                differences.append(abs(values[-1]))
                print(f"{name:18}" + "".join(f"{value:12.1f}" for value in values), flush=True)
    print(f"largest difference {max(differences):.1f}, mean {np.mean(differences):.1f}; seconds: probes ", end="")
    print(f"{comparison.seconds[0]:.1f}, regressions {comparison.seconds[1]:.1f}")


def _first_seeds() -> Iterator[dict[str, Any]]:
    """The trials of the preset, one of each group that differs in the seed."""
    for grid in DIGITS:
        yield next(iter(grid.combinations()))


if __name__ == "__main__":
    numbers = partial(str.split, sep=",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=["0"], help="of each method, default 0")
    parser.add_argument("--methods", type=numbers, default=list(METHODS), help="default all")
    arguments = parser.parse_args()
    report([int(seed) for seed in arguments.seeds], arguments.methods)
