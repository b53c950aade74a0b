"""Views are torchvision's augmentations in the order of MoCo v2, or another, with parameters of their own."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode, RandomResizedCrop

from tests.cases import for_each
from trainables.data.views import (
    DEFAULT,
    Parameters,
    PixelViews,
    Views,
    contrast_range,
    normalise,
    normalise_contrast,
    prepare,
    prepare_pixels,
    scale_pixels,
)

MOCO_V2 = Views(
    crop_scale=0.2, flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter=0.8, greyscale=0.2, blur=0.5
)
CONTRAST = PixelViews(contrast_normalise=True)


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


ADJUST = {
    "brightness": tv.adjust_brightness,
    "contrast": tv.adjust_contrast,
    "saturation": tv.adjust_saturation,
    "hue": tv.adjust_hue,
}


@for_each("channels", [1, 3])
@for_each("name", ADJUST)
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


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 24, 40)])
def test_crop(shape: tuple[int, int, int]) -> None:
    def alone(x_CHW: Tensor, own: dict[str, float]) -> Tensor:
        box = [int(own[name]) for name in ("top", "left", "height", "width")]
        return tv.resized_crop(x_CHW, *box, size=list(x_CHW.shape[1:]), antialias=True)

    agree(Views(crop_scale=0.05), images(16, *shape), alone, 2e-6)


@for_each("shape", [(1, 8, 8), (3, 24, 40)])
@for_each("views", [Views(rotation=30, shift=2), Views(rotation=180), Views(shift=3.5)])
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


@for_each(
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


@for_each("field", [field.name for field in fields(Views)])
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


SIMVAE = Views(crop_scale=0.6, flip=0.5, brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2, jitter=0.8)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def views_of(views: Views, pixel_views: PixelViews, x_BCHW: Tensor) -> tuple[Tensor, Parameters]:
    parameters = views.draw(generator(), x_BCHW.shape, pixel_views)
    return views.apply(x_BCHW, parameters), parameters


def alone(x_CHW: Tensor, own: dict[str, float], order: tuple[str, ...], jitter_first: bool) -> Tensor:
    """torchvision's view of an image with these parameters, its steps in the asked order."""

    def jitter(x_CHW: Tensor) -> Tensor:
        for name in order if own["jitter"] else ():
            x_CHW = ADJUST[name](x_CHW, own[name])
        return x_CHW

    def crop(x_CHW: Tensor) -> Tensor:
        box = [int(own[name]) for name in ("top", "left", "height", "width")]
        return tv.resized_crop(x_CHW, *box, size=list(x_CHW.shape[1:]), antialias=True)

    x_CHW = crop(jitter(x_CHW)) if jitter_first else jitter(crop(x_CHW))
    return tv.vertical_flip(x_CHW) if own["flip_vertical"] else x_CHW


@pytest.mark.parametrize("jitter_first", [True, False])
def test_views_are_torchvisions_in_the_requested_order(jitter_first: bool) -> None:
    x_BCHW = images(16)
    pixel_views = PixelViews(flip_direction="vertical", jitter_first=jitter_first)
    actual_BCHW, parameters = views_of(SIMVAE, pixel_views, x_BCHW)
    for i, x_CHW in enumerate(x_BCHW):
        own = {name: value_B[i].item() for name, value_B in parameters.values.items()}
        expected, reversed_order = (
            alone(x_CHW, own, parameters.order, first) for first in (jitter_first, not jitter_first)
        )
        torch.testing.assert_close(actual_BCHW[i], expected, atol=5e-5, rtol=0)
        assert not own["jitter"] or (expected - reversed_order).abs().max() > 1e-3
    assert 0 < parameters.values["flip_vertical"].sum() < 16


def test_both_directions_are_two_independent_flips() -> None:
    x_BCHW = images(400, 1, 4, 4)
    actual_BCHW, parameters = views_of(Views(flip=0.3), PixelViews(flip_direction="both"), x_BCHW)
    across_B, down_B = (parameters.values[name] > 0 for name in ("flip", "flip_vertical"))
    for across, down in ((False, False), (True, False), (False, True), (True, True)):
        chosen_B = (across_B == across) & (down_B == down)
        share = (0.3 if across else 0.7) * (0.3 if down else 0.7)
        assert chosen_B.float().mean().item() == pytest.approx(share, abs=0.07)
        wanted_BCHW = tv.horizontal_flip(x_BCHW) if across else x_BCHW
        wanted_BCHW = tv.vertical_flip(wanted_BCHW) if down else wanted_BCHW
        assert torch.equal(actual_BCHW[chosen_B], wanted_BCHW[chosen_B])


def test_the_defaults_draw_and_make_what_views_do_without_them() -> None:
    x_BCHW = images()
    actual_BCHW, parameters = views_of(MOCO_V2, PixelViews(), x_BCHW)
    plain = MOCO_V2.draw(generator(), x_BCHW.shape)
    assert parameters.order == plain.order and list(parameters.values) == list(plain.values)
    assert all(torch.equal(parameters.values[name], value_B) for name, value_B in plain.values.items())
    expected_BCHW = normalise(MOCO_V2.apply(x_BCHW, plain), MEAN, STD)
    assert torch.equal(prepare(actual_BCHW, DEFAULT, MEAN, STD), expected_BCHW)


