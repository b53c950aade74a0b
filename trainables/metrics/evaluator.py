"""The base classes of evaluators, and the images and representations that they share.

Shapes: K members, N images, B images of a batch, D dimensions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.contract import Capability, ImageMethod
from trainables.data.datasets.dataset import UNLABELLED, Dataset
from trainables.data.image_files import Images, prefetched, to_device
from trainables.data.outliers import load_outliers
from trainables.data.own_views import views_of
from trainables.data.splits import Split, TrialSplits
from trainables.data.views import prepare, prepare_pixels, scale_pixels
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers, draw_noise, seeded_generator
from trainables.learners.members import StackedMembers
from trainables.metrics.meanings import VALIDATION

Floats = NDArray[np.float64]
"""An array of float64."""
PROJECTION = "projection"
"""Name, within metric names, of the vectors that the loss compares."""
BATCH = 256
"""Images evaluated at a time. Fixed, because the noise of sampled scores is drawn per batch."""


class KeptResults(NamedTuple):
    """What a member's file contains besides weights, so that the model can be used as it was evaluated."""

    inputs: Mapping[str, Any] = MappingProxyType({})
    """Added to `LoadedTask.inputs`."""
    arrays: Mapping[str, Tensor] = MappingProxyType({})
    """Name -> array, on the CPU."""


class Evaluator(ABC):
    """Evaluates the members of one cohort."""

    @abstractmethod
    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        """Metrics `[K]` of the members in the stacks, NaN where undefined; `last` adds metrics that are reported only
        at the end of training. `members`: indices of these K members among the cohort's configs."""

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        """File name -> content for each member of the last evaluation; empty without pictures."""
        return ()

    @property
    def kept(self) -> Sequence[KeptResults]:
        """What is kept of each member after an evaluation with `last`; empty if nothing is kept."""
        return ()

    @property
    def keeps(self) -> bool:
        """Whether anything besides weights can be kept of members."""
        return False


@dataclass(frozen=True)
class EvaluationSet:
    """The images on which members are evaluated: the test images or the validation images."""

    prefix: str
    """Prefix of metric names on these images: empty, or `val_`."""
    images: Images
    labels: Tensor
    """int64 `[N]`."""
    outlier_KN: NDArray[np.bool_]
    """For members trained on one class: whether each image is of another class."""
    outliers: Mapping[str, Images]
    """Name of a set of outliers -> its images."""
    attributes: Mapping[str, Tensor]
    """Name of an attribute -> its labels, int64 `[N]`."""

    def named(self, metrics: Mapping[str, Floats]) -> dict[str, Floats]:
        """The metrics with the prefix added to their names."""
        return {f"{self.prefix}{name}": values for name, values in metrics.items()}


@dataclass(frozen=True)
class ProbeData:
    """Features and labels of all members on which classifiers are fitted and tested."""

    bank_KND: Tensor
    bank_labels_N: Tensor
    test_KMD: Tensor
    test_labels_M: Tensor
    classes: int
    """C, at least 1. Labels are in 0..C-1, or negative for images without a label."""

    @property
    def finite_K(self) -> list[bool]:
        """Whether all features of each member are finite."""
        return [all_finite(bank) and all_finite(test) for bank, test in zip(self.bank_KND, self.test_KMD, strict=True)]

    def where_finite(self, shares_K: Floats) -> Floats:
        """The shares, with NaN for members that have a feature that is not finite."""
        return np.where(self.finite_K, shares_K, np.nan)


