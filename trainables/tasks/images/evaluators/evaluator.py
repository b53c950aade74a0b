"""An evaluator of images: which metrics it reports, when, and what it needs of a method.

Shapes: K members, N images, D dimensions.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from trainables.contract import Capability, ImageMethod
from trainables.evaluation.anomaly import Floats
from trainables.learners.members import StackedMembers
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import EvaluationImages, EvaluationSet


class Representations:
    """The vectors of one stack's members, computed once for all evaluators."""

    def __init__(self, stack: StackedMembers, images: EvaluationImages, seeds: Sequence[int]) -> None:
        """`seeds`: of the stack's members. What an evaluator fits with a random start starts by these."""
        assert isinstance(stack.method, ImageMethod)
        self.seeds = seeds
        self.stack, self.method, self._images = stack, stack.method, images
        self._bank: dict[str, Tensor] = {}
        self._test: dict[str, dict[str, Tensor]] = {}  # by prefix

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


class ImageEvaluator(ABC):
    """Computes some of the metrics of a cohort's members."""

    needs_bank: ClassVar[bool] = True
    """Whether it reads the labelled training images."""

    def __init__(self, images: EvaluationImages) -> None:
        self.images, self.config = images, images.config

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        """Each capability, besides `embed`, that it needs of a method, with the key by which the trial asks for it."""
        return {}

    @classmethod
    @abstractmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        """Names of the metrics, without prefix, that it reports for a trial on data of `classes` classes; with
        `last=False` of those before the last report. None if the trial does not ask for it."""


class RepresentationEvaluator(ImageEvaluator):
    """Computes metrics of one stack's representations."""

    @abstractmethod
    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        """Metrics `[K]` of the evaluated images by name, without prefix."""

    def pictures(self, vectors: Representations, tested: EvaluationSet) -> Sequence[Mapping[str, bytes]]:
        """File name -> content, of each member, at the end of training; empty if the trial asks for no pictures."""
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