@pytest.mark.parametrize(
    "pixel_views", [PixelViews(flip_direction="vertical"), PixelViews(jitter_first=True), PixelViews(binarise=True)]
)
def test_other_pixel_views_draw_the_same_numbers(pixel_views: PixelViews) -> None:
    """So that trials which differ in them see the same crops, colours and flips."""
    plain, other = (SIMVAE.draw(generator(), (8, 3, 16, 16), requested) for requested in (PixelViews(), pixel_views))
    for ours, theirs in zip(plain.values.values(), other.values.values(), strict=True):
        assert torch.equal(ours, theirs)


def test_slices_keep_the_order() -> None:
    x_BCHW = images()
    whole_BCHW, parameters = views_of(SIMVAE, PixelViews(jitter_first=True), x_BCHW)
    part = slice(2, 5)
    actual_BCHW = SIMVAE.apply(x_BCHW[part], parameters.sliced(part))
    torch.testing.assert_close(actual_BCHW, whole_BCHW[part], atol=1e-6, rtol=0)


@pytest.mark.parametrize("jitter_first", [True, False])
def test_views_are_made_on_the_images_device(jitter_first: bool) -> None:
    """The device without memory refuses operations with tensors of another."""
    actual_BCHW, _ = views_of(SIMVAE, PixelViews("both", jitter_first), images().to("meta"))
    assert actual_BCHW.is_meta and prepare(actual_BCHW, PixelViews(binarise=True), MEAN, STD).is_meta


def test_binary_views_hold_only_black_and_white_also_after_interpolation() -> None:
    x_BCHW = (images(8, 1, 28, 28) > 0.5).float()
    views = replace(SIMVAE, rotation=10)
    actual_BCHW, _ = views_of(views, DEFAULT, x_BCHW)
    assert len(actual_BCHW.unique()) > 2
    binary_BCHW = prepare(actual_BCHW, PixelViews(normalise=False, binarise=True), (0.1,), (0.3,))
    assert binary_BCHW.unique().tolist() == [0, 1] and binary_BCHW.dtype == actual_BCHW.dtype
    assert torch.equal(binary_BCHW.bool(), actual_BCHW > 0.5)


def test_a_half_is_black() -> None:
    x_BCHW = torch.tensor([0.0, 0.5, 0.5 + 2**-24, 1.0]).view(1, 1, 2, 2)
    assert prepare(x_BCHW, PixelViews(normalise=False, binarise=True), (0.5,), (0.5,)).flatten().tolist() == [
        0,
        0,
        1,
        1,
    ]
    assert prepare(x_BCHW, PixelViews(binarise=True), (0.5,), (0.5,)).flatten().tolist() == [-1, -1, 1, 1]


def test_pixels_that_are_not_normalised_stay() -> None:
    x_BCHW = images()
    assert torch.equal(prepare(x_BCHW, PixelViews(normalise=False), MEAN, STD), x_BCHW)
    assert torch.equal(prepare(x_BCHW, PixelViews(), MEAN, STD), tv.normalize(x_BCHW, list(MEAN), list(STD)))
    assert torch.equal(x_BCHW, images())


@given(st.integers(0, 2**31), st.floats(0.01, 1), st.floats(0, 0.5))
def test_normalised_contrast_knows_neither_brightness_nor_contrast(seed: int, gain: float, offset: float) -> None:
    """Each image has mean 0 and mean absolute value 1; images of the training data are in [0, 1] by their range."""
    x_BCHW = torch.rand((5, 3, 6, 7), generator=generator(seed), dtype=torch.float64)
    contrast_BCHW = normalise_contrast(x_BCHW)
    torch.testing.assert_close(contrast_BCHW.mean((1, 2, 3)), torch.zeros(5).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(contrast_BCHW.abs().mean((1, 2, 3)), torch.ones(5).double())
    torch.testing.assert_close(normalise_contrast(gain * x_BCHW + offset), contrast_BCHW)
    low, span = contrast_range([x_BCHW[:2], x_BCHW[2:]])
    prepared_BCHW = prepare(x_BCHW, CONTRAST, (low,) * 3, (span,) * 3)
    assert prepared_BCHW.min().item() == pytest.approx(0, abs=1e-9) and prepared_BCHW.max().item() == pytest.approx(1)
    pixels_BCHW = prepare_pixels(x_BCHW, CONTRAST, (low,) * 3, (span,) * 3)
    assert torch.equal(pixels_BCHW, prepared_BCHW)
    torch.testing.assert_close(prepare(pixels_BCHW, CONTRAST, (low,) * 3, (span,) * 3), prepared_BCHW)


def test_images_without_contrast_are_finite() -> None:
    grey_BCHW = torch.full((2, 1, 4, 4), 0.3)
    assert normalise_contrast(grey_BCHW).abs().max() < 0.1  # only rounding is left
    low, span = contrast_range([grey_BCHW])
    assert prepare(grey_BCHW, CONTRAST, (low,), (span,)).isfinite().all()
    with pytest.raises(ValueError, match="binarise leaves no contrast to normalise"):
        PixelViews(binarise=True, contrast_normalise=True)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flip_direction", "up", "no flip_direction 'up'; there are: horizontal, vertical, both"),
        ("flip_direction", None, "no flip_direction None; there are: horizontal, vertical, both"),
        ("jitter_first", 1, "jitter_first must be true or false, but got jitter_first=1"),
        ("normalise", "no", "normalise must be true or false, but got normalise='no'"),
        ("binarise", 0.5, "binarise must be true or false, but got binarise=0.5"),
    ],
)
def test_an_illegal_value_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        PixelViews(**{field: value})
    assert str(error.value) == message
