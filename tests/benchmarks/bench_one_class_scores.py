"""Fitted anomaly scores: ours for a stack beside scikit-learn's models, one member after the other, in one process.

python -m tests.benchmarks.bench_one_class_scores [--members 1] [--numbers 784] [--threads 2] [--scores knn1+kde_raw]

Random vectors about means of their own: 6,000 training vectors and 10,000 others, or fewer where scikit-learn takes
minutes. CPU seconds are printed beside seconds, because a busy machine changes the latter alone. The scores of both
agree but for two: forests start otherwise, and scikit-learn's KernelDensity sums bounds of its tree's branches, which
for 784 numbers leaves no digit of kde_raw.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.svm import OneClassSVM
from threadpoolctl import threadpool_limits
from torch import Tensor

from trainables.metrics.fitted_scores import BANDWIDTHS, FITS, FittedScores
from trainables.validation import choices

Array = NDArray[np.float32]
SLOW: Mapping[str, tuple[int, int]] = {"kde": (2000, 500), "kde_raw": (600, 200), "ocsvm": (3000, 1000)}
"""Score -> training vectors and others of the comparison, where it is of fewer; ocsvm_raw is as ocsvm."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--numbers", type=int, default=784, help="size D of a vector")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scores", default="+".join(FITS), help="names joined by +")
    arguments = parser.parse_args()
    names = arguments.scores.split("+")
    for name in names:
        choices("score", name, FITS)
    torch.set_num_threads(arguments.threads)
    print(
        f"{arguments.members} members, D = {arguments.numbers}, {arguments.threads} threads, torch {torch.__version__}"
    )
    with threadpool_limits(arguments.threads):
        for name in names:
            compare(name, arguments.members, arguments.numbers)


def compare(name: str, members: int, numbers: int) -> None:
    """Print one line: the seconds of both, and their ratio."""
    count, others = SLOW.get(name.removesuffix("_raw") if name == "ocsvm_raw" else name, (6000, 10_000))
    source = torch.Generator().manual_seed(0)
    mean_K1D = torch.randn(members, 1, numbers, generator=source)
    train_KND, x_KMD = (mean_K1D + torch.randn(members, size, numbers, generator=source) for size in (count, others))
    ours, values_KM = timed(lambda: FittedScores([name], train_KND, range(members))(x_KMD)[name].numpy())
    plain, expected_KM = timed(lambda: by_scikit_learn(name, train_KND, x_KMD))
    agree = np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(values_KM, expected_KM, strict=True)])
    print(
        f"{name:10} {count:5} and {others:6} vectors: ours {ours[0]:7.2f} s ({ours[1]:7.2f} of CPU), scikit-learn "
        f"{plain[0]:7.2f} s ({plain[1]:7.2f}), ratio of CPU {plain[1] / ours[1]:6.1f}, correlation {agree:.4f}",
        flush=True,
    )


def timed(score: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Seconds and CPU seconds of a call, and what it returns."""
    start, cpu = time.perf_counter(), time.process_time()
    values = score()
    return (time.perf_counter() - start, time.process_time() - cpu), values


def by_scikit_learn(name: str, train_KND: Tensor, x_KMD: Tensor) -> Array:
    """The scores `[K, M]` by scikit-learn's models, as its documentation uses them."""
    if FITS[name].unit:
        train_KND, x_KMD = (torch.nn.functional.normalize(each, dim=-1) for each in (train_KND, x_KMD))
    return np.array([_score(name, *pair) for pair in zip(train_KND.numpy(), x_KMD.numpy(), strict=True)])


def _score(name: str, train_ND: Array, x_MD: Array) -> Array:
    width = float(train_ND.std())
    gamma = 10 / (width**2 * train_ND.shape[1])
    if name[-1].isdecimal():
        nearest = NearestNeighbors(n_neighbors=int(name[-1])).fit(train_ND)
        return np.asarray(nearest.kneighbors(x_MD)[0].mean(1))
    if name == "kde":
        return np.asarray(-KernelDensity(bandwidth=(2 * gamma) ** -0.5).fit(train_ND).score_samples(x_MD))
    if name == "kde_raw":
        search = GridSearchCV(KernelDensity(), {"bandwidth": [width * share for share in BANDWIDTHS]}).fit(train_ND)
        return np.asarray(-search.best_estimator_.score_samples(x_MD))
    if name == "gaussian":
        return np.asarray(LedoitWolf().fit(train_ND).mahalanobis(x_MD) ** 0.5)
    if name == "forest":
        return np.asarray(-IsolationForest(random_state=0).fit(train_ND).score_samples(x_MD))
    machine = OneClassSVM(gamma=gamma, nu=0.5) if name == "ocsvm" else OneClassSVM(gamma="scale", nu=0.1)
    return np.asarray(-machine.fit(train_ND).decision_function(x_MD))


if __name__ == "__main__":
    main()
