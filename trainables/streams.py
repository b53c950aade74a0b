"""What a trial reads and draws: the order of its images, their views, its noise, its initial weights.

Everything random derives from the trial's own content (seed and data) by hashing, never from a running generator's
state: a member draws the same alone, fused, or resumed, and a draw costs the same on any device.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config import TrialConfig
from trainables.contract import Method
from trainables.data.datasets import Dataset
from trainables.data.splits import Split, one_class, whole
from trainables.data.views import normalise, scale_pixels
from trainables.networks.encoders import encoder


def split(dataset: Dataset, normal_class: int | None) -> Split:
    """ValueError where the data set has no such class."""
    return whole(dataset) if normal_class is None else one_class(dataset, normal_class)


def steps_per_epoch(config: TrialConfig, images: int) -> int:
    """Whole batches in `images` training images. ValueError where there is none."""
    size = config.training.batch_size
    if size > images:
        raise ValueError(
            f"batch_size must not exceed the {images} training images of {config.data.dataset} with "
            f"normal_class={config.data.normal_class}, but got batch_size={size}"
        )
    return images // size


def generator(*key: object) -> torch.Generator:
    """A CPU generator whose seed is a hash of `key`."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


class Stream:
    """The training images, views and noise that members with equal data and seed share."""

    def __init__(self, config: TrialConfig, split: Split, device: torch.device | str) -> None:
        self.key = stream_key(config)
        self.steps = steps_per_epoch(config, len(split.train_images))
        self._config = config
        self._split = split
        self._images = split.train_images.to(device)
        self._device = torch.device(device)
        self._layout = torch.channels_last if config.training.channels_last else torch.contiguous_format

    def order(self, epoch: int) -> Tensor:
        """Indices `[steps, B]` of the images of each step."""
        size = self._config.training.batch_size
        shuffled = torch.randperm(len(self._images), generator=generator("order", self.key, epoch))
        return shuffled[: self.steps * size].view(self.steps, size).to(self._device)

    def views(self, indices_B: Tensor, epoch: int, step: int, count: int) -> list[Tensor]:
        """`count` augmented and normalised views `[B, C, H, W]` of these images."""
        views, source = self._config.views, generator("views", self.key, epoch, step)
        images_BCHW = scale_pixels(self._images[indices_B], self._split.levels)
        drawn = [views.draw(source, images_BCHW.shape) for _ in range(count)]
        made = [normalise(views.apply(images_BCHW, one), self._split.mean, self._split.std) for one in drawn]
        return [view.contiguous(memory_format=self._layout) for view in made]

    def noise(self, shape: Sequence[int], epoch: int, step: int) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, generator=generator("noise", self.key, epoch, step)).to(self._device)


def models(configs: Sequence[TrialConfig], image_shape: tuple[int, int, int]) -> list[Method]:
    """One model a member, for images `(C, H, W)`; members of one stream begin with the same weights."""
    templates: dict[tuple[object, ...], Method] = {}
    for config in configs:
        if stream_key(config) not in templates:
            templates[stream_key(config)] = _initialised(config, image_shape)
    return [_adjusted(templates[stream_key(config)], config) for config in configs]


def stream_key(config: TrialConfig) -> tuple[object, ...]:
    """Members with equal keys share their data, its order, views and noise, and their initial weights."""
    return (config.data.dataset, config.data.normal_class, config.training.seed)


def _initialised(config: TrialConfig, image_shape: tuple[int, int, int]) -> Method:
    """A fresh model whose weights depend on the stream alone; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator("weights", stream_key(config)).initial_seed())
        chosen = config.encoder
        network = encoder(
            chosen.encoder, image_shape, width=chosen.width, features=chosen.features, small_stem=chosen.small_stem
        )
        return METHODS[config.method](config.options, network)


@torch.no_grad()
def _adjusted(template: Method, config: TrialConfig) -> Method:
    """A copy with this member's own fusible hyperparameters."""
    model = copy.deepcopy(template)
    for name in model.fusible:
        model.get_buffer(name).fill_(getattr(config.options, name))
    return model
