"""Metrics of a cohort's members on test images, without augmentation and in evaluation mode.

Members trained on one class are evaluated by their anomaly scores. Members trained on all classes are evaluated by
classifiers on their representations, by the variance of their posterior, and by how well they tell outliers from the
test images. Where validation images are held out, each metric is also computed on these and named `val_METRIC`.

Shapes: K members, N images.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from trainables.contract import ImageMethod
from trainables.evaluation.anomaly import Floats
from trainables.learners.members import StackedMembers
from trainables.tasks.images.evaluators.catalog import asked_representation_evaluators, asked_score_evaluators
from trainables.tasks.images.evaluators.evaluation_images import EvaluationImages
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations
from trainables.tasks.task import Evaluator


class CohortEvaluator(Evaluator):
    """Runs the evaluators that the trials of one cohort ask for."""

    def __init__(self, images: EvaluationImages, method: type[ImageMethod]) -> None:
        config, classes, self._images = images.config, images.classes, images
        at_end = [cls(images) for cls in asked_representation_evaluators(config, method, classes, True)]
        always = asked_representation_evaluators(config, method, classes, False)
        self._at_end, self._always = at_end, [evaluator for evaluator in at_end if type(evaluator) in always]
        self._pictures: list[dict[str, bytes]] = []
        self._scoring = [cls(images) for cls in asked_score_evaluators(config, method, classes)]
        if any(evaluator.needs_bank for evaluator in at_end):
            images.load_bank()

    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        asked = self._at_end if last else self._always
        self._pictures = []
        seeds = iter([self._images.seeds[index] for index in members])
        by_stack = [self._of_representations(stack, [*itertools.islice(seeds, stack.size)], asked) for stack in stacks]
        metrics = {name: np.concatenate([values[name] for values in by_stack]) for name in by_stack[0]}
        for tested in self._images.sets:
            for evaluator in self._scoring:
                metrics |= tested.named(evaluator.metrics(stacks, members, tested))
        return metrics

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        return self._pictures

    def _of_representations(
        self, stack: StackedMembers, seeds: Sequence[int], evaluators: Sequence[RepresentationEvaluator]
    ) -> dict[str, Floats]:
        """Metrics of the members of one stack."""
        vectors, metrics = Representations(stack, self._images, seeds), dict[str, Floats]()
        for tested in self._images.sets:
            for evaluator in evaluators:
                metrics |= tested.named(evaluator.metrics(vectors, tested))
        by_evaluator = [evaluator.pictures(vectors, self._images.sets[0]) for evaluator in evaluators]
        self._pictures += map(_merged, zip(*filter(None, by_evaluator), strict=True))
        return metrics


def _merged(pictures: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """One member's pictures of several evaluators."""
    return {name: content for part in pictures for name, content in part.items()}
