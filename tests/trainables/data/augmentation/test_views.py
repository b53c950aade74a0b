"""Views are their augmentations in the order of MoCo v2, with parameters of its own for each image."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor

from tests.trainables.data.augmentation.batches import MOCO_V2, agree, generator, images
from tests.trainables.data.augmentation.test_colour import ADJUST
from trainables.data.views import Parameters, Views, normalise, scale_pixels


def test_jitter_works_in_the_drawn_order_on_the_chosen_images() -> None:
    views = Views(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter=0.5)
    parameters = views.draw(generator(), (16, 3, 32, 32))
    assert sorted(parameters.order) == sorted(ADJUST)

    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        for name in parameters.order if own["jitter"] else ():
            x_CHW = ADJUST[name](x_CHW, own[name])
        return x_CHW

    agree(views, images(16), alone, 2e-5)
    assert 0 < parameters.values["jitter"].sum() < 16


def test_the_order_of_the_jitter_varies() -> None:
    orders = {MOCO_V2.draw(generator(seed), (1, 3, 8, 8)).order for seed in range(200)}
    assert len(orders) == 24


def test_flip() -> None:
    agree(Views(flip=0.5), images(), lambda x, own: tv.horizontal_flip(x) if own["flip"] else x, 0)


def test_moco_v2_is_its_parts_in_its_order() -> None:
    x_BCHW = images()
    parameters = MOCO_V2.draw(generator(), x_BCHW.shape)
    step_BCHW = x_BCHW
    box, jitter = ("top", "left", "height", "width"), ("jitter", *parameters.order)
    for names in (box, jitter, ("greyscale",), ("blur",), ("flip",)):
        part = Parameters({name: parameters.values[name] for name in names}, parameters.order)
        step_BCHW = MOCO_V2.apply(step_BCHW, part)
    assert torch.equal(step_BCHW, MOCO_V2.apply(x_BCHW, parameters))
    assert not torch.equal(step_BCHW, x_BCHW)


def test_no_augmentation_returns_the_input() -> None:
    x_BCHW = images()
    parameters = Views().draw(generator(), x_BCHW.shape)
    assert not parameters.values
    assert Views().apply(x_BCHW, parameters) is x_BCHW


def test_apply_leaves_its_input_alone() -> None:
    x_BCHW = images()
    MOCO_V2.apply(x_BCHW, MOCO_V2.draw(generator(), x_BCHW.shape))
    assert torch.equal(x_BCHW, images())


def test_same_seed_same_views_other_seed_other_views() -> None:
    views = replace(MOCO_V2, rotation=10, shift=1)
    x_BCHW = images()
    first, again, other = (views.apply(x_BCHW, views.draw(generator(s), x_BCHW.shape)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_image_has_its_own_parameters() -> None:
    views = replace(MOCO_V2, rotation=10, shift=1)
    values = views.draw(generator(), (64, 3, 32, 32)).values
    assert all(len(value) == 64 and len(value.unique()) > 1 for value in values.values())


def test_draws_fill_their_ranges() -> None:
    views = replace(MOCO_V2, rotation=15, shift=2, brightness=1.5)
    values = views.draw(generator(), (20_000, 3, 32, 32)).values
    ranges = {"rotation": (-15, 15), "right": (-2, 2), "down": (-2, 2), "contrast": (0.6, 1.4), "hue": (-0.1, 0.1)}
    for name, (low, high) in {**ranges, "brightness": (0, 2.5)}.items():
        value, width = values[name], high - low
        assert low <= value.min() < low + width / 100 and high - width / 100 < value.max() <= high
        assert value.mean() == pytest.approx((low + high) / 2, abs=width / 50)
    blurred = values["blur"][values["blur"] > 0]
    assert 0.1 <= blurred.min() < 0.12 and 1.98 < blurred.max() <= 2.0
    shares = {name: (values[name] > 0).float().mean().item() for name in ("jitter", "greyscale", "blur", "flip")}
    assert shares == pytest.approx({"jitter": 0.8, "greyscale": 0.2, "blur": 0.5, "flip": 0.5}, abs=0.015)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("crop_scale", 2, "`0 < crop_scale <= 1` must hold, but got crop_scale=2"),
        ("crop_scale", 0.0, "`0 < crop_scale <= 1` must hold, but got crop_scale=0.0"),
        ("crop_ratio", 0.5, "`1 <= crop_ratio <= 100` must hold, but got crop_ratio=0.5"),
        ("hue", 0.6, "`0 <= hue <= 0.5` must hold, but got hue=0.6"),
        ("brightness", float("inf"), "brightness must be finite, but got brightness=inf"),
        ("rotation", -1, "`0 <= rotation <= 180` must hold, but got rotation=-1"),
        ("flip", "half", "flip must be a number, but got flip='half'"),
        ("blur", True, "blur must be a number, but got blur=True"),
    ],
)
def test_a_field_out_of_its_range_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Views(**{field: value})
    assert str(error.value) == message


@pytest.mark.parametrize("field", [field.name for field in fields(Views)])
def test_nan_is_refused_everywhere(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}=nan"):
        Views(**{field: float("nan")})


def test_colour_augmentations_need_one_or_three_channels() -> None:
    with pytest.raises(ValueError, match="1 or 3 channels, but got 4"):
        MOCO_V2.draw(generator(), (2, 4, 8, 8))


def test_pixels_are_scaled_and_normalised() -> None:
    x_BCHW = torch.tensor([0, 8, 16], dtype=torch.uint8).view(1, 3, 1, 1)
    unit_BCHW = scale_pixels(x_BCHW, 16)
    assert unit_BCHW.flatten().tolist() == [0.0, 0.5, 1.0]
    assert normalise(unit_BCHW, (0.0, 0.5, 0.5), (1.0, 1.0, 0.25)).flatten().tolist() == [0.0, 0.0, 2.0]
    assert normalise(unit_BCHW, (0.5,), (0.5,)).flatten().tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_makes_the_same_views_without_waiting() -> None:
    views = replace(MOCO_V2, rotation=10, shift=1)
    x_BCHW = images()
    parameters = views.draw(generator(), x_BCHW.shape)
    expected_BCHW = normalise(views.apply(x_BCHW, parameters), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    on_gpu_BCHW = x_BCHW.cuda()
    views.apply(on_gpu_BCHW, parameters)  # libraries initialise themselves on first use
    torch.cuda.set_sync_debug_mode("error")
    try:
        got_BCHW = normalise(views.apply(on_gpu_BCHW, parameters), (0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(got_BCHW.cpu(), expected_BCHW, atol=1e-3, rtol=0)
