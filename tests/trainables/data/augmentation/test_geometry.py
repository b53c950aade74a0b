"""Crops, rotations, shifts and blurs of a batch equal torchvision's on single images with the same parameters."""

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode, RandomResizedCrop

from tests.trainables.data.augmentation.batches import agree, generator, images
from trainables.data.views import Parameters, Views


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 24, 40)])
def test_crop(shape: tuple[int, int, int]) -> None:
    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        box = [int(own[name]) for name in ("top", "left", "height", "width")]
        return tv.resized_crop(x_CHW, *box, size=list(x_CHW.shape[1:]), antialias=True)

    agree(Views(crop_scale=0.05), images(16, *shape), alone, 2e-6)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 24, 40)])
@pytest.mark.parametrize("views", [Views(rotation=30, shift=2), Views(rotation=180), Views(shift=3.5)])
def test_rotation_and_shift(views: Views, shape: tuple[int, int, int]) -> None:
    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        shift = [own.get("right", 0.0), own.get("down", 0.0)]
        bilinear = InterpolationMode.BILINEAR
        return tv.affine(x_CHW, own.get("rotation", 0.0), shift, 1.0, [0.0, 0.0], interpolation=bilinear)

    agree(views, images(8, *shape), alone, 2e-5)


def test_half_a_pixel_of_shift_is_the_mean_of_neighbours() -> None:
    x_BCHW = images(1, 1, 8, 8)
    half = {"right": torch.tensor([0.5]), "down": torch.tensor([0.0])}
    actual_BCHW = Views(shift=1).apply(x_BCHW, Parameters(half))
    expected_BCHW = (x_BCHW + torch.nn.functional.pad(x_BCHW, (1, 0))[..., :-1]) / 2
    torch.testing.assert_close(actual_BCHW, expected_BCHW, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("side", "taps"), [(8, 3), (32, 3), (96, 9), (224, 23)])
def test_blur(side: int, taps: int) -> None:
    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        return tv.gaussian_blur(x_CHW, [taps, taps], [own["blur"]] * 2) if own["blur"] else x_CHW

    agree(Views(blur=0.7), images(3, 3, side, side), alone, 2e-6)


def test_crops_lie_inside_and_are_distributed_as_torchvisions() -> None:
    n, side = 4000, 32
    values = Views(crop_scale=0.2).draw(generator(), (n, 3, side, side)).values
    ours = torch.stack([values[name] for name in ("top", "left", "height", "width")], dim=1)
    assert (ours[:, :2] >= 0).all() and (ours[:, :2] + ours[:, 2:] <= side).all()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        crop, image = RandomResizedCrop(side, scale=(0.2, 1.0)), torch.zeros(3, side, side)
        drawn = [crop.make_params([image]) for _ in range(n)]
    theirs = torch.tensor([[d[name] for name in ("top", "left", "height", "width")] for d in drawn]).float()
    torch.testing.assert_close(ours.mean(0), theirs.mean(0), atol=0.6, rtol=0)
    torch.testing.assert_close(ours.std(0), theirs.std(0), atol=0.4, rtol=0)


def test_a_crop_that_never_fits_is_the_largest_central_one() -> None:
    values = Views(crop_scale=0.99, crop_ratio=1.25).draw(generator(), (4, 1, 8, 40)).values
    box = [values[name].tolist() for name in ("top", "left", "height", "width")]
    assert box == [[0.0] * 4, [15.0] * 4, [8.0] * 4, [10.0] * 4]
