"""Colour operations on a batch equal torchvision's on single images with the same parameters."""

from dataclasses import replace

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor

from tests.trainables.data.augmentation.batches import agree, images
from trainables.data.views import Views

ADJUST = {
    "brightness": tv.adjust_brightness,
    "contrast": tv.adjust_contrast,
    "saturation": tv.adjust_saturation,
    "hue": tv.adjust_hue,
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ADJUST)
def test_each_colour_operation(name: str, channels: int) -> None:
    views = replace(Views(jitter=1), **{name: 0.5})
    neutral = 0.0 if name == "hue" else 1.0
    agree(views, images(channels=channels), lambda x, own: ADJUST[name](x, own.get(name, neutral)), 5e-6)


def test_hue_of_greys_and_of_pure_colours() -> None:
    corners_CHW = torch.cartesian_prod(*[torch.tensor([0.0, 0.5, 1.0])] * 3).T.reshape(3, 1, 27)
    x_BCHW = corners_CHW.expand(16, -1, -1, -1)
    agree(Views(jitter=1, hue=0.5), x_BCHW, lambda x, own: tv.adjust_hue(x, own["hue"]), 5e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_greyscale(channels: int) -> None:
    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        return tv.rgb_to_grayscale(x_CHW, num_output_channels=channels) if own.get("greyscale") else x_CHW

    agree(Views(greyscale=0.5), images(channels=channels), alone, 1e-6)
