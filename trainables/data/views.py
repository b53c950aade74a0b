"""Augmented views of a batch of images. Each image has its own parameters, which are drawn on the CPU and applied on
the image's device.

The order follows MoCo v2: crop, (rotation and shift), colour jitter, greyscale, blur, flip; `PixelViews` can put the
colour jitter first. `prepare` then turns pixels into the input of networks. Shapes: B images, C channels (1 or 3), H
rows, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from trainables.data import augmentation
from trainables.validation import added, at_least, between, checked, one_of

FLIPS: Mapping[str, tuple[str, ...]] = {
    "horizontal": ("flip",),
    "vertical": ("flip_vertical",),
    "both": ("flip", "flip_vertical"),
}
"""Direction -> the parameters of its flips."""


@checked
class PixelViews:
    """How views are flipped, ordered and scaled. The defaults follow MoCo v2. These keys are separate from `Views`
    because every key of `Views` is part of every trial's id."""

    flip_direction: Annotated[str, one_of(*FLIPS)] = "horizontal"
    """Direction of flips: `horizontal`, `vertical`, or `both` (two independent flips of the same probability)."""
    jitter_first: bool = False
    """Jitter colours before the crop instead of after it, so that the contrast refers to the whole image. Impossible
    for image files, which are cropped while they are decoded."""
    normalise: bool = True
    """Subtract the mean and divide by the standard deviation of each channel. False leaves pixels in [0, 1]."""
    binarise: bool = False
    """Make pixels above 0.5 white and all others black, after the augmentation and also in evaluation."""
    contrast_normalise: bool = added(False)
    """Instead of `normalise`: subtract each image's mean from its pixels, divide by their mean absolute value (the L1
    norm), and scale to [0, 1] by the smallest and largest value in the training images of all classes. These images are
    also the target of decoders. The authors of Deep SVDD use the range of the normal class, which would differ between
    members of a cohort."""

    augmentation: Annotated[str, one_of("", own="my_views:MyViews")] = added("")
    """Your own views, `my_views:MyViews`, applied after the augmentations of the other keys: an object or class with
    declared noise, or a pipeline of `torchvision.transforms.v2`."""

    def __post_init__(self) -> None:
        if self.binarise and self.contrast_normalise:
            raise ValueError(
                "binarise leaves no contrast to normalise, so binarise or contrast_normalise must be false, but both "
                "are true"
            )


DEFAULT = PixelViews()
"""The views of most papers."""


ADJUST: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": augmentation.adjust_brightness,
    "contrast": augmentation.adjust_contrast,
    "saturation": augmentation.adjust_saturation,
    "hue": augmentation.adjust_hue,
}
"""The four operations of the colour jitter."""

FLIP_AXES: Mapping[str, int] = {"flip": -1, "flip_vertical": -2}
"""Parameter of a flip -> the dimension of images that it reverses."""

BLUR_SIGMA = (0.1, 2.0)
"""Range of the blur's sigma in pixels."""

LEAST_CONTRAST = 1e-6
"""Minimum divisor of contrasts, far below one grey level in one pixel of a 512x512 image."""


@dataclass(frozen=True, eq=False)
class Parameters:
    """The random parameters of one view of a batch, for active augmentations only."""

    values: Mapping[str, Tensor]
    """Name -> float32 `[B]`: `top left height width` (pixels), `rotation` (degrees), `right down` (pixels),
    `brightness contrast saturation hue` (factors), `blur` (sigma, 0 = none), and `jitter greyscale flip
    flip_vertical` (0 or 1)."""
    order: tuple[str, ...] = ()
    """The order of the colour jitter's operations, the same for the whole batch."""
    jitter_first: bool = False
    """Whether the colour jitter comes before the crop."""

    def to(self, device: torch.device | str) -> Parameters:
        """The same parameters on `device`, moved in a single copy without waiting for it."""
        if not self.values or next(iter(self.values.values())).device == torch.device(device):
            return self
        stacked_NB = torch.stack(list(self.values.values())).to(device, non_blocking=True)
        return replace(self, values=dict(zip(self.values, stacked_NB.unbind(), strict=True)))

    def sliced(self, images: slice) -> Parameters:
        """The parameters of a slice of the batch."""
        return replace(self, values={name: value_B[images] for name, value_B in self.values.items()})


