"""What the tests of autoencoders share: posteriors that are a table, and the terms of their losses again in scipy.

Shapes: N rows of the table, B images, J views, L latent dimensions; C channels, H by W pixels.
"""

import math
from typing import Any, TypeVar

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor, nn

from tests.trainables.methods.plain import Array, through
from trainables.methods.variational.autoencoder import VariationalAutoencoder
from trainables.networks.decoders import Decoder, build_decoder

N, L = 24, 3
SHAPE = (1, 3, 2)
M = TypeVar("M", bound=VariationalAutoencoder)


class Posteriors(nn.Module):
    """An encoder that is a lookup table: an image of one pixel holds the index of its row, which is the mean and the
    log-variance of its posterior."""

    features = 2 * L

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(N, 2 * L))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.rows[images_BCHW.flatten().long()]


class Networks:
    """A section of networks: posteriors from the table, and a decoder with one hidden layer."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        return Posteriors()

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> Decoder:
        channels, height, width = image_shape
        return build_decoder("relu_mlp", features, (channels, height, width), hidden="7")


def built(method: type[M], config: Any) -> M:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = method(config, Networks(), {"views": SHAPE})
        for weight in model.decoder.parameters():
            nn.init.normal_(weight)  # so that pixels differ
        return model


def indices(*rows: list[int]) -> tuple[Tensor, ...]:
    """Views whose images are these rows of the table."""
    return tuple(torch.tensor(row, dtype=torch.float32).view(-1, 1, 1, 1) for row in rows)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pixels(views: int, images: int, seed: int = 2) -> tuple[Tensor, ...]:
    """Views of random pixels in [0, 1]."""
    return tuple(torch.rand(views, images, *SHAPE, generator=torch.Generator().manual_seed(seed)))


def posterior_of(model: VariationalAutoencoder, view: Tensor) -> tuple[Array, Array]:
    """Mean and standard deviation `[B, L]` of a view's posteriors, from the table."""
    rows = model.encoder.get_parameter("rows").detach().double().numpy()[view.flatten().long().numpy()]
    return rows[:, :L], np.exp(rows[:, L:] / 2)


def decoded(model: VariationalAutoencoder, z_BL: Array) -> Array:
    """Means of pixels `[B, C, H, W]`."""
    layers = model.decoder.layers
    assert isinstance(layers, nn.Sequential)
    return special.expit(through(layers[:-1], z_BL)).reshape(len(z_BL), *SHAPE)


def gaussian_nll(images_BCHW: Tensor, mean_BCHW: Array, sigma_x2: float) -> float:
    """Mean over images of `-log p(x|z)`, without its constant."""
    law = stats.norm(mean_BCHW, math.sqrt(sigma_x2))
    images = images_BCHW.double().numpy()
    constant = images[0].size / 2 * math.log(2 * math.pi * sigma_x2)
    return float(-law.logpdf(images).sum((1, 2, 3)).mean() - constant)


def bernoulli_nll(images_BCHW: Tensor, mean_BCHW: Array, divisor: float) -> float:
    """Mean over images of the cross-entropy of pixels, over `divisor`."""
    images = images_BCHW.double().numpy()
    logs = special.xlogy(images, mean_BCHW) + special.xlogy(1 - images, 1 - mean_BCHW)
    return float(-logs.sum((1, 2, 3)).mean() / divisor)


def kl(mu_BL: Array, sd_BL: Array, prior_mu_BL: Array | float = 0.0, prior_sd_BL: Array | float = 1.0) -> Array:
    """Divergence `[B]` of Gaussians: the expectation of the difference of log-densities, which is a quadratic function,
    by Gauss-Hermite quadrature."""
    nodes_Q, weights_Q = np.polynomial.hermite_e.hermegauss(5)
    z_QBL = mu_BL + sd_BL * nodes_Q[:, None, None]
    logs_QBL = stats.norm.logpdf(z_QBL, mu_BL, sd_BL) - stats.norm.logpdf(z_QBL, prior_mu_BL, prior_sd_BL)
    return np.asarray(np.einsum("q,qbl->b", weights_Q / weights_Q.sum(), logs_QBL))
