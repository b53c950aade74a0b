"""All evaluators of images, and the names of the metrics that a trial asks them for."""

from collections.abc import Sequence

from trainables.contract import ImageMethod
from trainables.evaluation.metrics import VALIDATION
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.classifiers import LinearProbes, Neighbours, PosteriorSpread
from trainables.tasks.images.evaluators.content import (
    ContentProbes,
    EuclideanNeighbours,
    MixtureClusters,
    StyleProbes,
)
from trainables.tasks.images.evaluators.densities import LatentDensityEvaluator
from trainables.tasks.images.evaluators.embeddings import EmbeddingGeometry, FewLabelProbes
from trainables.tasks.images.evaluators.evaluator import ImageEvaluator, RepresentationEvaluator, ScoreEvaluator
from trainables.tasks.images.evaluators.generation import GenerationEvaluator
from trainables.tasks.images.evaluators.scores import AnomalyDetection, OutlierDetection

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
)
SCORE_EVALUATORS: Sequence[type[ScoreEvaluator]] = (AnomalyDetection, OutlierDetection)
EVALUATORS: Sequence[type[ImageEvaluator]] = (*REPRESENTATION_EVALUATORS, *SCORE_EVALUATORS)


def asked_representation_evaluators(
    config: ImageTrial, method: type[ImageMethod], classes: int, last: bool
) -> list[type[RepresentationEvaluator]]:
    """The evaluators of representations that a trial's report asks for. Trials on one class are evaluated by their
    anomaly scores only."""
    if config.data.normal_class is not None:
        return []
    return [cls for cls in REPRESENTATION_EVALUATORS if cls.metric_names(config, method, classes, last)]


def asked_score_evaluators(config: ImageTrial, method: type[ImageMethod], classes: int) -> list[type[ScoreEvaluator]]:
    """The evaluators of anomaly scores that a trial asks for."""
    return [cls for cls in SCORE_EVALUATORS if cls.metric_names(config, method, classes, True)]


def metric_names(config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> tuple[str, ...]:
    """Names of all metrics but losses that the reports of a trial on data of `classes` classes can hold; with
    `last=False` of those before the last report."""
    prefixes = ("", VALIDATION) if config.data.validation else ("",)
    groups = (
        asked_representation_evaluators(config, method, classes, last),
        asked_score_evaluators(config, method, classes),
    )
    return tuple(
        f"{prefix}{name}"
        for group in groups
        for prefix in prefixes
        for evaluator in group
        for name in evaluator.metric_names(config, method, classes, last)
    )