@checked
class Views:
    """The augmentations of a view and their strength. By default views are not augmented."""

    crop_scale: Annotated[float, between(0, 1, above=True)] = 1.0
    """Minimum area of the random resized crop as a share of the image; 1 for no crop."""
    crop_ratio: Annotated[float, between(1, 100)] = 4 / 3
    """The crop's aspect ratio is log-uniform in [1/crop_ratio, crop_ratio]."""
    flip: Annotated[float, between(0, 1)] = 0.0
    """Probability of a flip (horizontal by default, see `flip_direction`)."""
    brightness: Annotated[float, at_least(0)] = 0.0
    """The brightness factor of the colour jitter is uniform in [max(0, 1 - brightness), 1 + brightness]."""
    contrast: Annotated[float, at_least(0)] = 0.0
    """Like brightness, for contrast."""
    saturation: Annotated[float, at_least(0)] = 0.0
    """Like brightness, for saturation. No effect on one-channel images."""
    hue: Annotated[float, between(0, 0.5)] = 0.0
    """Maximum hue rotation of the colour jitter, as a share of the colour circle. No effect on one-channel images."""
    jitter: Annotated[float, between(0, 1)] = 0.0
    """Probability of colour jitter for an image. The order of the four operations is drawn once per batch; torchvision
    draws it per image."""
    greyscale: Annotated[float, between(0, 1)] = 0.0
    """Probability of conversion to greyscale. No effect on one-channel images."""
    blur: Annotated[float, between(0, 1)] = 0.0
    """Probability of a Gaussian blur with sigma uniform in [0.1, 2] pixels and a kernel of about a tenth of the
    side."""
    rotation: Annotated[float, between(0, 180)] = 0.0
    """Rotations are uniform in [-rotation, rotation] degrees."""
    shift: Annotated[float, at_least(0)] = 0.0
    """Shifts along both axes are real numbers, uniform in [-shift, shift] pixels. Pixels outside the image are 0."""

    def draw(self, generator: torch.Generator, shape: Sequence[int], pixel_views: PixelViews = DEFAULT) -> Parameters:
        """Draw the parameters for a batch of `shape` (n, C, H, W), with a CPU generator, so that they are the same on
        any device. Raises ValueError if colours change and C is neither 1 nor 3."""
        n, channels, height, width = shape
        uniform, happens = partial(_uniform, generator, n), partial(_happens, generator, n)
        values: dict[str, Tensor] = {}
        if self.crop_scale < 1:
            box = augmentation.draw_boxes(generator, n, height, width, self.crop_scale, self.crop_ratio)
            values.update(zip(("top", "left", "height", "width"), box, strict=True))
        if self.rotation:
            values["rotation"] = uniform(-self.rotation, self.rotation)
        if self.shift:
            values["right"], values["down"] = uniform(-self.shift, self.shift), uniform(-self.shift, self.shift)
        order = self._draw_order(generator, channels)
        values |= self._draw_jitter(generator, n, order) if order else {}
        if self.greyscale and channels == 3:
            values["greyscale"] = happens(self.greyscale)
        if self.blur:
            values["blur"] = happens(self.blur) * uniform(*BLUR_SIGMA)
        if self.flip:
            values |= {name: happens(self.flip) for name in FLIPS[pixel_views.flip_direction]}
        return Parameters(values, order, pixel_views.jitter_first)

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        """Apply `parameters` to images (float, in [0, 1]) and return the view `[B, C, H, W]`. The function is pure and
        never waits for the device. Without augmentations it returns `images_BCHW` itself."""
        parameters = parameters.to(images_BCHW.device)
        values = parameters.values
        view_BCHW = _jitter(images_BCHW, parameters) if parameters.jitter_first else images_BCHW
        if "top" in values:
            box = (values[name] for name in ("top", "left", "height", "width"))
            view_BCHW = augmentation.resized_crop(view_BCHW, *box)
        if "rotation" in values or "right" in values:
            zero_B = torch.zeros_like(next(iter(values.values())))
            motion = (values.get(name, zero_B) for name in ("rotation", "right", "down"))
            view_BCHW = augmentation.rotate_and_shift(view_BCHW, *motion)
        if not parameters.jitter_first:
            view_BCHW = _jitter(view_BCHW, parameters)
        if "greyscale" in values:
            view_BCHW = _where(values["greyscale"], augmentation.greyscale(view_BCHW), view_BCHW)
        if "blur" in values:
            sigma_B = values["blur"].clamp_min(BLUR_SIGMA[0])
            view_BCHW = _where(values["blur"], augmentation.gaussian_blur(view_BCHW, sigma_B), view_BCHW)
        for name, axis in FLIP_AXES.items():
            if name in values:
                view_BCHW = _where(values[name], view_BCHW.flip(axis), view_BCHW)
        return view_BCHW

    def _draw_jitter(self, generator: torch.Generator, n: int, order: Sequence[str]) -> dict[str, Tensor]:
        """The images that are jittered, and the factors of these operations."""
        values = {"jitter": _happens(generator, n, self.jitter)}
        for name in sorted(order):
            strength = getattr(self, name)
            neutral, least = (0.0, -0.5) if name == "hue" else (1.0, 0.0)
            values[name] = _uniform(generator, n, max(least, neutral - strength), neutral + strength)
        return values

    def _draw_order(self, generator: torch.Generator, channels: int) -> tuple[str, ...]:
        """The active operations of the jitter in a random order; empty without jitter."""
        active = [name for name in ADJUST if self.jitter and getattr(self, name)]
        if (active or self.greyscale) and channels not in (1, 3):
            raise ValueError(f"images whose colours change must have 1 or 3 channels, but got {channels}")
        if channels == 1:
            active = [name for name in active if name not in ("saturation", "hue")]
        return tuple(active[i] for i in torch.randperm(len(active), generator=generator).tolist()) if active else ()


