"""A decoder trained afterwards on frozen features, for methods that have none (SimVAE's ad-hoc decoder).

Shapes: N training images, B images of a batch, D features, C channels, H rows, W columns.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.validation import positive, whole

VALIDATION_SHARE = 10
"""One of so many training images is held out to choose the epoch."""


class AdhocDecoder(NamedTuple):
    """A trained decoder and the course of its training."""

    decoder: nn.Module
    """In evaluation mode, with the weights of the epoch with the smallest validation loss."""
    validation_losses: list[float]
    """Mean squared error on the images held out after each epoch."""


@torch.enable_grad()
def train_adhoc_decoder(
    decoder: nn.Module,
    features_ND: Tensor,
    images_NCHW: Tensor,
    *,
    epochs: int,
    patience: int,
    generator: torch.Generator,
    lr: float = 1e-4,
    batch_size: int = 128,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> AdhocDecoder:
    """Train a copy of `decoder` to map features to images with pixels in [0, 1], by Adam on the mean squared error.

    A tenth of the images, drawn by `generator` (on the CPU) as is their order, is held out. Training ends after
    `epochs` epochs, or after `patience` in succession without a smaller validation loss. Batches are of equal size and
    at most `batch_size` images. The decoder and the features must be on the same device; the images may be on another.
    Features that are not finite give losses of NaN. `raise_if_stopped` is called before each epoch. Raises ValueError
    unless there are at least 2 images, `epochs`, `patience` and `batch_size` are at least 1 and `lr > 0`.
    """
    for name, value in (("epochs", epochs), ("patience", patience), ("batch_size", batch_size)):
        whole(name, value, 1)
    positive("lr", lr)
    count = len(features_ND)
    if count < 2:
        raise ValueError(f"an ad-hoc decoder needs at least 2 training images, but got {count}")
    decoder = copy.deepcopy(decoder)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=lr)
    held_out = max(1, count // VALIDATION_SHARE)
    validation, training = torch.randperm(count, generator=generator).split([held_out, count - held_out])
    losses: list[float] = []
    best, best_weights = 0, copy.deepcopy(decoder.state_dict())
    while len(losses) < min(epochs, best + 1 + patience):
        raise_if_stopped()
        order = training[torch.randperm(len(training), generator=generator)]
        for batch in _batches(order, batch_size):
            optimiser.zero_grad()
            _squared_errors(decoder.train(), features_ND, images_NCHW, batch).mean().backward()
            optimiser.step()
        losses.append(_validation_loss(decoder.eval(), features_ND, images_NCHW, validation, batch_size))
        if len(losses) == 1 or losses[-1] < losses[best]:
            best, best_weights = len(losses) - 1, copy.deepcopy(decoder.state_dict())
    decoder.load_state_dict(best_weights)
    return AdhocDecoder(decoder.eval(), losses)


@torch.no_grad()
def _validation_loss(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, indices: Tensor, batch_size: int
) -> float:
    """Mean squared error over these images and their pixels."""
    sums = [
        _squared_errors(decoder, features_ND, images_NCHW, batch).sum(dtype=torch.float64)
        for batch in _batches(indices, batch_size)
    ]
    return torch.stack(sums).sum().item() / (len(indices) * images_NCHW[0].numel())


def _squared_errors(decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, batch: Tensor) -> Tensor:
    """Squared errors `[B, C, H, W]` of the pixels of a batch of indices."""
    decoded_BCHW = decoder(features_ND[batch.to(features_ND.device)])
    images_BCHW = images_NCHW[batch.to(images_NCHW.device)]
    return F.mse_loss(decoded_BCHW, images_BCHW.to(decoded_BCHW), reduction="none")


def _batches(indices: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Batches of all indices whose sizes differ by at most 1, so that none is too small for BatchNorm."""
    return indices.tensor_split(-(-len(indices) // batch_size))
