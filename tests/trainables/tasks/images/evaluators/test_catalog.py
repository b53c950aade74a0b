"""The evaluators that a trial asks for, and the names of their metrics."""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.trainables.small import IMAGE_METHODS, image_trial
from tests.trainables.tasks.images.evaluated import EVERYTHING, eval_config
from trainables.catalog import task_of
from trainables.image_trial import ImageTrial
from trainables.metrics.catalog import (
    REPRESENTATION_EVALUATORS,
    SCORE_EVALUATORS,
    asked_representation_evaluators,
    asked_score_evaluators,
    metric_names,
)
from trainables.metrics.evaluator import ImageEvaluator
from trainables.metrics.meanings import family_of

CLASSES = 10
each_method = pytest.mark.parametrize("name", IMAGE_METHODS)


def full_trials(name: str) -> list[ImageTrial]:
    """The untrained trials of a method that together report all of its metrics."""
    method = IMAGE_METHODS[name]
    return [image_trial({"method": name, "epochs": 0, **keys}) for keys in task_of(name).full_evaluations(method)]


def evaluators_of(config: ImageTrial) -> Sequence[type[ImageEvaluator]]:
    method = IMAGE_METHODS[config.method]
    representations = asked_representation_evaluators(config, method, CLASSES, True)
    return [*representations, *asked_score_evaluators(config, method, CLASSES)]


def test_every_evaluator_is_asked_for_by_a_full_evaluation() -> None:
    evaluators = {
        evaluator for name in IMAGE_METHODS for config in full_trials(name) for evaluator in evaluators_of(config)
    }
    assert evaluators == {*REPRESENTATION_EVALUATORS, *SCORE_EVALUATORS}


@each_method
def test_a_method_has_the_capability_that_each_evaluator_needs(name: str) -> None:
    for config in full_trials(name):
        for evaluator in evaluators_of(config):
            assert {"embed", *evaluator.needs(config)} <= IMAGE_METHODS[name].capabilities


@each_method
def test_no_metric_has_two_evaluators_and_each_has_a_family(name: str) -> None:
    for config in full_trials(name):
        names = metric_names(config, IMAGE_METHODS[name], CLASSES, True)
        assert [metric for metric, count in Counter(names).items() if count > 1] == []
        assert [metric for metric in names if family_of(metric) is None] == []


def test_a_trial_on_one_class_is_evaluated_by_its_scores_only() -> None:
    config = eval_config(normal_class=0)
    assert asked_representation_evaluators(config, IMAGE_METHODS["vje"], CLASSES, True) == []
    assert asked_score_evaluators(config, IMAGE_METHODS["vje"], CLASSES) != []


def test_names_before_the_last_report_are_among_those_of_the_last_in_the_same_order() -> None:
    config, method = eval_config(**EVERYTHING, validation=0.2), IMAGE_METHODS["vje"]
    before, last = (metric_names(config, method, CLASSES, is_last) for is_last in (False, True))
    assert list(before) == [name for name in last if "probe" not in name] and len(before) < len(last)
