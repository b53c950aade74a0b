"""The members of one cohort and what they read: trained an epoch at a time, stacked or in turn, and evaluated.

Shapes: K members, B images a step, N test images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from trainables.catalog import METHODS
from trainables.config import TrialConfig
from trainables.data.datasets import Dataset, load
from trainables.data.views import normalise, scale_pixels
from trainables.evaluation import anomaly
from trainables.evaluation.anomaly import Floats
from trainables.fuse import Stack
from trainables.schedule import cosine
from trainables.streams import Stream, generator, models, split, stream_key

SCORING_BATCH = 256
"""Test images scored at a time; fixed, because the noise of sampled scores is drawn for each such batch."""


class Cohort:
    """K members that agree on everything that is not fusible."""

    def __init__(self, configs: Sequence[TrialConfig], data: Path, device: torch.device, width: int | None) -> None:
        """`width` members are stacked at a time, None for all. DataError or ValueError if the data do not serve."""
        self.method = METHODS[configs[0].method]
        self._training = configs[0].training
        self._device = device
        dataset = _load(configs[0].data.dataset, data)
        splits = {stream_key(config): split(dataset, config.data.normal_class) for config in configs}
        by_stream = {stream_key(config): config for config in configs}
        self._streams = [Stream(config, splits[key], device) for key, config in by_stream.items()]
        if len({stream.steps for stream in self._streams}) > 1:
            raise ValueError("the members of a cohort must have equally many steps an epoch, but these differ")
        reads = [list(by_stream).index(stream_key(config)) for config in configs]
        self._splits = [splits[stream_key(config)] for config in configs]
        first = self._splits[0]
        self._test_NCHW = normalise(scale_pixels(first.test_images, first.levels), first.mean, first.std).to(device)
        _, channels, height, across = dataset.train_images.shape
        members = models(configs, (channels, height, across))
        width = width or len(configs)
        self._stacks = [
            Stack(
                members[start : start + width],
                streams=reads[start : start + width],
                lr=[config.training.lr for config in configs[start : start + width]],
                weight_decay=[config.training.weight_decay for config in configs[start : start + width]],
                momentum=self._training.momentum,
                autocast=torch.bfloat16 if self._training.precision == "bfloat16" else None,
                device=device,
            )
            for start in range(0, len(configs), width)
        ]

    def epoch(self, number: int) -> dict[str, Floats]:
        """Train one epoch, the first being 0. Returns each loss `[K]`, averaged over the epoch's steps."""
        orders = self.orders(number)
        steps = self._streams[0].steps
        sums: dict[str, torch.Tensor] = {}
        for step in range(steps):
            rate = cosine(number * steps + step, self._training.epochs * steps, self._training.warmup_epochs * steps)
            for name, loss_K in self.step(number, step, orders, rate).items():
                sums[name] = sums[name] + loss_K if name in sums else loss_K
        return {name: (sum_K / steps).double().cpu().numpy() for name, sum_K in sums.items()}

    def orders(self, epoch: int) -> list[torch.Tensor]:
        """Indices `[steps, B]` of the training images of each step, one tensor a stream."""
        return [stream.order(epoch) for stream in self._streams]

    def step(self, epoch: int, step: int, orders: Sequence[torch.Tensor], rate: float) -> dict[str, torch.Tensor]:
        """One step of every member at `rate` times its learning rate. Returns each loss before the step, `[K]`."""
        count, noise_shape = self.method.view_count, self._stacks[0].noise_shape(self._training.batch_size)
        views = [
            stream.views(order[step], epoch, step, count) for stream, order in zip(self._streams, orders, strict=True)
        ]
        noise = [stream.noise(noise_shape, epoch, step) for stream in self._streams]
        losses = [stack.step(views, noise, rate) for stack in self._stacks]
        total = {"loss": torch.cat([loss.total for loss in losses])}
        return total | {f"loss_{part}": torch.cat([loss.parts[part] for loss in losses]) for part in losses[0].parts}

    def evaluate(self) -> dict[str, Floats]:
        """Metrics `[K]` on the test images, without augmentation; none where all classes are trained on."""
        outliers = [split.outlier for split in self._splits]
        if not self.method.scores or outliers[0] is None:
            return {}
        outlier_KN = torch.stack([outlier for outlier in outliers if outlier is not None]).numpy()
        return anomaly.evaluate(self._scores(), outlier_KN, self.method.score_means)

    def state(self) -> list[dict[str, Any]]:
        """Everything that training changes, on the CPU."""
        return [stack.state() for stack in self._stacks]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take up what `state` returned in a cohort of the same configs and width."""
        for stack, saved in zip(self._stacks, state, strict=True):
            stack.load_state(saved)

    def _scores(self) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` by name."""
        batches = []
        for start in range(0, len(self._test_NCHW), SCORING_BATCH):
            images = self._test_NCHW[start : start + SCORING_BATCH]
            shape = self._stacks[0].score_noise_shape(len(images))
            noise = torch.randn(*shape, generator=generator("scores", start)).to(self._device)
            by_stack = [stack.score(images, noise) for stack in self._stacks]
            batches.append({name: torch.cat([scores[name] for scores in by_stack]) for name in by_stack[0]})
        return {
            name: torch.cat([scores[name] for scores in batches], dim=1).double().cpu().numpy() for name in batches[0]
        }


@lru_cache(maxsize=1)
def _load(name: str, data: Path) -> Dataset:
    """One worker trains many cohorts of one data set, and reads it once."""
    return load(name, data)
