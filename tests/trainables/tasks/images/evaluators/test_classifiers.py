"""Evaluators of representations: when they run, on which images, and metrics that are undefined."""

from typing import Any

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from tests.trainables.small import HERE
from tests.trainables.tasks.images.evaluated import eval_config, last_metrics, prepared, untrained
from trainables.data.datasets.catalog import load
from trainables.methods.variational.vje import VJE
from trainables.metrics import linear_probes
from trainables.training.metric_names import metric_names
from trainables.training.train import train


@pytest.mark.parametrize("knn", [0, 5])
@pytest.mark.parametrize("probe_epochs", [0, 3])
def test_classifiers_run_only_if_requested_and_probes_only_at_the_end(knn: int, probe_epochs: int) -> None:
    for report in train([eval_config(knn=knn, probe_epochs=probe_epochs, epochs=3)], HERE):
        names = list(report.members[0].metrics)
        assert any(name.startswith("knn") for name in names) == bool(knn)
        assert any(name.startswith("probe") for name in names) == (bool(probe_epochs) and report.epoch == 3)


def test_top_5_accuracy_is_reported_for_more_than_five_classes() -> None:
    config = eval_config(probe_epochs=1)
    top5 = {classes: [name for name in metric_names(config, classes) if "top5" in name] for classes in (3, 5, 6, 1000)}
    assert top5 == {3: [], 5: [], 6: ["probe_top5_z", "probe_top5_mu"], 1000: ["probe_top5_z", "probe_top5_mu"]}


def test_an_undefined_metric_is_null_and_its_member_has_not_diverged() -> None:
    """Without the KL the variance collapses, and its coefficient of variation is 0 / 0."""
    configs = [eval_config(terms="dir", lr=lr, epochs=3) for lr in (0.3, 1e-6)]
    collapsed, sound = list(train(configs, HERE))[-1].members
    assert collapsed.status == sound.status == "finished"
    assert collapsed.metrics["var_cv"] is None and 0 <= (collapsed.metrics["var_mean"] or 0.0) < 0.01
    assert sound.metrics["var_cv"] is not None and (sound.metrics["var_mean"] or 0.0) > 0.1


@torch.no_grad()
@pytest.mark.parametrize("held_out", ["", "3", "0+1+8"])
def test_held_out_classes_are_neither_trained_on_nor_tested_by_classifiers(
    held_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked against scikit-learn's nearest neighbour among the other classes, and by the arguments of the probes."""
    config = eval_config(epochs=0, knn=1, probe_epochs=1, held_out=held_out)
    calls: list[Any] = []
    real = linear_probes.accuracies

    def accuracies(*arguments: Any, **options: Any) -> dict[int, Any]:
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(linear_probes, "accuracies", accuracies)
    metrics, model, data = last_metrics(config), untrained(config), load("digits", HERE)
    out = torch.tensor([int(name) for name in held_out.split("+")] if held_out else [], dtype=torch.long)
    learnt, tested = ~torch.isin(data.train_labels, out), ~torch.isin(data.test_labels, out)
    bank, test = (model.embed(prepared(images)) for images in (data.train_images[learnt], data.test_images[tested]))
    for name in VJE.representations:
        nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
        nearest.fit(bank[name].numpy(), data.train_labels[learnt])
        expected = nearest.score(test[name].numpy(), data.test_labels[tested])
        assert metrics[f"knn_{name}"] == metrics[f"knn_weighted_{name}"] == pytest.approx(expected, abs=4e-3)
    for _, bank_labels, _, test_labels, classes in calls:
        assert torch.equal(bank_labels, data.train_labels[learnt]) and classes == 10
        assert torch.equal(test_labels, data.test_labels[tested])
    assert len(calls) == 2
