"""The training images of a trial as batches: their order, and their augmented views."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainables.contract import Batch, ImageMethod
from trainables.data.datasets.class_folders import FOLDER
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files import Decoding, ImageFiles, LazyImages
from trainables.data.own_views import views_of
from trainables.data.splits import (
    Split,
    TrialSplits,
    all_classes_split,
    held_out_split,
    hold_out_validation,
    one_class_split,
)
from trainables.data.views import prepare, prepare_pixels, scale_pixels
from trainables.image_trial import Data, ImageTrial
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers, seeded_generator
from trainables.metrics.evaluator import BATCH
from trainables.sections import GradientTraining
from trainables.tasks.task import Stream

PREFETCH_STEPS = 2
"""Number of steps whose images are decoded in advance."""


def make_splits(dataset: Dataset, data: Data, seed: int = 0) -> TrialSplits:
    """Split the data set according to `data` and the trial's seed. Raises ValueError if the class does not exist, or
    has too few images to hold out or to train on."""
    if not data.validation:
        return TrialSplits(select_classes(dataset, data, seed), None)
    test, validation = (select_classes(part, data, seed) for part in hold_out_validation(dataset, data.validation))
    return TrialSplits(test, validation)


def select_classes(dataset: Dataset, data: Data, seed: int = 0) -> Split:
    """Select the classes for training and testing; `data.validation` is ignored. Raises ValueError if the class does
    not exist or has too few images."""
    if data.normal_class is not None:
        return one_class_split(dataset, data.normal_class, data.normal_images, data.contamination, seed)
    return held_out_split(dataset, data.held_out_classes) if data.held_out else all_classes_split(dataset)


def steps_per_epoch(config: ImageTrial, images: int) -> int:
    """Number of steps of an epoch over `images` training images. Raises ValueError if it is 0."""
    size = config.training.batch_size if isinstance(config.training, GradientTraining) else images
    if size > images:
        needed = math.ceil(size / (1 - config.data.validation))
        remedy = f"; add images until the class has {needed}, or choose --set batch_size={images}"
        raise ValueError(
            f"batch_size must not exceed the {images} training images of {config.data.dataset} with "
            f"normal_class={config.data.normal_class}, but got batch_size={size}"
            f"{remedy if config.data.dataset == FOLDER and config.data.normal_class is not None else ''}"
        )
    return images // size


def images_per_step(config: ImageTrial, method: type[ImageMethod], images: int) -> int:
    """Number of images per batch; all `images` for a method that is fitted to all data at once."""
    if not isinstance(config.training, GradientTraining):
        return images
    views = method.encoded_count(config.options) if config.batches.batch_unit == "views" else 1
    return config.training.batch_size // views


def stream_key(config: ImageTrial) -> tuple[object, ...]:
    """The key of a trial's stream. Members with equal keys share images, their order, views, noise and initial
    weights."""
    data = config.data
    parts: list[object] = [part for part in (data.held_out, data.validation) if part]
    parts += [f"{key}={part}" for key in ("normal_images", "contamination") if (part := getattr(data, key))]
    return (data.dataset, data.normal_class, config.training.seed, *parts)


class ImageStream(Stream):
    """The training images and views that members with equal data and seed share. With several `peers`, random numbers
    are drawn for the whole batch, but views are computed only for this process's part."""

    def __init__(
        self,
        config: ImageTrial,
        method: type[ImageMethod],
        split: Split,
        device: torch.device | str,
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        images = split.train_images
        self.key = stream_key(config)
        self.steps = steps_per_epoch(config, len(images))
        self.batch_size = images_per_step(config, method, len(images))
        self._reads, self._count = method.reads, method.view_count(config.options)
        self._config, self._split, self._device, self._peers = config, split, torch.device(device), peers
        self._files = images if isinstance(images, ImageFiles) else None
        self._lazy = images if isinstance(images, LazyImages) else None
        self._images = images.to(device) if isinstance(images, Tensor) else None
        keys = replace(config.views, crop_scale=1.0) if self._files else config.views  # files come cropped
        self._views = views_of(keys, config.pixel_views)
        self._decoding: dict[tuple[int, int], Decoding] = {}  # by epoch and step
        channels_last = isinstance(config.training, GradientTraining) and config.training.channels_last
        self._labels = split.train_labels if self._images is None else split.train_labels.to(device)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format

    def order(self, epoch: int) -> Tensor:
        """Indices `[steps, B]` of each step's images; on the CPU if images are read on demand."""
        size = self.batch_size
        shuffled = torch.randperm(len(self._split.train_images), generator=seeded_generator("order", self.key, epoch))
        order = shuffled[: self.steps * size].view(self.steps, size)
        return order if self._images is None else order.to(self._device)

    def batch(self, indices_B: Tensor, epoch: int, step: int) -> Batch:
        """The entries that the method reads (see `ImageMethod`)."""
        part = self._peers.slice_of(len(indices_B))
        entries: dict[str, Tensor | tuple[Tensor, ...]] = {}
        if self._reads & {"views", "view_pixels"}:
            pixels = self._view_pixels(indices_B, part, epoch, step)
            entries |= {"view_pixels": pixels, "views": tuple(map(self._prepared, pixels))}
        if self._reads & {"plain", "plain_pixels"}:
            plain = self._plain_pixels(indices_B[part])
            entries |= {"plain_pixels": (plain,), "plain": (self._prepared(plain),)}
        if "labels" in self._reads:
            entries["labels"] = self._labels[indices_B[part]].to(self._device)
        return {name: entry for name, entry in entries.items() if name in self._reads}

    def examples(self) -> Iterator[Batch]:
        """Batches with the entries `plain` and `plain_pixels`, whatever the method reads in training."""
        for indices_B in torch.arange(len(self._split.train_images)).split(BATCH):
            plain_BCHW = self._plain_pixels(indices_B)
            yield {"plain_pixels": (plain_BCHW,), "plain": (self._prepared(plain_BCHW),)}

    def prefetch(self, order: Tensor, epoch: int, step: int) -> None:
        """Start decoding the images of `PREFETCH_STEPS` steps of an epoch's `order`, beginning at `step`. Does nothing
        for images that are tensors."""
        if self._images is None:
            steps = range(step, min(step + PREFETCH_STEPS, len(order)))
            self._decoding = {
                (epoch, ahead): self._decoding.get((epoch, ahead)) or self._decode(order[ahead], epoch, ahead)
                for ahead in steps
            }

    def _view_pixels(self, indices_B: Tensor, part: slice, epoch: int, step: int) -> tuple[Tensor, ...]:
        """Augmented views `[B, C, H, W]` of these images in [0, 1], this process's `part`."""
        generator = seeded_generator("views", self.key, epoch, step)
        if self._images is None:
            decoding = self._decoding.pop((epoch, step), None) or self._decode(indices_B, epoch, step)
            images = [scale_pixels(crop_BCHW.to(self._device), self._split.levels) for crop_BCHW in decoding()]
            images *= self._count // len(images)  # lazily read images are not cropped yet: one per image
        else:
            images = [scale_pixels(self._images[indices_B[part]], self._split.levels)] * self._count
        shape = (len(indices_B), *images[0].shape[1:])
        maker: Any = self._views  # applies its own draws
        draws = [maker.draw(generator, shape, self._config.pixel_views).sliced(part) for _ in range(self._count)]
        views = (maker.apply(image_BCHW, draw) for image_BCHW, draw in zip(images, draws, strict=True))
        return tuple(map(self._as_decoded, views))

    def _plain_pixels(self, indices_B: Tensor) -> Tensor:
        """These images without augmentation, in [0, 1]. Files are decoded now, not ahead."""
        images = self._split.train_images if self._images is None else self._images
        pixels_BCHW = scale_pixels(images[indices_B].to(self._device), self._split.levels)
        return self._as_decoded(pixels_BCHW)

    def _as_decoded(self, pixels_BCHW: Tensor) -> Tensor:
        """The images in the form of decoders' targets."""
        return prepare_pixels(pixels_BCHW, self._config.pixel_views, self._split.mean, self._split.std)

    def _prepared(self, pixels_BCHW: Tensor) -> Tensor:
        """The images as encoders take them."""
        prepared_BCHW = prepare(pixels_BCHW, self._config.pixel_views, self._split.mean, self._split.std)
        return prepared_BCHW.contiguous(memory_format=self._layout)

    def _decode(self, indices_B: Tensor, epoch: int, step: int) -> Decoding:
        """Start decoding the crops of each of these images, or reading the images."""
        part, views = self._peers.slice_of(len(indices_B)), self._config.views
        if self._lazy is not None:
            return self._lazy.decode(indices_B[part])
        assert self._files is not None
        sources = [seeded_generator("crops", self.key, epoch, step, row) for row in range(len(indices_B))[part]]
        return self._files.crops(indices_B[part], sources, self._count, views.crop_scale, views.crop_ratio)
