"""All evaluators of images, the metric names that a trial reports, and the evaluation of a cohort.

Shapes: K members, N images.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from trainables.contract import ImageMethod
from trainables.data.datasets.catalog import DATASETS
from trainables.image_trial import ImageTrial
from trainables.learners.members import StackedMembers
from trainables.metrics.classification import Classification
from trainables.metrics.clustering import MixtureClusters
from trainables.metrics.detection import detection_names
from trainables.metrics.embeddings import EmbeddingGeometry, PosteriorSpread
from trainables.metrics.evaluator import (
    EvaluationImages,
    Evaluator,
    Floats,
    ImageEvaluator,
    KeptResults,
    RepresentationEvaluator,
    Representations,
    ScoreEvaluator,
)
from trainables.metrics.generation import GenerationEvaluator
from trainables.metrics.latent_density import LatentDensityEvaluator
from trainables.metrics.meanings import BEST_ON_TEST, CHOICES, CHOSEN, MARGIN, VALIDATION
from trainables.metrics.neighbours import EuclideanNeighbours, Neighbours
from trainables.metrics.one_class_scores import OneClassScores
from trainables.metrics.probes import ContentProbes, FewLabelProbes, LinearProbes, StyleProbes
from trainables.metrics.sample_grids import anomaly_data
from trainables.metrics.scores import (
    HELD_OUT,
    AnomalyDetection,
    OutlierDetection,
    choice_metrics,
    detection_metrics,
    kept_results,
    margins,
)
from trainables.metrics.target_prediction import TargetPrediction

REPRESENTATION_EVALUATORS: Sequence[type[RepresentationEvaluator]] = (
    Neighbours,
    LinearProbes,
    PosteriorSpread,
    ContentProbes,
    EuclideanNeighbours,
    MixtureClusters,
    StyleProbes,
    GenerationEvaluator,
    FewLabelProbes,
    EmbeddingGeometry,
    LatentDensityEvaluator,
    TargetPrediction,
    OneClassScores,
    Classification,
)
SCORE_EVALUATORS: Sequence[type[ScoreEvaluator]] = (AnomalyDetection, OutlierDetection)
EVALUATORS: Sequence[type[ImageEvaluator]] = (*REPRESENTATION_EVALUATORS, *SCORE_EVALUATORS)


def asked_representation_evaluators(
    config: ImageTrial, method: type[ImageMethod], classes: int, last: bool
) -> list[type[RepresentationEvaluator]]:
    """The evaluators of representations that a trial requests for a report."""
    return [cls for cls in REPRESENTATION_EVALUATORS if _asked(cls, config, method, classes, last)]


def asked_score_evaluators(config: ImageTrial, method: type[ImageMethod], classes: int) -> list[type[ScoreEvaluator]]:
    """The evaluators of anomaly scores that a trial requests."""
    return [cls for cls in SCORE_EVALUATORS if _asked(cls, config, method, classes, True)]


def _asked(cls: type[ImageEvaluator], config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> bool:
    """Whether a trial requests an evaluator. One-class trials have their own evaluators."""
    of_one_class = config.data.normal_class is not None
    return cls.one_class == of_one_class and bool(cls.metric_names(config, method, classes, last))


def metric_names(config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> tuple[str, ...]:
    """Names of all metrics, except losses, in the reports of a trial on data with `classes` classes; `last=False`
    leaves out metrics that only the last report contains."""
    prefixes = ("", VALIDATION) if config.data.validation else ("",)
    groups: list[Sequence[type[ImageEvaluator]]] = [
        asked_representation_evaluators(config, method, classes, last),
        asked_score_evaluators(config, method, classes),
    ]
    if config.data.normal_class is not None:
        groups.reverse()  # a method's own scores come first, as in the choice of a score
    names = (
        f"{prefix}{name}"
        for group in groups
        for prefix in prefixes
        for evaluator in group
        for name in evaluator.metric_names(config, method, classes, last)
    )
    detection = detection_names(config.folder.detection_rates, classes) if last and has_detection(config) else ()
    if not (last and config.evaluation.one_class_scores):
        return (*names, *detection)
    choices, margin = (CHOICES, (MARGIN,)) if config.data.validation else ((BEST_ON_TEST,), ())
    return (*names, *(f"{prefix}{name}" for prefix in prefixes for name in choices), *margin, *detection)


def has_detection(config: ImageTrial) -> bool:
    """Whether a trial reports what it flags: one on one class of the user's own images, some of which are held out."""
    data = config.data
    return data.normal_class is not None and data.validation > 0 and data.dataset not in DATASETS


