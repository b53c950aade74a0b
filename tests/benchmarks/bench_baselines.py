"""One-class AUROC of what scikit-learn offers: the numbers that a learnt representation has to beat.

python -m tests.benchmarks.bench_baselines [--dataset NAME] [--data DIR] [--validation SHARE] [--quick]

For each class: train on its training images alone, score all test images, outliers are the other nine. Pixels lie in
[0, 1]. The same share of the training images is held out as in the presets of `anomaly_grid`, so that detectors and VJE
learn from the same images; `--validation 0` holds out none. The headline of each method is its default setting. Of a
grid of OneClassSVM two lines show test AUROCs: of the setting that is best on validation images, and of the one that is
best on the test images themselves, which is an upper bound and no result. `--quick` leaves out all but the nearest
neighbours, for thousands of images.

Shapes: N images, P pixels.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.svm import OneClassSVM

from trainables.data.datasets.catalog import load
from trainables.data.image_files import Images
from trainables.data.splits import Split, hold_out_validation, one_class_split

Array = NDArray[np.float64]
Scorer = Callable[[Array, Array], Array]
"""Training images `[N, P]`, test images `[N, P]` -> anomaly scores of the latter, higher for more anomalous."""

SEEDS = (0, 1, 2)
NUS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75)
GAMMAS: tuple[str | float, ...] = ("scale", "auto", 0.01, 0.03, 0.1, 0.3, 1.0)


def svm(nu: float = 0.5, gamma: str | float = "scale") -> Scorer:
    """The defaults are scikit-learn's."""
    return lambda train, test: -OneClassSVM(nu=nu, gamma=gamma).fit(train).decision_function(test)


def forest(seed: int) -> Scorer:
    return lambda train, test: -IsolationForest(random_state=seed).fit(train).score_samples(test)


def nearest(k: int) -> Scorer:
    """Euclidean distance to the k-th nearest training image."""
    return lambda train, test: NearestNeighbors(n_neighbors=k).fit(train).kneighbors(test)[0][:, -1]


HEADLINES: Mapping[str, tuple[Scorer, ...]] = {
    "OneClassSVM, default (nu=0.5, gamma=scale)": (svm(),),
    f"IsolationForest, default, {len(SEEDS)} seeds": tuple(forest(seed) for seed in SEEDS),
    "nearest neighbour, k=1": (nearest(1),),
    "nearest neighbour, k=5": (nearest(5),),
}
"""Name -> scorers whose AUROCs are averaged."""


def pixels(images: Images, levels: int) -> Array:
    """`[N, P]` in [0, 1]."""
    return images[:].flatten(1).numpy().astype(np.float64) / levels


def auroc(split: Split, scorer: Scorer) -> float:
    assert split.outlier is not None
    scores = scorer(pixels(split.train_images, split.levels), pixels(split.test_images, split.levels))
    return float(roc_auc_score(split.outlier.numpy(), scores))


def per_class(splits: list[Split], scorers: tuple[Scorer, ...]) -> list[float]:
    return [float(np.mean([auroc(split, scorer) for scorer in scorers])) for split in splits]


def rows(splits: list[Split], validation: list[Split], quick: bool) -> Iterator[tuple[str, list[float]]]:
    """Each line of the table: its name and the AUROC of each class. `validation` may be empty."""
    for name, scorers in HEADLINES.items():
        if name.startswith("nearest") or not quick:
            yield name, per_class(splits, scorers)
    if quick:
        return
    grid = {setting: per_class(splits, (svm(*setting),)) for setting in product(NUS, GAMMAS)}
    if validation:
        chosen = max(grid, key=lambda setting: np.mean(per_class(validation, (svm(*setting),))))
        yield f"OneClassSVM, best of {len(grid)} by validation: nu={chosen[0]}, gamma={chosen[1]}", grid[chosen]
    best = max(grid, key=lambda setting: np.mean(grid[setting]))
    yield f"(OneClassSVM, best of {len(grid)} by TEST: nu={best[0]}, gamma={best[1]})", grid[best]
    spread = [float(np.mean(values)) for values in grid.values()]
    print(f"OneClassSVM over its grid: mean AUROC from {min(spread):.3f} to {max(spread):.3f}")


def report(name: str, data: Path, share: float, quick: bool) -> None:
    begun, dataset = time.perf_counter(), load(name, data)
    parts = hold_out_validation(dataset, share) if share else (dataset,)
    splits, *validation = ([one_class_split(part, normal) for normal in range(len(dataset.classes))] for part in parts)
    lines = list(rows(splits, validation[0] if validation else [], quick))
    title = f"AUROC, {name}, one class"
    width = max(len(title), *(len(method) for method, _ in lines))
    print(f"{title:{width}}  {'  '.join(f'{index:>5}' for index in range(len(dataset.classes)))}   mean    std")
    for method, values in lines:
        cells = "  ".join(f"{value:.3f}" for value in values)
        print(f"{method:{width}}  {cells}  {np.mean(values):.3f}  {np.std(values, ddof=1):.3f}")
    print(f"std over the {len(splits)} classes (ddof=1); {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--validation", type=float, default=0.2)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    report(arguments.dataset, arguments.data, arguments.validation, arguments.quick)
