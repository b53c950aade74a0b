"""Trials of several tasks are checked together."""

import pytest

from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.training.checks import check_trials
from trainables.training.metric_names import metric_names


@pytest.mark.usefixtures("pairs")
def test_results_are_in_the_order_of_the_trials_whatever_their_tasks() -> None:
    pairs = resolve({"method": "gaussian_mlp", "examples": 120, "batch_size": 30})
    images = resolve({"method": "vje", "batch_size": 60, "knn": 5, "probe_epochs": 1})
    results = check_trials([pairs, images, pairs], HERE)
    assert [result.steps for result in results] == [4, 21, 4] and results[0] == results[2]
    assert results[1].metrics == metric_names(images, 10) and results[0].metrics == metric_names(pairs, 0)
    assert results[1].metrics_during_training == metric_names(images, 10, last=False) != results[1].metrics


def test_no_trials_have_no_results() -> None:
    assert check_trials([], HERE) == []
