"""Evaluators of anomaly scores: one class against the others, and test images against sets of outliers.

Shapes: K members.
"""

from collections.abc import Mapping, Sequence

from trainables.contract import Capability, ImageMethod
from trainables.evaluation import anomaly, ood
from trainables.evaluation.anomaly import Floats
from trainables.learners.members import StackedMembers
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import EvaluationSet
from trainables.tasks.images.evaluators.evaluator import ScoreEvaluator


class AnomalyDetection(ScoreEvaluator):
    """How well members trained on one class tell it from the others."""

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return anomaly.metric_names(method) if config.data.normal_class is not None else ()

    def metrics(
        self, stacks: Sequence[StackedMembers], members: Sequence[int], tested: EvaluationSet
    ) -> dict[str, Floats]:
        method = stacks[0].method
        assert isinstance(method, ImageMethod)
        scores = self.images.scores(stacks, tested.images)
        return anomaly.evaluate(scores, tested.outlier_KN[list(members)], method.score_means)


class OutlierDetection(ScoreEvaluator):
    """How well members trained on all classes tell each set of outliers from the evaluated images."""

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        return {"score": "outliers"} if config.evaluation.outliers else {}

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        return [
            f"{name}_{outliers}" for outliers in config.evaluation.outlier_sets for name in ood.metric_names(method)
        ]

    def metrics(
        self, stacks: Sequence[StackedMembers], members: Sequence[int], tested: EvaluationSet
    ) -> dict[str, Floats]:
        inlier_scores = self.images.scores(stacks, tested.images)
        metrics: dict[str, Floats] = {}
        for outlier_set, images in tested.outliers.items():
            values = ood.evaluate(inlier_scores, self.images.scores(stacks, images))
            metrics |= {f"{name}_{outlier_set}": value for name, value in values.items()}
        return metrics
