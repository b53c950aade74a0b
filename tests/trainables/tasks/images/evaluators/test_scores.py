"""Metrics of anomaly scores equal scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from tests.trainables.small import HERE
from tests.trainables.tasks.images.evaluated import eval_config, last_metrics, scores_of, untrained
from trainables.data.datasets.catalog import load
from trainables.methods.variational.vje import VJE


@torch.no_grad()
def test_outlier_metrics_equal_scikit_learns() -> None:
    config = eval_config(epochs=0, held_out="3", outliers="held_out+inverted", encoder="convnet", width=4)
    metrics, model, digits = last_metrics(config), untrained(config), load("digits", HERE)
    images, threes = digits.test_images, digits.test_labels == 3
    inside = scores_of(model, images[~threes])
    for name, outside in (("held_out", images[threes]), ("inverted", 16 - images[~threes])):
        outer = scores_of(model, outside)
        for score in VJE.scores:
            values = torch.cat([inside[score], outer[score]]).double().numpy()
            truth = np.arange(len(values)) >= len(inside[score])
            assert metrics[f"auroc_{score}_{name}"] == pytest.approx(roc_auc_score(truth, values), abs=1e-4)
            assert metrics[f"aupr_{score}_{name}"] == pytest.approx(average_precision_score(truth, values), abs=1e-3)
            fpr, tpr, _ = roc_curve(~truth, -values, drop_intermediate=False)
            assert metrics[f"fpr95_{score}_{name}"] == pytest.approx(fpr[tpr >= 0.95].min(), abs=0.01)


@torch.no_grad()
@pytest.mark.parametrize("normal_class", [0, 7])
def test_all_other_classes_are_the_outliers_of_a_trial_on_one_class(normal_class: int) -> None:
    config = eval_config(epochs=0, normal_class=normal_class)
    metrics, digits = last_metrics(config), load("digits", HERE)
    scores = scores_of(untrained(config), digits.test_images[:])
    truth = (digits.test_labels != normal_class).numpy()
    assert set(metrics) == {f"auroc_{name}" for name in VJE.scores} | set(VJE.score_means)
    for name, values in scores.items():
        assert metrics[f"auroc_{name}"] == pytest.approx(roc_auc_score(truth, values.numpy()), abs=1e-4)
    for name, score in VJE.score_means.items():
        assert metrics[name] == pytest.approx(scores[score].mean().item(), rel=1e-4)
