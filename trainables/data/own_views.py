"""The user's own views, which are applied after the augmentations of `Views`.

They map images [B, C, H, W] in [0, 1] to the same number of images, and are one of

- an object, or a class without arguments, with `noise(batch, image_shape)`, which returns the name of each random
  tensor and its `trainables.contract.Noise`, and with `__call__(images, noise)`
- any other callable, such as a pipeline of `torchvision.transforms.v2`: it is called with one image at a time, with
  torch's generator seeded for that image

Both give the same views whether a member trains alone or stacked. Shapes: B images, C channels, H rows, W columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trainables.data.views import Parameters, PixelViews, Views
from trainables.own_code import KINDS, imported_own, reason, trial_call

SEEDS = "seeds"
"""Name of the noise of views that declare none: one seed per image."""
TOLERANCE = 1e-5
"""Maximum difference attributed to rounding."""


@dataclass(frozen=True)
class OwnParameters:
    """The random parameters of one view of a batch."""

    before: Parameters
    """Parameters of the augmentations of `Views`."""
    noise: Mapping[str, Tensor]
    batch_dims: Mapping[str, int | None]
    """Batch dimension of each random tensor; None without a batch dimension."""

    def sliced(self, images: slice) -> OwnParameters:
        """The parameters of a slice of the batch."""
        parts = {name: _sliced(tensor, self.batch_dims[name], images) for name, tensor in self.noise.items()}
        return replace(self, before=self.before.sliced(images), noise=parts)


@dataclass(frozen=True)
class OwnViews:
    """The augmentations of `Views`, then the user's own views."""

    before: Views
    name: str

    def draw(self, generator: torch.Generator, shape: Sequence[int], pixel_views: PixelViews) -> OwnParameters:
        """Draw the parameters for a batch of `shape` (n, C, H, W), with a CPU generator."""
        before, views = self.before.draw(generator, shape, pixel_views), _made(self.name)
        batch, image_shape = shape[0], tuple(shape[1:])
        if not hasattr(views, "noise"):
            seeds_B = torch.randint(2**62, (batch,), generator=generator)
            return OwnParameters(before, {SEEDS: seeds_B}, {SEEDS: 0})
        declared = dict(sorted(views.noise(batch, image_shape).items()))
        draws = {"normal": torch.randn, "uniform": torch.rand}
        noise = {name: draws[each.kind](each.shape, generator=generator) for name, each in declared.items()}
        return OwnParameters(before, noise, {name: each.batch_dim for name, each in declared.items()})

    def apply(self, images_BCHW: Tensor, parameters: OwnParameters) -> Tensor:
        """The views `[B, C, H, W]` of a copy of images in [0, 1]. The user's code may change the copy in place; other
        views need the same images."""
        images_BCHW, views = self.before.apply(images_BCHW, parameters.before).clone(), _made(self.name)
        if hasattr(views, "noise"):
            device = images_BCHW.device
            noise = {name: tensor.to(device, non_blocking=True) for name, tensor in parameters.noise.items()}
            view_BCHW: Tensor = views(images_BCHW, noise)
            return view_BCHW
        with torch.random.fork_rng(devices=[]):
            seen = []
            for image_CHW, seed in zip(images_BCHW, parameters.noise[SEEDS].tolist(), strict=True):
                torch.default_generator.manual_seed(seed)
                seen.append(views(image_CHW))
        return torch.stack(seen)


def views_of(views: Views, pixel_views: PixelViews) -> Views | OwnViews:
    """The object that makes a trial's views."""
    return OwnViews(views, pixel_views.augmentation) if pixel_views.augmentation else views


def about_views(name: str) -> str:
    """One line on the drawbacks of views that declare no noise; empty for other views."""
    if hasattr(_made(name), "noise"):
        return ""
    return (
        f"the views {name} declare no noise, so they are made image by image, which is slow, and random numbers from "
        "generators other than torch's on the CPU are not reproduced when a trial is resumed or stacked"
    )


@trial_call()
def check_own_views(name: str, image_shape: tuple[int, int, int], examples: int = 8) -> None:
    """Try views on this many random images. Raises ValueError, with one line, unless the results are images in [0, 1]
    of the same shape, equal for equal noise, and each depends only on its own image."""
    views, shape = OwnViews(Views(), name), (examples, *image_shape)
    images_BCHW = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    half = slice(0, examples // 2)
    try:
        drawn = views.draw(torch.Generator().manual_seed(1), shape, PixelViews())
        first, second = (views.apply(images_BCHW, drawn) for _ in range(2))
        part = views.apply(images_BCHW[half], drawn.sliced(half))
    except Exception as error:
        why = reason(error, name.partition(":")[0])
        raise ValueError(f"the views {name} must work on {examples} random images, but fail: {why}") from error
    if not isinstance(first, Tensor) or first.shape != images_BCHW.shape or not first.is_floating_point():
        got = f"{[*first.shape]} of {first.dtype}" if isinstance(first, Tensor) else type(first).__name__
        raise ValueError(f"the views {name} must be float images {[*shape]}, like their input, but are {got}")
    if not (first.isfinite().all() and first.min() >= -TOLERANCE and first.max() <= 1 + TOLERANCE):
        low, high = (value.item() for value in first.aminmax())
        raise ValueError(f"the views {name} must be in [0, 1], but are from {low:g} to {high:g}; clamp them")
    if not torch.equal(first, second):
        raise ValueError(
            f"the views {name} must draw no random numbers (declare them in noise(batch, image_shape) and take them as "
            "an argument), but two calls with the same noise differ"
        )
    if not torch.allclose(part, first[half], atol=TOLERANCE):
        raise ValueError(f"the views {name} must depend on each image alone, but those of half a batch differ")


def _made(name: str) -> Any:
    """The callable that makes the views: an object of the named class, or the named object itself. Raises ValueError if
    it is not callable."""
    made = imported_own(KINDS["augmentation"], name)
    made = made() if inspect.isclass(made) else made
    if not callable(made):
        raise ValueError(f"the views {name} must be callable, but are of type {type(made).__name__}")
    return made


def _sliced(tensor: Tensor, dim: int | None, part: slice) -> Tensor:
    return tensor if dim is None else tensor.movedim(dim, 0)[part].movedim(0, dim)
