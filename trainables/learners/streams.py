"""The data and random numbers of a trial: the order of its images, their views, its noise, its initial weights.

All random numbers derive from the trial's own content (seed and data) by hashing, never from the state of a running
generator. A member therefore draws the same numbers alone, fused or resumed, and on any device.
"""

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config.sections import Data
from trainables.config.trial import TrialConfig
from trainables.contract import Method
from trainables.data.augmentation.views import normalise, scale_pixels
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files.decoding import Decoding, ImageFiles
from trainables.data.splits import Split, all_classes_split, held_out_split, hold_out_validation, one_class_split
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.networks.encoders import build_encoder

PREFETCH_STEPS = 2
"""Number of steps whose images are decoded in advance."""


class TrialSplits(NamedTuple):
    """The images that a trial trains on and is evaluated on."""

    test: Split
    validation: Split | None
    """The same training images, with validation images in place of the test images. None if none are held out."""


def make_splits(dataset: Dataset, data: Data) -> TrialSplits:
    """Split the data set as `data` says. Raises ValueError if it has no such class, or too few images of a class to
    hold any out."""
    if not data.validation:
        return TrialSplits(select_classes(dataset, data), None)
    test, validation = (select_classes(part, data) for part in hold_out_validation(dataset, data.validation))
    return TrialSplits(test, validation)


def select_classes(dataset: Dataset, data: Data) -> Split:
    """Select the classes that are trained on and tested; `data.validation` is ignored. Raises ValueError if the data
    set has no such class."""
    if data.normal_class is not None:
        return one_class_split(dataset, data.normal_class)
    return held_out_split(dataset, data.held_out_classes) if data.held_out else all_classes_split(dataset)


def steps_per_epoch(config: TrialConfig, images: int) -> int:
    """Number of whole batches in `images` training images. Raises ValueError if there is none."""
    size = config.training.batch_size
    if size > images:
        raise ValueError(
            f"batch_size must not exceed the {images} training images of {config.data.dataset} with "
            f"normal_class={config.data.normal_class}, but got batch_size={size}"
        )
    return images // size


def seeded_generator(*key: object) -> torch.Generator:
    """A CPU generator whose seed is a hash of `key`."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


class Stream:
    """The training images, views and noise that members with equal data and seed share. With several `peers`, random
    numbers are drawn for the whole batch, but views and noise are computed for this process's part only."""

    def __init__(
        self, config: TrialConfig, split: Split, device: torch.device | str, peers: Peers = SINGLE_PROCESS
    ) -> None:
        self.key = stream_key(config)
        self.steps = steps_per_epoch(config, len(split.train_images))
        self._config, self._split, self._device, self._peers = config, split, torch.device(device), peers
        images = split.train_images
        self._files = images if isinstance(images, ImageFiles) else None
        self._images = None if isinstance(images, ImageFiles) else images.to(device)
        self._views = replace(config.views, crop_scale=1.0) if self._files else config.views  # files come cropped
        self._decoding: dict[tuple[int, int], Decoding] = {}  # by epoch and step
        self._layout = torch.channels_last if config.training.channels_last else torch.contiguous_format

    def order(self, epoch: int) -> Tensor:
        """Indices `[steps, B]` of the images of each step; on the device, or on the CPU if images are files."""
        size = self._config.training.batch_size
        shuffled = torch.randperm(len(self._split.train_images), generator=seeded_generator("order", self.key, epoch))
        order = shuffled[: self.steps * size].view(self.steps, size)
        return order if self._images is None else order.to(self._device)

    def views(self, indices_B: Tensor, epoch: int, step: int, count: int) -> list[Tensor]:
        """`count` augmented and normalised views `[B, C, H, W]` of these images."""
        generator = seeded_generator("views", self.key, epoch, step)
        part, views = self._peers.slice_of(len(indices_B)), self._views
        if self._images is None:
            decoding = self._decoding.pop((epoch, step), None) or self._decode(indices_B, epoch, step, count)
            images = [scale_pixels(crop_BCHW.to(self._device), self._split.levels) for crop_BCHW in decoding()]
        else:
            images = [scale_pixels(self._images[indices_B[part]], self._split.levels)] * count
        shape = (len(indices_B), *images[0].shape[1:])
        draws = [views.draw(generator, shape).sliced(part) for _ in range(count)]
        views_BCHW = [
            normalise(views.apply(image_BCHW, draw), self._split.mean, self._split.std)
            for image_BCHW, draw in zip(images, draws, strict=True)
        ]
        return [view_BCHW.contiguous(memory_format=self._layout) for view_BCHW in views_BCHW]

    def prefetch(self, order: Tensor, epoch: int, step: int, count: int) -> None:
        """Start to decode the images of `PREFETCH_STEPS` steps of an epoch's `order`, from `step` on. Does nothing for
        images that are tensors."""
        if self._images is None:
            steps = range(step, min(step + PREFETCH_STEPS, len(order)))
            self._decoding = {
                (epoch, ahead): self._decoding.get((epoch, ahead)) or self._decode(order[ahead], epoch, ahead, count)
                for ahead in steps
            }

    def noise(self, shape: Sequence[int], epoch: int, step: int) -> Tensor:
        """Standard normal noise for this process's part of a batch; `shape` is that of the whole batch."""
        noise = torch.randn(*shape, generator=seeded_generator("noise", self.key, epoch, step))
        return (noise[..., self._peers.slice_of(shape[-2]), :] if len(shape) > 1 else noise).to(self._device)

    def _decode(self, indices_B: Tensor, epoch: int, step: int, count: int) -> Decoding:
        """Start to decode `count` crops of each of these images."""
        assert self._files is not None
        part, views = self._peers.slice_of(len(indices_B)), self._config.views
        sources = [seeded_generator("crops", self.key, epoch, step, row) for row in range(len(indices_B))[part]]
        return self._files.crops(indices_B[part], sources, count, views.crop_scale, views.crop_ratio)


def stream_key(config: TrialConfig) -> tuple[object, ...]:
    """The key of a trial's stream. Members with equal keys share images, their order, views, noise and initial
    weights."""
    data = config.data
    parts = [part for part in (data.held_out, data.validation) if part]
    return (data.dataset, data.normal_class, config.training.seed, *parts)


@torch.no_grad()
def build_models(configs: Sequence[TrialConfig], image_shape: tuple[int, int, int]) -> list[Method]:
    """One model per member, for images of shape `(C, H, W)`. Members of one stream start with the same weights, except
    for their own fusible hyperparameters. The state of torch's global generator is unchanged."""
    templates: dict[tuple[object, ...], Method] = {}
    models = []
    for config in configs:
        key, encoder = stream_key(config), config.encoder
        if key not in templates:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seeded_generator("weights", key).initial_seed())
                name, width, features = encoder.encoder, encoder.width, encoder.features
                network = build_encoder(
                    name, image_shape, width=width, features=features, small_stem=encoder.small_stem
                )
                templates[key] = METHODS[config.method](config.options, network)
        model = copy.deepcopy(templates[key])
        for name in model.fusible:
            model.get_buffer(name).fill_(getattr(config.options, name))
        models.append(model)
    return models
