"""Anomaly scores fitted to vectors of normal images: distances to neighbours, kernel and Gaussian densities, support
vectors and isolation trees. The vectors may be representations, projections or pixels.

    fitted = FittedScores(["knn1", "kde"], train_KND, seeds)
    fitted(x_KMD)["kde"]  # [K, M], higher for more anomalous vectors

Members of a stack are fitted and scored together, in memory bounded by `CHUNK_BYTES`; scikit-learn's models are fitted
in threads. Shapes: K members, N training vectors and M other vectors of D dimensions, B vectors scored at a time, n
nearest training vectors, V support vectors, W bandwidths.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.learners.data_parallel import numpy_seed, seeded_generator
from trainables.metrics.neighbours import unit
from trainables.validation import choices

T = TypeVar("T")

CHUNK_BYTES = 64 * 2**20
"""Maximum bytes of distances in memory at a time. The distances of one vector of one member are always computed at
once."""
ROWS = 1024
"""Minimum number of vectors per member that are scored together, if `CHUNK_BYTES` allows it; fewer members are then
scored at a time."""
NEIGHBOURS = (1, 2, 5)
"""Numbers of neighbours whose mean distance is a score."""
BANDWIDTHS = tuple(2.0 ** (half / 2) for half in range(-10, 2))
"""Candidate bandwidths of `kde_raw`, in units of the standard deviation of all entries of the training vectors. No
bandwidth above the square root of 2 is likelier: the square of the likeliest bandwidth is a mean of squared distances
over D that favours near vectors, and the unweighted mean is at most twice the variance."""
FOLDS = 5
"""Number of consecutive folds of the training vectors in the cross-validation of the bandwidth."""
OCSVM_VECTORS = 3_000
"""Maximum number of training vectors for support vectors; of a larger set, the trial's seed draws this many. The time
of scikit-learn's fit grows with the square of their number."""
TREES = 100
"""Number of trees in `forest`, scikit-learn's default."""
SMALLEST_VARIANCE = 1e-9
"""Share of the mean variance that is added to the diagonal of a covariance, so that it is invertible."""


class TrainingVectors:
    """The finite training vectors of some members, and the members' seeds. The mean is subtracted, because vectors near
    0 have smaller rounding errors."""

    def __init__(self, train_KND: Tensor, seeds: Sequence[int], neighbours: int = 0) -> None:
        """`neighbours`: maximum number of nearest vectors that a score reads."""
        self.seeds, self.neighbours = seeds, min(neighbours, train_KND.shape[1])
        variance_K = train_KND.flatten(1).var(1, correction=0)
        self.variance_K = torch.where(variance_K > 0, variance_K, 1.0)
        """Variance of all entries of the vectors; 1 if they are all equal."""
        self.mean_K1D = train_KND.mean(1, keepdim=True)
        self.vectors_KND = train_KND - self.mean_K1D
        self.norm_K1N = self.vectors_KND.square().sum(-1)[:, None]

    def ranks(self, x_KBD: Tensor, out: Tensor | None = None) -> Tensor:
        """Squared distances `[K, B, N]` of these centred vectors, minus their own squared norm, which does not change
        the ranking."""
        return torch.baddbmm(self.norm_K1N, x_KBD, self.vectors_KND.mT, alpha=-2, out=out)

    def squared_distances(self, x_KBD: Tensor, ranks_KBN: Tensor) -> Tensor:
        """Turn the result of `ranks` for these vectors into squared distances, in place."""
        return ranks_KBN.add_(x_KBD.square().sum(-1, keepdim=True)).clamp_(min=0)


class Scored:
    """Vectors to score against the training vectors. Distances that several scores need are computed once."""

    def __init__(self, training: TrainingVectors, x_KBD: Tensor, memory: Tensor) -> None:
        """`memory`: a tensor of at least K B N numbers that distances overwrite, because mapping new memory takes
        time."""
        self.training, self.vectors_KBD = training, x_KBD - training.mean_K1D
        shape = (*x_KBD.shape[:2], training.vectors_KND.shape[1])
        self._memory_KBN = memory[: math.prod(shape)].view(shape)

    @cached_property
    def _ranks_KBN(self) -> Tensor:
        return self.training.ranks(self.vectors_KBD, self._memory_KBN)

    @cached_property
    def squared_KBN(self) -> Tensor:
        """Squared distances from the training vectors."""
        return self.training.squared_distances(self.vectors_KBD, self._ranks_KBN)

    @cached_property
    def nearest_KBn(self) -> Tensor:
        """The distances to the `neighbours` nearest training vectors (or to all if there are fewer), ascending. They
        are computed from differences, because `squared_KBN` has lost the digits of small distances."""
        nearest_KBn = self._ranks_KBN.topk(self.training.neighbours, largest=False, sorted=False).indices
        differences = [
            vectors_ND[nearest_Bn] - x_BD[:, None]
            for vectors_ND, nearest_Bn, x_BD in zip(
                self.training.vectors_KND, nearest_KBn, self.vectors_KBD, strict=True
            )
        ]
        distances = [torch.linalg.vector_norm(difference_BnD, dim=-1) for difference_BnD in differences]
        return torch.stack(distances).sort(dim=-1).values


