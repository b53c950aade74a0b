"""Two methods of regression: a network trained by gradients, and a linear model fitted by EM, without gradients; and
the catalog with them.

Shapes: B examples, X inputs, F features.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated

import pytest
import torch
from torch import Tensor, nn

from trainables import catalog
from trainables.contract import (
    Batch,
    ConditionalDensity,
    Losses,
    Method,
    Noise,
    Noises,
    PairsMethod,
    PairStatistics,
    Shapes,
)
from trainables.validation import above, at_least, checked


def _gaussian(mean_B: Tensor, sigma_B: Tensor) -> ConditionalDensity:
    """A mixture of one component."""
    return ConditionalDensity(torch.zeros_like(mean_B)[:, None], mean_B[:, None], sigma_B[:, None])


@checked
class GaussianMLPConfig:
    hidden: Annotated[int, at_least(1)] = 16
    """Hidden units of the network."""
    jitter: Annotated[float, at_least(0)] = 0.1
    """Half the width of the uniform noise that is added to x in training, at least 0."""


class GaussianMLP(PairsMethod):
    """Fusible: `jitter`. A network predicts mean and log-variance of y."""

    Config = GaussianMLPConfig
    fusible = frozenset({"jitter"})
    per_example = True
    loss_parts = ("error", "spread")

    jitter: Tensor

    def __init__(self, config: GaussianMLPConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.inputs = math.prod(shapes["x"])
        self.network = nn.Sequential(nn.Linear(self.inputs, config.hidden), nn.Tanh(), nn.Linear(config.hidden, 2))

    def noise(self, batch: int) -> Noises:
        return {"jitter": Noise((batch, self.inputs), batch_dim=0, kind="uniform")}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The negative log density of y, without its constant."""
        mean_B, logvar_B = self._density(batch["x"] + self.jitter * (2 * noise["jitter"] - 1))
        squared_B = (batch["y"] - mean_B).square() * (-logvar_B).exp()
        parts = {"error": squared_B.mean() / 2, "spread": logvar_B.mean() / 2}
        return Losses(parts["error"] + parts["spread"], parts)

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        mean_B, logvar_B = self._density(x_BX)
        return _gaussian(mean_B, (logvar_B / 2).exp())

    def _density(self, x_BX: Tensor) -> tuple[Tensor, Tensor]:
        mean_B, logvar_B = self.network(x_BX).float().unbind(-1)
        return mean_B, logvar_B


@checked
class BayesianRegressionConfig:
    features: Annotated[int, at_least(1)] = 20
    """Number F of random Fourier features."""
    length_scale: Annotated[float, above(0)] = 0.7
    """Distance in x over which the curve changes, above 0."""


class BayesianRegression(PairsMethod):
    """Fusible: `length_scale`. Linear regression on random Fourier features, whose weights have a Gaussian prior. An
    epoch is a step of EM for the precisions of this prior and of the noise (Bishop 2006, section 9.3.4)."""

    Config = BayesianRegressionConfig
    fusible = frozenset({"length_scale"})
    loss_parts = ("error",)

    length_scale: Tensor
    frequencies_XF: Tensor
    phases_F: Tensor
    mean_F: Tensor
    covariance_FF: Tensor
    prior_precision: Tensor
    noise_precision: Tensor

    def __init__(self, config: BayesianRegressionConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.register_buffer("frequencies_XF", torch.randn(math.prod(shapes["x"]), config.features))
        self.register_buffer("phases_F", 2 * math.pi * torch.rand(config.features))
        self.register_buffer("mean_F", torch.zeros(config.features))
        self.register_buffer("covariance_FF", torch.eye(config.features))
        self.register_buffer("prior_precision", torch.ones(()))
        self.register_buffer("noise_precision", torch.ones(()))

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The loss is the negative log evidence per example, which no step of EM increases."""
        features_BF, y_B = self._features(data["x"]), data["y"]
        alpha, beta, count = self.prior_precision, self.noise_precision, len(y_B)
        precision_FF = alpha * torch.eye(self.config.features) + beta * features_BF.T @ features_BF
        covariance_FF = torch.linalg.inv(precision_FF)
        mean_F = beta * covariance_FF @ features_BF.T @ y_B
        squared = (y_B - features_BF @ mean_F).square().sum()
        nll = 0.5 * (
            beta * squared
            + alpha * mean_F.square().sum()
            + torch.logdet(precision_FF)
            - self.config.features * alpha.log()
            - count * (beta / (2 * math.pi)).log()
        )
        losses = Losses(nll / count, {"error": squared / count})
        self.mean_F.copy_(mean_F)
        self.covariance_FF.copy_(covariance_FF)
        self.prior_precision.copy_(self.config.features / (mean_F.square().sum() + covariance_FF.trace()))
        spread = (features_BF @ covariance_FF * features_BF).sum()
        self.noise_precision.copy_(count / (squared + spread))
        return losses

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        features_BF = self._features(x_BX)
        spread_B = (features_BF @ self.covariance_FF * features_BF).sum(-1)
        return _gaussian(features_BF @ self.mean_F, (spread_B + 1 / self.noise_precision).sqrt())

    def _features(self, x_BX: Tensor) -> Tensor:
        angles_BF = x_BX @ self.frequencies_XF / self.length_scale + self.phases_F
        return math.sqrt(2 / self.config.features) * angles_BF.cos()


PAIRS_METHODS: Mapping[str, type[Method]] = {
    "bayesian_regression": BayesianRegression,
    "gaussian_mlp": GaussianMLP,
}


@contextmanager
def registered() -> Iterator[None]:
    """Within it METHODS has these entries, too, in every module that has imported it."""
    with pytest.MonkeyPatch.context() as patch:
        entries = catalog.METHODS
        extended = MappingProxyType({**entries, **PAIRS_METHODS})
        for module in [sys.modules[module] for module in sys.modules if module.startswith("trainables.")]:
            if vars(module).get("METHODS") is entries:
                patch.setattr(module, "METHODS", extended)
        yield
