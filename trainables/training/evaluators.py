"""What a cohort's members are worth: their metrics on test images, without augmentation and in evaluation mode.

Where validation images are held out, each metric is also reported of these, as `val_METRIC`.
Members trained on one class are judged by their anomaly scores; those trained on all by what classifiers make of their
representations, by the variance of their posterior, and by how they tell other images from the test images.
Shapes: K members, N images, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config.trial import TrialConfig
from trainables.data.datasets import Dataset, Images
from trainables.data.outliers import outliers
from trainables.data.reading import in_parts, resident
from trainables.data.splits import Split
from trainables.data.views import normalise, scale_pixels
from trainables.evaluation import anomaly, knn, ood, posterior, probes
from trainables.evaluation.anomaly import Floats
from trainables.evaluation.metrics import FAMILIES, VALIDATION
from trainables.learners.data_parallel import ALONE, Peers
from trainables.learners.stack import Stack
from trainables.learners.streams import Splits, generator

BATCH = 256
"""Images evaluated at a time; fixed, because the noise of sampled scores is drawn for each such batch."""
MAY_BE_UNDEFINED = frozenset(
    prefix + name for name, family in FAMILIES.items() if family.may_be_undefined for prefix in ("", VALIDATION)
)
"""Metrics that a sound member may lack; any other that is not a number says that the member has diverged."""
TOP = 5
"""A probe's guesses beside the first, where there are more classes."""


def metric_names(config: TrialConfig, classes: int, last: bool = True) -> tuple[str, ...]:
    """Every metric that the reports of such a trial, on data of so many classes, can hold; those before the last one
    where not `last`."""
    method, asked = METHODS[config.method], config.evaluation
    losses = ("loss", *(f"loss_{part}" for part in method.loss_parts))
    prefixes = ("", VALIDATION) if config.data.validation else ("",)
    if config.data.normal_class is not None:
        return (*losses, *_prefixed(prefixes, anomaly.metric_names(method)))
    inside: list[str] = []
    for vector in method.representations:
        inside += [f"knn_{vector}", f"knn_weighted_{vector}"] if asked.knn else []
        inside += [f"probe{suffix}_{vector}" for _, suffix in _tops(classes)] if last and asked.probe_epochs else []
    inside += posterior.METRICS if method.variance else []
    outside = [f"{name}_{outliers}" for outliers in asked.outlier_sets for name in ood.metric_names(method)]
    return (*losses, *_prefixed(prefixes, inside), *_prefixed(prefixes, outside))


@dataclass(frozen=True)
class _Part:
    """Images that members are evaluated on: the test images, or validation images."""

    prefix: str
    """Begins the names of its metrics."""
    images: Images
    labels: Tensor
    """int64 `[N]`."""
    outlier_KN: NDArray[np.bool_]
    """Of members trained on one class: which images are of another."""
    outliers: Mapping[str, Images]
    """Name -> the images of a set of outliers."""

    def named(self, found: Mapping[str, Floats]) -> dict[str, Floats]:
        return {f"{self.prefix}{name}": values for name, values in found.items()}