def scale_pixels(images_BCHW: Tensor, levels: int) -> Tensor:
    """Convert uint8 pixels in 0..levels to float32 in [0, 1]; float images are already in this range."""
    return images_BCHW if images_BCHW.is_floating_point() else images_BCHW.float() / levels


def normalise(images_BCHW: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Subtract the mean and divide by the standard deviation of each channel, both for pixels in [0, 1]."""
    mean_C, std_C = torch.tensor((mean, std), dtype=images_BCHW.dtype).to(images_BCHW.device, non_blocking=True)
    return (images_BCHW - mean_C[:, None, None]) / std_C[:, None, None]


def prepare(images_BCHW: Tensor, pixel_views: PixelViews, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Turn pixels in [0, 1], augmented or not, into the input of networks: binarise and normalise them as `pixel_views`
    defines, with the mean and standard deviation of each channel, or with `low` and `span` of `prepare_pixels`
    instead."""
    pixels_BCHW = prepare_pixels(images_BCHW, pixel_views, mean, std)
    normalised = pixel_views.normalise and not pixel_views.contrast_normalise
    return normalise(pixels_BCHW, mean, std) if normalised else pixels_BCHW


def prepare_pixels(
    images_BCHW: Tensor, pixel_views: PixelViews, low: tuple[float, ...], span: tuple[float, ...]
) -> Tensor:
    """As `prepare`, but without the normalisation of channels: the target of decoders. With `contrast_normalise`, `low`
    and `span` are the smallest value and the range of the training images (see `contrast_range`)."""
    if pixel_views.contrast_normalise:
        return normalise(normalise_contrast(images_BCHW), low, span)
    return (images_BCHW > 0.5).to(images_BCHW.dtype) if pixel_views.binarise else images_BCHW


def normalise_contrast(images_BCHW: Tensor) -> Tensor:
    """Each image minus its mean, divided by its mean absolute value: Deep SVDD's global contrast normalisation with L1
    scale. An image of one colour becomes 0."""
    centred_BCHW = images_BCHW - images_BCHW.mean((-3, -2, -1), keepdim=True)
    return centred_BCHW / centred_BCHW.abs().mean((-3, -2, -1), keepdim=True).clamp_min(LEAST_CONTRAST)


def contrast_range(batches: Iterable[Tensor]) -> tuple[float, float]:
    """The smallest value and the range (above 0) of contrast-normalised images, given images in [0, 1]."""
    values = [normalise_contrast(images_BCHW).aminmax() for images_BCHW in batches]
    low, high = min(low.item() for low, _ in values), max(high.item() for _, high in values)
    return low, max(high - low, LEAST_CONTRAST)


def _jitter(images_BCHW: Tensor, parameters: Parameters) -> Tensor:
    """The images, with the colours of those selected by `parameters` jittered."""
    if "jitter" not in parameters.values:
        return images_BCHW
    jittered_BCHW = images_BCHW
    for name in parameters.order:
        jittered_BCHW = ADJUST[name](jittered_BCHW, parameters.values[name])
    return _where(parameters.values["jitter"], jittered_BCHW, images_BCHW)


def _uniform(generator: torch.Generator, n: int, low: float, high: float) -> Tensor:
    return torch.rand(n, generator=generator).mul_(high - low).add_(low)


def _happens(generator: torch.Generator, n: int, probability: float) -> Tensor:
    """1 with this probability, otherwise 0, float32 `[n]`."""
    return (torch.rand(n, generator=generator) < probability).float()


def _where(chosen_B: Tensor, then_BCHW: Tensor, else_BCHW: Tensor) -> Tensor:
    return torch.where(chosen_B[:, None, None, None] > 0, then_BCHW, else_BCHW)
