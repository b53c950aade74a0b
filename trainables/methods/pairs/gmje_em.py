"""GMJE-EM: a mixture of Gaussians with full covariances over pairs (x, y), fitted by EM (arXiv 2603.26799).

Shapes: B examples, M components, E dimensions of a pair.
"""

import warnings
from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises, PairStatistics, Shapes
from trainables.methods.pairs.joint_mixture import JointMixture, joined
from trainables.validation import at_least, checked


@checked
class EMConfig:
    components: Annotated[int, at_least(1)] = 3
    """Number M of components."""
    starts: Annotated[int, at_least(1)] = 10
    """Number of EM starts from k-means clusters in the first epoch. The mixture with the greatest likelihood on the
    training pairs is kept."""
    iterations: Annotated[int, at_least(1)] = 500
    """Maximum number of EM steps per epoch and start."""
    tolerance: Annotated[float, at_least(0)] = 1e-6
    """EM ends when a step raises the mean log density by less than this."""
    jitter: Annotated[float, at_least(0)] = 1e-6
    """Added to the diagonals of covariances."""


SEEDS = 2**24
"""Number of different k-means seeds: the number of uniform float32 values."""


class EM(JointMixture):
    """Fusible: `jitter`. The first epoch starts from several k-means clusterings, whose seed comes from the noise; each
    further epoch continues from the previous mixture."""

    Config = EMConfig
    fusible = frozenset({"jitter"})

    jitter: Tensor
    started: Tensor
    """1 after the first epoch, else 0."""

    def __init__(self, config: EMConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes, config.components)
        self.register_buffer("started", torch.zeros(()))

    def noise(self, batch: int) -> Noises:
        return {"clusters": Noise((), kind="uniform")}

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The loss is the negative log density of a pair. Only the first epoch may increase it. If EM fails because a
        covariance is not positive definite, all parameters become NaN."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        pairs_BE = joined(data)
        losses = Losses(self.nll(pairs_BE), {})
        try:
            mixture = GaussianMixture(
                self.config.components,
                max_iter=self.config.iterations,
                tol=self.config.tolerance,
                reg_covar=self.jitter.item(),
                random_state=int(noise["clusters"].item() * SEEDS),
                **(self._current() if self.started else {"n_init": self.config.starts}),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # an epoch may end before EM does
                mixture.fit(pairs_BE.double().cpu().numpy())
        except (ValueError, torch.linalg.LinAlgError):
            self.set_mixture(*(buffer * torch.nan for buffer in (self.weights_M, self.means_ME, self.covariances_MEE)))
            return losses
        self.set_mixture(*map(torch.from_numpy, (mixture.weights_, mixture.means_, mixture.covariances_)))
        self.started.fill_(1)
        return losses

    def _current(self) -> dict[str, object]:
        """The mixture as scikit-learn's initial parameters."""
        weights_M = self.weights_M.double()
        return {
            "weights_init": (weights_M / weights_M.sum()).cpu().numpy(),
            "means_init": self.means_ME.double().cpu().numpy(),
            "precisions_init": torch.linalg.inv(self.covariances_MEE.double()).cpu().numpy(),
        }