Score = Callable[[Scored], Tensor]
"""Computes the scores `[K, B]` of vectors from the fitted model."""


@dataclass(frozen=True)
class Fit:
    """An anomaly score fitted to training vectors."""

    fit: Callable[[TrainingVectors], Score]
    unit: bool = False
    """Whether vectors are first scaled to unit length."""
    neighbours: int = 0
    """Number of nearest training vectors that the score reads."""


def _mean_distance(count: int, training: TrainingVectors) -> Score:
    """The mean distance to the `count` nearest training vectors, or to all if there are fewer."""
    return lambda scored: scored.nearest_KBn[..., :count].mean(-1)


def _cosine_norm(training: TrainingVectors) -> Score:
    """Minus the length of a vector times its cosine with the training vector of the most similar direction (CSI)."""
    unit_KND = unit(training.vectors_KND + training.mean_K1D)

    def score(scored: Scored) -> Tensor:
        return -((scored.vectors_KBD + training.mean_K1D) @ unit_KND.mT).amax(-1)

    return score


def _gamma(training: TrainingVectors) -> Tensor:
    """10 / (Var D), `[K]`, which makes `exp(-gamma ||x - y||^2)` a kernel of unit vectors."""
    return 10 / (training.variance_K * training.vectors_KND.shape[-1])


def _kernel_density(training: TrainingVectors) -> Score:
    """`-logsumexp(2 gamma <x, x_i>) / gamma`, computed from distances, because `2 <x, x_i> = 2 - ||x - x_i||^2`."""
    gamma_K = _gamma(training)
    gamma_K1, gamma_K11 = gamma_K[:, None], gamma_K[:, None, None]
    return lambda scored: -2 - (scored.squared_KBN * -gamma_K11).logsumexp(-1) / gamma_K1


def _likely_kernel_density(training: TrainingVectors) -> Score:
    """The negative log density of a Gaussian kernel estimate with the likeliest bandwidth by cross-validation."""
    _, count, size = training.vectors_KND.shape
    bandwidth_K = _likeliest_bandwidth(training)
    scale_K11 = -0.5 / bandwidth_K.square()[:, None, None]
    constant_K1 = math.log(count) + size * (bandwidth_K.log()[:, None] + 0.5 * math.log(2 * math.pi))
    return lambda scored: constant_K1 - (scored.squared_KBN * scale_K11).logsumexp(-1)


def _likeliest_bandwidth(training: TrainingVectors) -> Tensor:
    """The bandwidth `[K]` with which the vectors of each fold are likeliest given the other folds. The smallest
    bandwidth if there is a single vector."""
    _, count, size = training.vectors_KND.shape
    bandwidths_WK = torch.stack([width * training.variance_K.sqrt() for width in BANDWIDTHS])
    likelihood_WK = torch.zeros_like(bandwidths_WK, dtype=torch.float64)
    folds = torch.arange(count).tensor_split(min(FOLDS, count)) if count > 1 else ()
    for fold in folds:
        start, stop = int(fold[0]), int(fold[-1]) + 1
        for x_KBD in training.vectors_KND[:, start:stop].split(rows_of(training.vectors_KND), dim=1):
            squared_KBN = training.squared_distances(x_KBD, training.ranks(x_KBD))
            squared_KBN = torch.cat([squared_KBN[..., :start], squared_KBN[..., stop:]], dim=-1)
            for bandwidth_K, sum_K in zip(bandwidths_WK, likelihood_WK, strict=True):
                density_KB = (squared_KBN * (-0.5 / bandwidth_K.square()[:, None, None])).logsumexp(-1)
                sum_K += (density_KB.double() - size * bandwidth_K.double().log()[:, None]).sum(-1)
    return bandwidths_WK.gather(0, likelihood_WK.argmax(0, keepdim=True))[0]


