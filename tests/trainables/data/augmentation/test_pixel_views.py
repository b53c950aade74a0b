"""Flips in other directions, the colour jitter before the crop, and pixels that are binary or not normalised."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision.transforms.v2.functional as tv
from torch import Tensor

from tests.trainables.data.augmentation.batches import MOCO_V2, generator, images
from tests.trainables.data.augmentation.test_colour import ADJUST
from trainables.data.views import DEFAULT, Parameters, PixelViews, Views, normalise, prepare

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
