"""What the tests of methods share: encoders small enough to see through, and their heads again in numpy, float64.

Shapes: B images, D features, P dimensions of a projection.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Noises

B, D = 5, 4
Array = np.ndarray[Any, np.dtype[np.float64]]
M = TypeVar("M", bound=ImageMethod)


class Table(nn.Module):
    """An encoder that is a lookup table: an image holds the index of its row, so that each embedding is a parameter."""

    features = D

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(2 * B, D) * 1.5)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.rows[images_BCHW.flatten().long()]


class Normed(nn.Module):
    """An encoder with BatchNorm; images have one pixel."""

    features = D

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(1, D), nn.BatchNorm1d(D)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.norm(self.linear(images_BCHW.flatten(1)))


class Constant(nn.Module):
    """A collapsed encoder: all images give the same vector."""

    features = D

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.randn(D))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.vector.expand(len(images_BCHW), D)


VIEWS = torch.arange(2.0 * B).view(2, B, 1, 1, 1)
"""Two views of B images, each image another row of a Table."""
BATCH: Batch = {"views": tuple(VIEWS)}
NO_NOISE: dict[str, Tensor] = {}


@dataclass(frozen=True)
class Builder:
    """A section of networks that builds an encoder of this class, whatever the shape of the images."""

    encoder: type[nn.Module]

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        return self.encoder()

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> nn.Module:
        raise NotImplementedError


def built(method: type[M], config: Any, encoder: type[nn.Module] = Table) -> M:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return method(config, Builder(encoder), {"views": (1, 1, 1)})


def batch_of(first: int, second: int) -> Batch:
    """A batch of these two of the views."""
    return {"views": (VIEWS[first], VIEWS[second])}


def zeros_for(noises: Noises) -> dict[str, Tensor]:
    return {name: torch.zeros(noise.shape) for name, noise in noises.items()}


def loss_of(model: ImageMethod, first: int = 0, second: int = 1) -> Tensor:
    return model.losses(batch_of(first, second), NO_NOISE).total


def rows_of(model: ImageMethod) -> Array:
    """The Table's embeddings of both views, `[2, B, D]`."""
    return model.encoder.get_parameter("rows").detach().view(2, B, D).double().numpy()


def gradient_of_rows(model: ImageMethod, loss: Tensor) -> Tensor:
    """`[2, B, D]`; zero where no gradient arrives."""
    rows = model.encoder.get_parameter("rows")
    (gradient,) = torch.autograd.grad(loss, rows, retain_graph=True, materialize_grads=True)
    return gradient.view(2, B, D)


def through(network: nn.Module, x_BD: Array) -> Array:
    """The output of linear layers, norms and ReLU in training mode, or of no layers at all."""
    if isinstance(network, nn.Identity):
        return x_BD
    assert isinstance(network, nn.Sequential)
    for layer in network:
        weights = {name: weight.detach().double().numpy() for name, weight in layer.named_parameters()}
        weights |= {f"own_{name}": weight.double().numpy() for name, weight in layer.named_buffers()}
        weight, bias = (weights.get(name, weights.get(f"own_{name}")) for name in ("weight", "bias"))
        if isinstance(layer, nn.Linear):
            assert weight is not None
            x_BD = x_BD @ weight.T + (0 if bias is None else bias)
        elif isinstance(layer, nn.BatchNorm1d | nn.LayerNorm):
            axis = 0 if isinstance(layer, nn.BatchNorm1d) else 1
            x_BD = (x_BD - x_BD.mean(axis, keepdims=True)) / np.sqrt(x_BD.var(axis, keepdims=True) + layer.eps)
            x_BD = x_BD * (1 if weight is None else weight) + (0 if bias is None else bias)
        else:
            assert isinstance(layer, nn.ReLU)
            x_BD = np.maximum(x_BD, 0)
    return x_BD


def unit(x_BD: Array) -> Array:
    return x_BD / np.linalg.norm(x_BD, axis=-1, keepdims=True)


def cosines(x_BD: Array, y_BD: Array) -> Array:
    """Of equal rows, `[B]`."""
    return (unit(x_BD) * unit(y_BD)).sum(-1)


def unit_projections(model: ImageMethod) -> Array:
    """What the projector makes of the Table's embeddings, as unit vectors of both views, `[2, B, P]`."""
    return np.stack([unit(through(model.projector, view)) for view in rows_of(model)])
