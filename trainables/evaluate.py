"""What a cohort's members are worth: their metrics on test images, without augmentation and in evaluation mode.

Members trained on one class are judged by their anomaly scores; those trained on all by what classifiers make of their
representations, by the variance of their posterior, and by how they tell other images from the test images.
Shapes: K members, N images, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config import TrialConfig
from trainables.data.datasets import Dataset, Images
from trainables.data.outliers import outliers
from trainables.data.splits import Split
from trainables.data.views import normalise, scale_pixels
from trainables.evaluation import anomaly, knn, ood, posterior, probes
from trainables.evaluation.anomaly import Floats
from trainables.fuse import Stack
from trainables.peers import ALONE, Peers
from trainables.streams import generator

BATCH = 256
"""Images evaluated at a time; fixed, because the noise of sampled scores is drawn for each such batch."""
MAY_BE_UNDEFINED = frozenset({"var_cv"})
"""Metrics that a sound member may lack; any other that is not a number says that the member has diverged."""
TOP = 5
"""A probe's guesses beside the first, where there are more classes."""


def metric_names(config: TrialConfig, classes: int, last: bool = True) -> tuple[str, ...]:
    """Every metric that the reports of such a trial, on data of so many classes, can hold; those before the last one
    where not `last`."""
    method, asked = METHODS[config.method], config.evaluation
    names = ["loss", *(f"loss_{part}" for part in method.loss_parts)]
    if config.data.normal_class is not None:
        return (*names, *anomaly.metric_names(method))
    for vector in method.representations:
        names += [f"knn_{vector}", f"knn_weighted_{vector}"] if asked.knn else []
        names += [f"probe{suffix}_{vector}" for _, suffix in _tops(classes)] if last and asked.probe_epochs else []
    names += posterior.METRICS if method.variance else []
    return (*names, *(f"{name}_{outside}" for outside in asked.outlier_sets for name in ood.metric_names(method)))


class Evaluator:
    """The images that the members of one cohort are evaluated on."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        splits: Sequence[Split],
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
        self._split, self._classes = splits[0], len(dataset.classes)
        self._test = _resident(self._split.test_images, device)
        asked = self._config.evaluation
        self._outliers = {
            name: _resident(outliers(name, dataset, self._split, data), device) for name in asked.outlier_sets
        }
        self._bank = _resident(self._split.labelled_images, device) if asked.knn or asked.probe_epochs else None
        self._is_outlier_KN = np.array([split.outlier.numpy() for split in splits if split.outlier is not None])

    def metrics(self, stacks: Sequence[Stack], members: Sequence[int], last: bool) -> dict[str, Floats]:
        """Metrics `[K]` of the members in the stacks, NaN where undefined; `last` adds those of the end of a training.

        `members`: the places of these K among the configs.
        """
        if self._config.data.normal_class is not None:
            return self._anomalies(stacks, members)
        return self._classified(stacks, last) | self._outside(stacks)

    def _anomalies(self, stacks: Sequence[Stack], members: Sequence[int]) -> dict[str, Floats]:
        if not self._method.scores:
            return {}
        return anomaly.evaluate(self.scores(stacks), self._is_outlier_KN[list(members)], self._method.score_means)

    def _outside(self, stacks: Sequence[Stack]) -> dict[str, Floats]:
        inside = self.scores(stacks) if self._outliers else {}
        found: dict[str, Floats] = {}
        for outside, images in self._outliers.items():
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
        test = self._embedded(stack, self._test, (*method.representations, method.variance))
        bank: dict[str, Tensor] = {}
        if self._bank is not None and (asked.knn or probing):
            bank = self._embedded(stack, self._bank, method.representations)
        found: dict[str, Floats] = {}
        for name in bank:
            if asked.knn:
                found |= self._neighbours(name, bank[name], test[name])
            if probing:
                found |= self._probes(name, bank[name], test[name])
        return found | (posterior.statistics(test[method.variance]) if method.variance else {})

    def _neighbours(self, name: str, bank_KND: Tensor, test_KND: Tensor) -> dict[str, Floats]:
        asked = self._config.evaluation
        labels, truth = self._labels()
        found = []
        for bank_ND, test_ND in zip(bank_KND, test_KND, strict=True):
            self._ask()
            found.append(
                knn.accuracies(bank_ND, labels, test_ND, truth, self._classes, asked.knn, asked.knn_temperature)
            )
        majority, weighted = np.array(found, dtype=np.float64).T
        return {f"knn_{name}": majority, f"knn_weighted_{name}": weighted}

    def _probes(self, name: str, bank_KND: Tensor, test_KND: Tensor) -> dict[str, Floats]:
        asked, tops = self._config.evaluation, _tops(self._classes)
        labels, truth = self._labels()
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

    def _labels(self) -> tuple[Tensor, Tensor]:
        return self._split.labelled_labels.to(self._device), self._split.test_labels.to(self._device)

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
        images = self._test if images is None else images
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
        for part, pixels in zip(parts, _ahead(images, parts), strict=True):
            scaled_BCHW = scale_pixels(pixels.to(self._device), self._split.levels)
            yield normalise(scaled_BCHW, self._split.mean, self._split.std), part.start
            self._ask()


def _ahead(images: Images, parts: Sequence[slice]) -> Iterator[Tensor]:
    """The images of each part; files of the next one are decoded while the one before is worked on."""
    if isinstance(images, Tensor):
        yield from (images[part] for part in parts)
        return
    with ThreadPoolExecutor(1) as reader:
        before: Future[Tensor] | None = None
        for part in parts:
            here = reader.submit(images.__getitem__, part)
            if before:
                yield before.result()
            before = here
        if before:
            yield before.result()


def _tops(classes: int) -> list[tuple[int, str]]:
    """How many guesses a probe has, and what its metric's name says of it."""
    return [(1, ""), (TOP, f"_top{TOP}")] if classes > TOP else [(1, "")]


def _resident(images: Images, device: torch.device) -> Images:
    """Tensors on the device; files stay where they are."""
    return images.to(device) if isinstance(images, Tensor) else images