class Evaluator:
    """The images that the members of one cohort are evaluated on."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        splits: Sequence[Splits],
        dataset: Dataset,
        data: Path,
        device: torch.device,
        peers: Peers = ALONE,
        ask: Callable[[], None] = lambda: None,
    ) -> None:
        """`splits`: of each member; `ask` is called between batches. DataError or ValueError if sets of outliers cannot
        be had or do not fit."""
        self._method, self._config, self._device, self._peers = METHODS[configs[0].method], configs[0], device, peers
        self._ask = ask
        self._split, self._classes = splits[0].test, len(dataset.classes)
        asked = self._config.evaluation

        def part(prefix: str, splits: Sequence[Split]) -> _Part:
            first, masks = splits[0], [split.outlier.numpy() for split in splits if split.outlier is not None]
            others = {name: outliers(name, dataset, first, data) for name in asked.outlier_sets}
            return _Part(
                prefix,
                resident(first.test_images, device),
                first.test_labels.to(device),
                np.array(masks),
                {name: resident(images, device) for name, images in others.items()},
            )

        validation = [split.validation for split in splits if split.validation]
        self._parts = [part("", [split.test for split in splits])]
        self._parts += [part(VALIDATION, validation)] if validation else []
        self._bank = resident(self._split.labelled_images, device) if asked.knn or asked.probe_epochs else None

    def metrics(self, stacks: Sequence[Stack], members: Sequence[int], last: bool) -> dict[str, Floats]:
        """Metrics `[K]` of the members in the stacks, NaN where undefined; `last` adds those of the end of a training.

        `members`: the places of these K among the configs.
        """
        if self._config.data.normal_class is None:
            found = self._classified(stacks, last)
            judge = self._outside
        else:
            found, judge = {}, partial(self._anomalies, members=members)
        for part in self._parts:
            found |= part.named(judge(stacks, part))
        return found

    def _anomalies(self, stacks: Sequence[Stack], part: _Part, members: Sequence[int]) -> dict[str, Floats]:
        if not self._method.scores:
            return {}
        scores = self.scores(stacks, part.images)
        return anomaly.evaluate(scores, part.outlier_KN[list(members)], self._method.score_means)

    def _outside(self, stacks: Sequence[Stack], part: _Part) -> dict[str, Floats]:
        inside = self.scores(stacks, part.images) if part.outliers else {}
        found: dict[str, Floats] = {}
        for outside, images in part.outliers.items():
            values = ood.evaluate(inside, self.scores(stacks, images))
            found |= {f"{name}_{outside}": value for name, value in values.items()}
        return found

    def _classified(self, stacks: Sequence[Stack], last: bool) -> dict[str, Floats]:
        by_stack = [self._of_stack(stack, last) for stack in stacks]
        return {name: np.concatenate([found[name] for found in by_stack]) for name in by_stack[0]}

    def _of_stack(self, stack: Stack, last: bool) -> dict[str, Floats]:
        """Classifiers on each representation, and the posterior."""
        asked, method = self._config.evaluation, self._method
        probing = last and asked.probe_epochs > 0
        if not (asked.knn or probing or method.variance):
            return {}
        bank: dict[str, Tensor] = {}
        if self._bank is not None and (asked.knn or probing):
            bank = self._embedded(stack, self._bank, method.representations)
        found: dict[str, Floats] = {}
        for part in self._parts:
            test = self._embedded(stack, part.images, (*method.representations, method.variance))
            of_part: dict[str, Floats] = {}
            for name in bank:
                if asked.knn:
                    of_part |= self._neighbours(name, bank[name], test[name], part.labels)
                if probing:
                    of_part |= self._probes(name, bank[name], test[name], part.labels)
            found |= part.named(of_part | (posterior.statistics(test[method.variance]) if method.variance else {}))
        return found

    def _neighbours(self, name: str, bank_KND: Tensor, test_KND: Tensor, truth: Tensor) -> dict[str, Floats]:
        asked = self._config.evaluation
        labels = self._bank_labels()
        found = []
        for bank_ND, test_ND in zip(bank_KND, test_KND, strict=True):
            self._ask()
            found.append(
                knn.accuracies(bank_ND, labels, test_ND, truth, self._classes, asked.knn, asked.knn_temperature)
            )
        majority, weighted = np.array(found, dtype=np.float64).T
        return {f"knn_{name}": majority, f"knn_weighted_{name}": weighted}

    def _probes(self, name: str, bank_KND: Tensor, test_KND: Tensor, truth: Tensor) -> dict[str, Floats]:
        asked, tops = self._config.evaluation, _tops(self._classes)
        labels = self._bank_labels()
        size = min(asked.probe_batch_size, len(labels))
        found = probes.accuracies(
            bank_KND,
            labels,
            test_KND,
            truth,
            self._classes,
            epochs=asked.probe_epochs,
            lr=asked.probe_lr * size / 256,
            batch_size=size,
            generator_of_epoch=self._order_of_probes,
            standardize=asked.probe_standardize,
            top=[top for top, _ in tops],
        )
        return {f"probe{suffix}_{name}": found[top] for top, suffix in tops}

    def _order_of_probes(self, epoch: int) -> torch.Generator:
        """What the probes' order is drawn from in an epoch, which it begins."""
        self._ask()
        return generator("probe", self._config.data.dataset, epoch)

    def _bank_labels(self) -> Tensor:
        return self._split.labelled_labels.to(self._device)

    def _embedded(self, stack: Stack, images: Images, names: Collection[str | None]) -> dict[str, Tensor]:
        """These vectors `[K, N, D]` by name; each process makes those of its part, and gets all."""
        peers = self._peers if len(images) >= self._peers.size else ALONE  # of too few images each makes all
        made: dict[str, list[Tensor]] = {}
        for batch, _ in self._batches(images, range(len(images))[peers.part(len(images))]):
            for name, vector_KBD in stack.embed(batch).items():
                if name in names:
                    made.setdefault(name, []).append(vector_KBD)
        return {name: peers.gather(torch.cat(parts, dim=1), len(images)) for name, parts in made.items()}

    def scores(self, stacks: Sequence[Stack], images: Images | None = None) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` by name, of the test images or others."""
        images = self._parts[0].images if images is None else images
        batches = []
        for batch, start in self._batches(images, range(len(images))):
            noise = torch.randn(*stacks[0].score_noise_shape(len(batch)), generator=generator("scores", start))
            by_stack = [stack.score(batch, noise.to(self._device)) for stack in stacks]
            batches.append({name: torch.cat([scores[name] for scores in by_stack]) for name in by_stack[0]})
        return {
            name: torch.cat([scores[name] for scores in batches], dim=1).double().cpu().numpy() for name in batches[0]
        }

    def _batches(self, images: Images, of: range) -> Iterator[tuple[Tensor, int]]:
        """Normalised images `[B, C, H, W]` on the device, and where they begin."""
        parts = [slice(start, min(start + BATCH, of.stop)) for start in range(of.start, of.stop, BATCH)]
        for part, pixels in zip(parts, in_parts(images, parts), strict=True):
            scaled_BCHW = scale_pixels(pixels.to(self._device), self._split.levels)
            yield normalise(scaled_BCHW, self._split.mean, self._split.std), part.start
            self._ask()


def _prefixed(prefixes: Sequence[str], names: Sequence[str]) -> list[str]:
    return [f"{prefix}{name}" for prefix in prefixes for name in names]


def _tops(classes: int) -> list[tuple[int, str]]:
    """How many guesses a probe has, and what its metric's name says of it."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]
