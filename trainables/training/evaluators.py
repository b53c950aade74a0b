"""Metrics of a cohort's members on test images, without augmentation and in evaluation mode.

Members trained on one class are evaluated by their anomaly scores. Members trained on all classes are evaluated by
classifiers on their representations, by the variance of their posterior, and by how well they tell outliers from the
test images. Where validation images are held out, each metric is also computed on these and named `val_METRIC`.

Shapes: K members, N images, D dimensions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.catalog import METHODS
from trainables.config.trial import TrialConfig
from trainables.data.augmentation.views import normalise, scale_pixels
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files.decoding import Images
from trainables.data.image_files.prefetch import prefetched, to_device
from trainables.data.outliers import load_outliers
from trainables.data.splits import Split
from trainables.evaluation import anomaly, knn, ood, posterior, probes
from trainables.evaluation.anomaly import Floats
from trainables.evaluation.metrics import VALIDATION
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.stack import Stack
from trainables.learners.streams import TrialSplits, seeded_generator
from trainables.training.metric_names import probe_top_k

BATCH = 256
"""Images evaluated at a time. It is fixed because the noise of sampled scores is drawn per batch."""


@dataclass(frozen=True)
class _EvaluationSet:
    """Images that members are evaluated on: either the test images or the validation images."""

    prefix: str
    """Prefix of the names of its metrics: empty, or `val_`."""
    images: Images
    labels: Tensor
    """int64 `[N]`."""
    outlier_KN: NDArray[np.bool_]
    """For members trained on one class: whether an image is of another class."""
    outliers: Mapping[str, Images]
    """Name of a set of outliers -> its images."""

    def named(self, metrics: Mapping[str, Floats]) -> dict[str, Floats]:
        """The metrics with the prefix before their names."""
        return {f"{self.prefix}{name}": values for name, values in metrics.items()}


class Evaluator:
    """Evaluates the members of one cohort; holds the images for that."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        splits: Sequence[TrialSplits],
        dataset: Dataset,
        data: Path,
        device: torch.device,
        peers: Peers = SINGLE_PROCESS,
        raise_if_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """`splits`: one for each config. `raise_if_stopped` is called between batches. Raises DataError or ValueError
        if a set of outliers cannot be loaded or does not suit the data set."""
        self._method, self._config, self._device, self._peers = METHODS[configs[0].method], configs[0], device, peers
        self._raise_if_stopped = raise_if_stopped
        self._split, self._classes = splits[0].test, len(dataset.classes)
        evaluation = self._config.evaluation

        def evaluation_set(prefix: str, splits: Sequence[Split]) -> _EvaluationSet:
            first, masks = splits[0], [split.outlier.numpy() for split in splits if split.outlier is not None]
            outliers = {name: load_outliers(name, dataset, first, data) for name in evaluation.outlier_sets}
            return _EvaluationSet(
                prefix,
                to_device(first.test_images, device),
                first.test_labels.to(device),
                np.array(masks),
                {name: to_device(images, device) for name, images in outliers.items()},
            )

        self._sets = [evaluation_set("", [split.test for split in splits])]
        if validation := [split.validation for split in splits if split.validation]:
            self._sets.append(evaluation_set(VALIDATION, validation))
        self._bank: Images | None = None
        if evaluation.knn or evaluation.probe_epochs:
            self._bank = to_device(self._split.labelled_images, device)
            self._bank_labels = self._split.labelled_labels.to(device)

    def metrics(self, stacks: Sequence[Stack], members: Sequence[int], last: bool) -> dict[str, Floats]:
        """Metrics `[K]` of the members in the stacks, NaN where undefined; `last` adds those reported at the end of
        training only. `members`: indices of these K members among the configs."""
        one_class = self._config.data.normal_class is not None
        metrics = {} if one_class else self._classifier_metrics(stacks, last)
        for images in self._sets:
            values = self._anomaly_metrics(stacks, images, members) if one_class else self._ood_metrics(stacks, images)
            metrics |= images.named(values)
        return metrics

    def _anomaly_metrics(
        self, stacks: Sequence[Stack], tested: _EvaluationSet, members: Sequence[int]
    ) -> dict[str, Floats]:
        """How well members trained on one class tell it from the others."""
        if not self._method.scores:
            return {}
        scores = self.scores(stacks, tested.images)
        return anomaly.evaluate(scores, tested.outlier_KN[list(members)], self._method.score_means)

    def _ood_metrics(self, stacks: Sequence[Stack], tested: _EvaluationSet) -> dict[str, Floats]:
        """How well members trained on all classes tell each set of outliers from the images."""
        inlier_scores = self.scores(stacks, tested.images) if tested.outliers else {}
        metrics: dict[str, Floats] = {}
        for outlier_set, images in tested.outliers.items():
            values = ood.evaluate(inlier_scores, self.scores(stacks, images))
            metrics |= {f"{name}_{outlier_set}": value for name, value in values.items()}
        return metrics

    def _classifier_metrics(self, stacks: Sequence[Stack], last: bool) -> dict[str, Floats]:
        by_stack = [self._classifier_metrics_of_stack(stack, last) for stack in stacks]
        return {name: np.concatenate([metrics[name] for metrics in by_stack]) for name in by_stack[0]}

    def _classifier_metrics_of_stack(self, stack: Stack, last: bool) -> dict[str, Floats]:
        """Accuracies of classifiers on each representation, and statistics of the posterior."""
        evaluation, method = self._config.evaluation, self._method
        probing = last and evaluation.probe_epochs > 0
        if not (evaluation.knn or probing or method.variance):
            return {}
        bank: dict[str, Tensor] = {}
        if self._bank is not None and (evaluation.knn or probing):
            bank = self._embedded(stack, self._bank, method.representations)
        metrics: dict[str, Floats] = {}
        for tested in self._sets:
            test = self._embedded(stack, tested.images, (*method.representations, method.variance))
            for name in bank:
                if evaluation.knn:
                    metrics |= tested.named(self._knn_accuracies(name, bank[name], test[name], tested.labels))
                if probing:
                    metrics |= tested.named(self._probe_accuracies(name, bank[name], test[name], tested.labels))
            if method.variance:
                metrics |= tested.named(posterior.statistics(test[method.variance]))
        return metrics

    def _knn_accuracies(self, name: str, bank_KND: Tensor, test_KMD: Tensor, labels_M: Tensor) -> dict[str, Floats]:
        k, temperature = self._config.evaluation.knn, self._config.evaluation.knn_temperature
        accuracies = []
        for bank_ND, test_MD in zip(bank_KND, test_KMD, strict=True):
            self._raise_if_stopped()
            accuracies.append(
                knn.accuracies(bank_ND, self._bank_labels, test_MD, labels_M, self._classes, k, temperature)
            )
        majority, weighted = np.array(accuracies, dtype=np.float64).T
        return {f"knn_{name}": majority, f"knn_weighted_{name}": weighted}

    def _probe_accuracies(self, name: str, bank_KND: Tensor, test_KMD: Tensor, labels_M: Tensor) -> dict[str, Floats]:
        evaluation, tops = self._config.evaluation, probe_top_k(self._classes)
        batch_size = min(evaluation.probe_batch_size, len(self._bank_labels))

        def generator_of_epoch(epoch: int) -> torch.Generator:
            self._raise_if_stopped()
            return seeded_generator("probe", self._config.data.dataset, epoch)

        accuracies = probes.accuracies(
            bank_KND,
            self._bank_labels,
            test_KMD,
            labels_M,
            self._classes,
            epochs=evaluation.probe_epochs,
            lr=evaluation.probe_lr * batch_size / 256,
            batch_size=batch_size,
            generator_of_epoch=generator_of_epoch,
            standardize=evaluation.probe_standardize,
            top=[top for top, _ in tops],
        )
        return {f"probe{suffix}_{name}": accuracies[top] for top, suffix in tops}

    def _embedded(self, stack: Stack, images: Images, names: Collection[str | None]) -> dict[str, Tensor]:
        """The vectors `[K, N, D]` with these names. Each process computes those of its part of the images and receives
        the rest."""
        peers = self._peers if len(images) >= self._peers.size else SINGLE_PROCESS  # of fewer images each computes all
        vectors: dict[str, list[Tensor]] = {}
        for batch, _ in self._batches(images, range(len(images))[peers.slice_of(len(images))]):
            for name, vector_KBD in stack.embed(batch).items():
                if name in names:
                    vectors.setdefault(name, []).append(vector_KBD)
        return {name: peers.gather(torch.cat(batches, dim=1), len(images)) for name, batches in vectors.items()}

    def scores(self, stacks: Sequence[Stack], images: Images | None = None) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` by name, of `images` or by default of the test images."""
        images = self._sets[0].images if images is None else images
        batches = []
        for batch, start in self._batches(images, range(len(images))):
            shape = stacks[0].method.score_noise_shape(len(batch))
            noise = torch.randn(*shape, generator=seeded_generator("scores", start))
            by_stack = [stack.score(batch, noise.to(self._device)) for stack in stacks]
            batches.append({name: torch.cat([scores[name] for scores in by_stack]) for name in by_stack[0]})
        return {
            name: torch.cat([scores[name] for scores in batches], dim=1).double().cpu().numpy() for name in batches[0]
        }

    def _batches(self, images: Images, indices: range) -> Iterator[tuple[Tensor, int]]:
        """Yield batches of normalised images `[B, C, H, W]` on the device, each with the index of its first image."""
        slices = [slice(start, min(start + BATCH, indices.stop)) for start in range(indices.start, indices.stop, BATCH)]
        for batch, pixels in zip(slices, prefetched(images, slices), strict=True):
            scaled_BCHW = scale_pixels(pixels.to(self._device), self._split.levels)
            yield normalise(scaled_BCHW, self._split.mean, self._split.std), batch.start
            self._raise_if_stopped()