def _gaussian(training: TrainingVectors) -> Score:
    """Mahalanobis distance from the mean, under the covariance with Ledoit-Wolf (2004) shrinkage."""
    x_KND = training.vectors_KND.double()
    _, count, size = x_KND.shape
    covariance_KDD = x_KND.mT @ x_KND / count
    mean_K = covariance_KDD.diagonal(dim1=-2, dim2=-1).mean(-1)  # variance
    squares_K = covariance_KDD.square().sum((-2, -1))
    noise_K = (x_KND.square().sum(-1).square().mean(-1) - squares_K) / count
    spread_K = squares_K - size * mean_K.square()
    share_K = torch.where(spread_K > 0, noise_K / spread_K, 1.0).clamp(0, 1)
    mean_K = torch.where(mean_K > 0, mean_K, 1.0)  # for equal vectors: the distance from them
    identity_DD = torch.eye(size, dtype=x_KND.dtype, device=x_KND.device)
    shares = (1 - share_K, (share_K + SMALLEST_VARIANCE) * mean_K)
    kept_K11, added_K11 = (each[:, None, None] for each in shares)
    lower_KDD, _ = torch.linalg.cholesky_ex(kept_K11 * covariance_KDD + added_K11 * identity_DD)

    def score(scored: Scored) -> Tensor:
        whitened_KDB = torch.linalg.solve_triangular(lower_KDD, scored.vectors_KBD.double().mT, upper=False)
        return torch.linalg.vector_norm(whitened_KDB, dim=1).to(scored.vectors_KBD)

    return score


def _support_vectors(nu: float, wide: bool, training: TrainingVectors) -> Score:
    """The negative decision function of scikit-learn's OneClassSVM with the kernel `exp(-gamma ||x - y||^2)`. Gamma
    comes from `_gamma`, or is a tenth of it if `wide` (scikit-learn's `scale`)."""
    from sklearn.svm import OneClassSVM  # here: importing scikit-learn would delay every worker

    gammas = (_gamma(training) / (10 if wide else 1)).tolist()

    def fit(vectors_ND: Tensor, seed: int, gamma: float) -> tuple[Tensor, Tensor, float]:
        drawn_N = torch.randperm(len(vectors_ND), generator=seeded_generator("support vectors", seed))[:OCSVM_VECTORS]
        drawn_N = drawn_N.sort().values
        machine = OneClassSVM(gamma=gamma, nu=nu).fit(_array(vectors_ND[drawn_N.to(vectors_ND.device)]))
        support_V, weight_V = drawn_N[machine.support_], torch.from_numpy(machine.dual_coef_[0])
        return support_V.to(vectors_ND.device), weight_V.to(vectors_ND), float(machine.intercept_[0])

    machines = _in_threads(fit, training.vectors_KND, training.seeds, gammas)

    def score(scored: Scored) -> Tensor:
        members = zip(scored.squared_KBN, gammas, machines, strict=True)
        return torch.stack(
            [
                -((squared_BN[:, support_V] * -gamma).exp() @ weight_V + intercept)
                for squared_BN, gamma, (support_V, weight_V, intercept) in members
            ]
        )

    return score


def _isolation_forest(training: TrainingVectors) -> Score:
    """scikit-learn's IsolationForest with its defaults, started by the trial's seed."""
    from sklearn.ensemble import IsolationForest  # here: importing scikit-learn would delay every worker

    def fit(vectors_ND: Tensor, seed: int) -> IsolationForest:
        start = numpy_seed("isolation forest", seed)
        return IsolationForest(n_estimators=TREES, random_state=start).fit(_array(vectors_ND))

    forests = _in_threads(fit, training.vectors_KND, training.seeds)

    def score(scored: Scored) -> Tensor:
        scores = [-forest.score_samples(_array(x_BD)) for forest, x_BD in zip(forests, scored.vectors_KBD, strict=True)]
        return torch.from_numpy(np.array(scores)).to(scored.vectors_KBD)

    return score


def _in_threads(fit: Callable[..., T], *by_member: Iterable[Any]) -> list[T]:
    """The results of `fit` for each member. scikit-learn releases the GIL while it fits."""
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        return [*threads.map(fit, *by_member)]


def _array(vectors_ND: Tensor) -> NDArray[Any]:
    array_ND: NDArray[Any] = vectors_ND.cpu().numpy()
    return array_ND


FITS: Mapping[str, Fit] = MappingProxyType(
    {
        **{f"knn{count}": Fit(partial(_mean_distance, count), neighbours=count) for count in NEIGHBOURS},
        **{f"cosine{count}": Fit(partial(_mean_distance, count), True, count) for count in NEIGHBOURS},
        "cosine_norm": Fit(_cosine_norm),
        "kde": Fit(_kernel_density, unit=True),
        "kde_raw": Fit(_likely_kernel_density),
        "gaussian": Fit(_gaussian),
        "ocsvm": Fit(partial(_support_vectors, 0.5, False), unit=True),
        "ocsvm_raw": Fit(partial(_support_vectors, 0.1, True)),
        "forest": Fit(_isolation_forest),
    }
)
"""Name of a score -> its definition."""


