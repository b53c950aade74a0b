"""Batches of images, and the comparison of a batch of views with single images."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainables.data.views import Views

MOCO_V2 = Views(
    crop_scale=0.2, flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter=0.8, greyscale=0.2, blur=0.5
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 8, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    return torch.rand((n, channels, height, width), generator=generator(99))


def agree(views: Views, x_BCHW: Tensor, alone: Callable[[Tensor, dict[str, float]], Tensor], atol: float) -> None:
    """Apply `views` to a batch, and `alone` to each image with its own parameters."""
    parameters = views.draw(generator(), x_BCHW.shape)
    got_BCHW = views.apply(x_BCHW, parameters)
    for i, x_CHW in enumerate(x_BCHW):
        own = {name: value[i].item() for name, value in parameters.values.items()}
        torch.testing.assert_close(got_BCHW[i], alone(x_CHW, own), atol=atol, rtol=0)