class CohortEvaluator(Evaluator):
    """Runs the evaluators that the trials of one cohort request."""

    def __init__(self, images: EvaluationImages, method: type[ImageMethod]) -> None:
        config, classes, self._images = images.config, images.classes, images
        at_end = [cls(images) for cls in asked_representation_evaluators(config, method, classes, True)]
        always = asked_representation_evaluators(config, method, classes, False)
        self._at_end, self._always = at_end, [evaluator for evaluator in at_end if type(evaluator) in always]
        self._pictures: list[dict[str, bytes]] = []
        self._scoring = [cls(images) for cls in asked_score_evaluators(config, method, classes)]
        self._kept: list[KeptResults] = []
        if any(evaluator.needs_bank for evaluator in at_end):
            images.load_bank()

    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        asked = self._at_end if last else self._always
        self._pictures = []
        for evaluator in (*self._at_end, *self._scoring):
            evaluator.forget()
        slots = iter(members)
        by_stack = [self._of_representations(stack, [*itertools.islice(slots, stack.size)], asked) for stack in stacks]
        represented = {name: np.concatenate([values[name] for values in by_stack]) for name in by_stack[0]}
        scored: dict[str, Floats] = {}
        for tested in self._images.sets:
            for evaluator in self._scoring:
                scored |= tested.named(evaluator.metrics(stacks, members, tested))
        one_class = self._images.config.data.normal_class is not None
        metrics = scored | represented if one_class else represented | scored
        if last and self._images.config.evaluation.one_class_scores:
            metrics |= choice_metrics(metrics, [*self._scored("")], bool(self._images.config.data.validation))
        self._kept = self._results(metrics, members) if last else []
        if CHOSEN in metrics:
            outlier_KN = self._images.sets[0].outlier_KN[list(members)]
            metrics[MARGIN] = margins(self._scored(""), outlier_KN, self._kept)
        if last and has_detection(self._images.config) and self._kept:
            metrics |= self._detection(members)
        if last and self._images.config.generation.sheets and self._scored(""):
            self._pictures = [self._anomalies(slot, members[slot]) for slot in range(len(members))]
        return metrics

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        return self._pictures

    @property
    def kept(self) -> Sequence[KeptResults]:
        return self._kept

    @property
    def keeps(self) -> bool:
        return self._images.config.data.normal_class is not None

    def _results(self, metrics: Mapping[str, Floats], members: Sequence[int]) -> list[KeptResults]:
        """What is kept of members trained on one class, if there are validation images or fitted scores."""
        scores, kept = self._scored(VALIDATION), [each.kept for each in self._at_end if each.kept]
        if not scores and not kept:
            return []
        outlier_KN = self._images.sets[-1].outlier_KN[list(members)]
        results = kept_results([*self._scored("")], scores, outlier_KN, metrics)
        for arrays in kept:
            results = [each._replace(arrays={**each.arrays, **own}) for each, own in zip(results, arrays, strict=True)]
        return results

    def _detection(self, members: Sequence[int]) -> dict[str, Floats]:
        """What each member flags of the test images, by its chosen score."""
        tested = self._images.sets[0]
        return detection_metrics(
            self._images.config.folder.detection_rates,
            self._scored(""),
            tested.labels.cpu().numpy(),
            tested.outlier_KN[list(members)],
            self._images.classes,
            self._kept,
        )

    def _scored(self, prefix: str) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` by name of the image set with this prefix, from the last evaluation."""
        evaluators = (*self._scoring, *self._at_end)
        return {name: values for each in evaluators for name, values in each.scored.get(prefix, {}).items()}

    def _anomalies(self, slot: int, member: int) -> dict[str, bytes]:
        """The sample grid of the member in this slot, by its chosen score."""
        (tested, *_), scores = self._images.sets, self._scored("")
        kept = self._kept[slot] if self._kept else KeptResults()
        score = kept.inputs.get("score") or next(iter(scores))
        held_out = kept.arrays.get(f"{HELD_OUT}{score}", torch.empty(0))
        data = anomaly_data(
            tested.images,
            scores[score][slot],
            tested.labels.cpu().numpy(),
            tested.outlier_KN[member],
            levels=self._images.split.levels,
            classes=self._images.dataset.classes,
            score=score,
            held_out_M=held_out.numpy(),
        )
        return {"anomalies.npz": data}

    def _of_representations(
        self, stack: StackedMembers, members: Sequence[int], evaluators: Sequence[RepresentationEvaluator]
    ) -> dict[str, Floats]:
        """Metrics of the members of one stack."""
        vectors, metrics = Representations(stack, self._images, members), dict[str, Floats]()
        for tested in self._images.sets:
            for evaluator in evaluators:
                metrics |= tested.named(evaluator.metrics(vectors, tested))
        by_evaluator = [evaluator.pictures(vectors, self._images.sets[0]) for evaluator in evaluators]
        self._pictures += map(_merged, zip(*filter(None, by_evaluator), strict=True))
        return metrics


def _merged(pictures: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """One member's pictures from several evaluators."""
    return {name: content for part in pictures for name, content in part.items()}