class FittedScores:
    """Anomaly scores fitted to the training vectors of K members.

    If a member has a training vector that is not finite, all its scores are NaN. A vector to score that is not finite
    gets NaN for its member only.
    """

    def __init__(
        self, names: Sequence[str], train: Tensor | Sequence[Tensor], seeds: Sequence[int], *, standardize: bool = False
    ) -> None:
        """`train`: the training vectors `[N, D]` of each member, or `[K, N, D]`; `seeds`: one per member. `standardize`
        first shifts and scales each dimension to mean 0 and standard deviation 1 over the training vectors; a constant
        dimension is only shifted. Raises ValueError for a name that is not in FITS, and without training vectors."""
        for name in names:
            choices("score", name, FITS)
        slots_by_count: dict[int, list[int]] = {}
        for slot in range(len(train)):
            slots_by_count.setdefault(len(train[slot]), []).append(slot)
        if 0 in slots_by_count:
            raise ValueError("scores must be fitted to at least one training vector, but got none")
        self._names = names
        self._groups: list[tuple[list[int], _Group]] = []
        for count, slots in slots_by_count.items():
            width = max(1, CHUNK_BYTES // (ROWS * count * train[0].element_size()))
            for start in range(0, len(slots), width):
                own = slots[start : start + width]
                train_KND = torch.stack([train[slot] for slot in own])
                self._groups.append((own, _Group(names, train_KND, [seeds[slot] for slot in own], standardize)))

    @torch.no_grad()
    def __call__(self, x_KMD: Tensor) -> dict[str, Tensor]:
        """Scores `[K, M]` of vectors `[K, M, D]` by name."""
        scores = {name: x_KMD.new_empty(x_KMD.shape[:2]) for name in self._names}
        for slots, group in self._groups:
            own_KMD = x_KMD if len(slots) == len(x_KMD) else x_KMD[slots]
            for name, values_KM in group(own_KMD).items():
                scores[name][slots] = values_KM
        return scores


class _Group:
    """Fitted scores of members that are scored together."""

    def __init__(self, names: Sequence[str], train_KND: Tensor, seeds: Sequence[int], standardize: bool) -> None:
        self._finite_K1 = train_KND.isfinite().flatten(1).all(1, keepdim=True)
        train_KND = _zero_unless(self._finite_K1, train_KND)
        self._scaler = _scaler(train_KND) if standardize else None
        train_KND = self._scaled(train_KND)
        self._rows, self._count = rows_of(train_KND), train_KND.shape[1]
        self._by_length: list[tuple[bool, TrainingVectors, dict[str, Score]]] = []
        for has_unit in (False, True):
            if asked := [name for name in names if FITS[name].unit == has_unit]:
                neighbours = max(FITS[name].neighbours for name in asked)
                training = TrainingVectors(unit(train_KND) if has_unit else train_KND, seeds, neighbours)
                self._by_length.append((has_unit, training, {name: FITS[name].fit(training) for name in asked}))

    def __call__(self, x_KMD: Tensor) -> dict[str, Tensor]:
        """Scores `[K, M]` by name. The vectors are scored in parts of equal size: a last part with a single vector
        would use another matrix product, which rounds differently."""
        finite_KM = x_KMD.isfinite().all(-1) & self._finite_K1
        x_KMD = self._scaled(_zero_unless(finite_KM, x_KMD))
        members, rows, _ = x_KMD.shape
        scores: dict[str, list[Tensor]] = {}
        memory = x_KMD.new_empty(members * min(rows, self._rows) * self._count)
        for x_KBD in x_KMD.tensor_split(max(1, -(-rows // self._rows)), dim=1):
            for has_unit, training, by_name in self._by_length:
                scored = Scored(training, unit(x_KBD) if has_unit else x_KBD, memory)
                for name, score in by_name.items():
                    scores.setdefault(name, []).append(score(scored))
        return {name: torch.where(finite_KM, torch.cat(parts, dim=1), math.nan) for name, parts in scores.items()}

    def _scaled(self, x_KMD: Tensor) -> Tensor:
        return x_KMD if self._scaler is None else (x_KMD - self._scaler[0]) / self._scaler[1]


def _zero_unless(finite: Tensor, x_KMD: Tensor) -> Tensor:
    """The vectors, with 0 where `finite`, `[K, M]` or `[K, 1]`, is false."""
    return x_KMD if bool(finite.all()) else torch.where(finite[..., None], x_KMD, 0)


def _scaler(train_KND: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation `[K, 1, D]`; a standard deviation of 0 becomes 1."""
    std_K1D, mean_K1D = torch.std_mean(train_KND, 1, correction=0, keepdim=True)
    return mean_K1D, torch.where(std_K1D > 0, std_K1D, 1)


def rows_of(train_KND: Tensor) -> int:
    """Number of vectors per member whose distances from these training vectors fit in `CHUNK_BYTES`."""
    members, count, _ = train_KND.shape
    return max(1, CHUNK_BYTES // (members * count * train_KND.element_size()))