class EvaluationImages:
    """The image sets of one cohort, and its labelled training images (the bank)."""

    def __init__(
        self,
        configs: Sequence[ImageTrial],
        splits: Sequence[TrialSplits],
        dataset: Dataset,
        data: Path,
        device: torch.device,
        peers: Peers,
        raise_if_stopped: Callable[[], None],
    ) -> None:
        """`splits`: one for each config. `raise_if_stopped` is called between batches. Raises DataError or ValueError
        if an outlier set cannot be loaded or does not suit the data set."""
        self.config, self.dataset, self.device = configs[0], dataset, device
        self.seeds = [config.training.seed for config in configs]
        self.classes = len(dataset.classes)
        self._choices = [_choice_of_images(config) for config in configs]
        self._trained = {key: split.test.train_images for key, split in zip(self._choices, splits, strict=True)}
        self.raise_if_stopped = raise_if_stopped
        self._peers = peers
        self.split = splits[0].test

        def evaluation_set(prefix: str, splits: Sequence[Split]) -> EvaluationSet:
            first, masks = splits[0], [split.outlier.numpy() for split in splits if split.outlier is not None]
            names = self.config.evaluation.outlier_sets
            outliers = {name: load_outliers(name, dataset, first, data) for name in names}
            return EvaluationSet(
                prefix,
                to_device(first.test_images, device),
                first.test_labels.to(device),
                np.array(masks),
                {name: to_device(images, device) for name, images in outliers.items()},
                {name: attribute.test_labels.to(device) for name, attribute in first.attributes.items()},
            )

        self.sets = [evaluation_set("", [split.test for split in splits])]
        if validation := [split.validation for split in splits if split.validation]:
            self.sets.append(evaluation_set(VALIDATION, validation))

    def load_bank(self) -> None:
        """Move the labelled training images to the device. Evaluators that need them call this once."""
        self.bank_images = to_device(self.split.labelled_images, self.device)
        self.bank_labels = self.split.labelled_labels.to(self.device)
        labelled_N = self.split.train_labels != UNLABELLED
        self.bank_attributes = {
            name: attribute.train_labels[labelled_N].to(self.device)
            for name, attribute in self.split.attributes.items()
        }

    def pixels(self, images: Images) -> Iterator[tuple[Tensor, slice]]:
        """Yield batches of these images `[B, C, H, W]` in [0, 1], the target of decoders, each with its slice."""
        for pixels_BCHW, batch in self._scaled(images, range(len(images))):
            yield prepare_pixels(pixels_BCHW, self.config.pixel_views, self.split.mean, self.split.std), batch

    def prepared(self, images: Images) -> Iterator[Tensor]:
        """Yield batches of these images `[B, C, H, W]` as encoders take them."""
        return (batch_BCHW for batch_BCHW, _ in self._batches(images, range(len(images))))

    def views(self, images: Images, index: int) -> Iterator[Tensor]:
        """Yield batches of augmented views of these images as encoders take them. Each index gives different views,
        which are the same for all members and reports."""
        pixel_views = self.config.pixel_views
        augmentation: Any = views_of(self.config.views, pixel_views)
        for pixels_BCHW, batch in self._scaled(images, range(len(images))):
            generator = seeded_generator("evaluated views", self.config.data.dataset, index, batch.start)
            parameters = augmentation.draw(generator, pixels_BCHW.shape, pixel_views)
            view_BCHW = augmentation.apply(pixels_BCHW, parameters)
            yield prepare(view_BCHW, pixel_views, self.split.mean, self.split.std)

    def embedded(self, stack: StackedMembers, images: Images, names: Collection[str | None]) -> dict[str, Tensor]:
        """The vectors `[K, N, D]` with these names. Each process computes the vectors of its part of the images and
        receives the rest."""
        peers = self._peers_for(images)
        vectors: dict[str, list[Tensor]] = {}
        for batch, _ in self._batches(images, range(len(images))[peers.slice_of(len(images))]):
            for name, vector_KBD in stack.evaluate("embed", batch).items():
                if name in names:
                    vectors.setdefault(name, []).append(vector_KBD)
        return {name: peers.gather(torch.cat(batches, dim=1), len(images)) for name, batches in vectors.items()}

    def classified(self, stack: StackedMembers, images: Images) -> Tensor:
        """Logits `[K, N, L]` of the classes, divided among the processes as in `embedded`."""
        peers = self._peers_for(images)
        batches = self._batches(images, range(len(images))[peers.slice_of(len(images))])
        logits = [stack.evaluate("classify", batch_BCHW) for batch_BCHW, _ in batches]
        return peers.gather(torch.cat(logits, dim=1), len(images))

    def _peers_for(self, images: Images) -> Peers:
        """The processes that share these images. With fewer images than processes, each process computes all images."""
        return self._peers if len(images) >= self._peers.size else SINGLE_PROCESS

    def projected(self, stack: StackedMembers, batches: Iterable[Tensor]) -> Tensor:
        """The vectors `[K, N, P]` that the loss compares, for prepared batches. Each process computes all of them."""
        return torch.cat([stack.evaluate("project", batch_BCHW) for batch_BCHW in batches], dim=1)

    def training_vectors(
        self, stack: StackedMembers, members: Sequence[int], projected: bool
    ) -> dict[str, list[Tensor]]:
        """The representations (and the projection if `projected`) of each member's training images, by name: `[N, D]`
        per member. `members`: their indices among the configs. Each process computes all of them."""
        method = stack.method
        assert isinstance(method, ImageMethod)
        choices = [self._choices[member] for member in members]
        images = {choice: self._trained[choice] for choice in choices}
        lengths = [len(images[choice]) for choice in choices]
        parts: dict[str, list[Tensor]] = {}
        for indices_B in torch.arange(max(lengths)).split(BATCH):
            batches = {
                choice: next(self.prepared(own[indices_B % len(own)]))  # repeats images if there are fewer
                for choice, own in images.items()
            }
            if len(batches) == 1:
                inputs, evaluate = batches[choices[0]], stack.evaluate
            else:
                inputs, evaluate = torch.stack([batches[choice] for choice in choices]), stack.evaluate_each
            vectors = evaluate("embed", inputs)
            vectors = {name: vectors[name] for name in method.representations}
            if projected:
                vectors[PROJECTION] = evaluate("project", inputs)
            for name, vectors_KBD in vectors.items():
                parts.setdefault(name, []).append(vectors_KBD)
            self.raise_if_stopped()
        joined = {name: torch.cat(part, dim=1) for name, part in parts.items()}
        return {
            name: [vectors_ND[:length] for vectors_ND, length in zip(vectors_KND, lengths, strict=True)]
            for name, vectors_KND in joined.items()
        }

    def scores(self, stacks: Sequence[StackedMembers], images: Images) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` of the images, by name."""
        batches, method = [], stacks[0].method
        assert isinstance(method, ImageMethod)
        for scaled_BCHW, part in self._scaled(images, range(len(images))):
            scaling = (self.config.pixel_views, self.split.mean, self.split.std)
            noise = draw_noise(method.score_noise(len(scaled_BCHW)), "scores", part.start, device=self.device)
            pixels = [prepare_pixels(scaled_BCHW, *scaling)] if method.scores_pixels else []
            by_stack = [stack.evaluate("score", prepare(scaled_BCHW, *scaling), noise, *pixels) for stack in stacks]
            batches.append({name: torch.cat([scores[name] for scores in by_stack]) for name in by_stack[0]})
        return {
            name: torch.cat([scores[name] for scores in batches], dim=1).double().cpu().numpy() for name in batches[0]
        }

    def _batches(self, images: Images, indices: range) -> Iterator[tuple[Tensor, int]]:
        """Yield batches of prepared images `[B, C, H, W]` on the device, each with the index of its first image."""
        for scaled_BCHW, batch in self._scaled(images, indices):
            yield prepare(scaled_BCHW, self.config.pixel_views, self.split.mean, self.split.std), batch.start

    def _scaled(self, images: Images, indices: range) -> Iterator[tuple[Tensor, slice]]:
        """Yield batches of images `[B, C, H, W]` in [0, 1] on the device, each with its slice."""
        slices = [slice(start, min(start + BATCH, indices.stop)) for start in range(indices.start, indices.stop, BATCH)]
        for batch, pixels in zip(slices, prefetched(images, slices), strict=True):
            yield scale_pixels(pixels.to(self.device), self.split.levels), batch
            self.raise_if_stopped()


def _choice_of_images(config: ImageTrial) -> tuple[object, ...]:
    """The values that determine the training images of a trial."""
    data = config.data
    return (data, config.training.seed if data.normal_images or data.contamination else None)


class Representations:
    """The vectors of one stack's members, cached for all evaluators."""

    def __init__(self, stack: StackedMembers, images: EvaluationImages, members: Sequence[int]) -> None:
        """`members`: indices of the stack's members among the cohort's configs."""
        assert isinstance(stack.method, ImageMethod)
        self.members = members
        self.seeds = [images.seeds[member] for member in members]
        """Seeds for evaluators whose fits start at random."""
        self.stack, self.method, self._images = stack, stack.method, images
        self._bank: dict[str, Tensor] = {}
        self._test: dict[str, dict[str, Tensor]] = {}  # by prefix
        self._projections: dict[str, tuple[Tensor, Tensor]] = {}  # by prefix

    def bank(self) -> dict[str, Tensor]:
        """Each representation `[K, N, D]` of the bank, by name."""
        if not self._bank:
            self._bank = self._images.embedded(self.stack, self._images.bank_images, self.method.representations)
        return self._bank

    def test(self, tested: EvaluationSet) -> dict[str, Tensor]:
        """Each representation `[K, N, D]` of the evaluated images, and the posterior's variance, by name."""
        if tested.prefix not in self._test:
            names = (*self.method.representations, self.method.variance)
            self._test[tested.prefix] = self._images.embedded(self.stack, tested.images, names)
        return self._test[tested.prefix]

    def probed(self, tested: EvaluationSet) -> dict[str, ProbeData]:
        """The data on which class probes are fitted and tested, by name of the vectors: the representations and, if
        requested, the `projection`."""
        images, test = self._images, self.test(tested)
        vectors = {name: (bank_KND, test[name]) for name, bank_KND in self.bank().items()}
        if images.config.embeddings.compare_projection:
            if tested.prefix not in self._projections:
                first, second = (
                    images.projected(self.stack, images.prepared(part)) for part in (images.bank_images, tested.images)
                )
                self._projections[tested.prefix] = first, second
            vectors[PROJECTION] = self._projections[tested.prefix]
        return {
            name: ProbeData(bank_KND, images.bank_labels, test_KMD, tested.labels, images.classes)
            for name, (bank_KND, test_KMD) in vectors.items()
        }


class ImageEvaluator(ABC):
    """Computes some of the metrics of a cohort's members."""

    needs_bank: ClassVar[bool] = True
    """Whether the evaluator reads the labelled training images."""
    one_class: ClassVar[bool] = False
    """Whether the evaluator is for one-class trials; otherwise it is for trials on all classes."""

    def __init__(self, images: EvaluationImages) -> None:
        self.images, self.config = images, images.config
        self.scored: dict[str, dict[str, Floats]] = {}
        """For one-class trials: prefix of an image set -> name of an anomaly score -> its values `[K, N]` in the last
        evaluation."""
        self.kept: list[dict[str, Tensor]] = []
        """Arrays by name, on the CPU, that each member's model needs to score images; may be empty."""

    def forget(self) -> None:
        """Forget the last evaluation."""
        self.scored, self.kept = {}, []

    def keep_scores(self, tested: EvaluationSet, scores: Mapping[str, Floats]) -> None:
        """Add these anomaly scores of further members to `scored`."""
        earlier = self.scored.get(tested.prefix, {})
        self.scored[tested.prefix] = {
            name: np.concatenate([earlier[name], values_KN]) if name in earlier else values_KN
            for name, values_KN in scores.items()
        }

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        """Each capability, besides `embed`, that the evaluator needs from a method -> the key that requests it."""
        return {}

    @classmethod
    @abstractmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        """Names, without prefix, of the metrics for a trial on data with `classes` classes; `last=False` leaves out
        metrics that only the last report contains. Empty if the trial does not request the evaluator."""


class RepresentationEvaluator(ImageEvaluator):
    """Computes metrics of one stack's representations."""

    @abstractmethod
    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        """Metrics `[K]` of the evaluated images by name, without prefix."""

    def pictures(self, vectors: Representations, tested: EvaluationSet) -> Sequence[Mapping[str, bytes]]:
        """File name -> content for each member at the end of training; empty if the trial requests no pictures."""
        return ()


class ScoreEvaluator(ImageEvaluator):
    """Computes metrics of anomaly scores."""

    needs_bank = False

    @abstractmethod
    def metrics(
        self, stacks: Sequence[StackedMembers], members: Sequence[int], tested: EvaluationSet
    ) -> dict[str, Floats]:
        """Metrics `[K]` of the evaluated images by name, without prefix; `members` are the indices of these K members
        among the configs."""


def all_finite(x: Tensor) -> bool:
    """Whether all values are finite, without copying `x`."""
    return bool(torch.stack(torch.aminmax(x)).isfinite().all())
