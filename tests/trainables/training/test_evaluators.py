"""Metrics of members trained on all classes: when they are reported, on which images, and independent of stacking."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from tests.folder_files import write_imagenet
from tests.trainables.small import HERE, at_ends, metrics_of
from tests.trainables.training.evaluated import EVERYTHING, eval_config
from tests.trainables.training.judged import untimed, without_seconds
from trainables.config.trial_config import TrialConfig, Value
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.evaluation import probes
from trainables.methods.vje import VJE
from trainables.reports import Report
from trainables.training import cohort as cohort_module
from trainables.training.cohort import Cohort
from trainables.training.models import build_models
from trainables.training.train import train


def _members(**changes: Value) -> list[TrialConfig]:
    return [eval_config(**{"beta": beta, "seed": seed, **changes}) for beta, seed in ((0.5, 0), (7.0, 1), (2.0, 0))]


def _reports(*configs: TrialConfig, data: Path = HERE, **how: Any) -> list[Report]:
    return list(train(configs, data, **how))


def _last(config: TrialConfig) -> dict[str, float]:
    """The final metrics, all of them defined."""
    metrics = metrics_of(_reports(config), 0)[-1]
    return {name: value for name, value in metrics.items() if value is not None}


@pytest.mark.parametrize("knn", [0, 5])
@pytest.mark.parametrize("probe_epochs", [0, 3])
def test_classifiers_run_only_if_requested_and_probes_only_at_the_end(knn: int, probe_epochs: int) -> None:
    reports = _reports(eval_config(knn=knn, probe_epochs=probe_epochs, epochs=3))
    for report in reports:
        names = list(report.members[0].metrics)
        assert any(name.startswith("knn") for name in names) == bool(knn)
        assert any(name.startswith("probe") for name in names) == (bool(probe_epochs) and report.epoch == 3)


def test_an_undefined_metric_is_null_and_its_member_has_not_diverged() -> None:
    """Without the KL the variance collapses, and its coefficient of variation is 0 / 0."""
    reports = _reports(eval_config(terms="dir", lr=0.3, epochs=3), eval_config(terms="dir", lr=1e-6, epochs=3))
    collapsed, sound = reports[-1].members
    assert collapsed.status == sound.status == "finished"
    assert collapsed.metrics["var_cv"] is None and 0 <= (collapsed.metrics["var_mean"] or 0.0) < 0.01
    assert sound.metrics["var_cv"] is not None and (sound.metrics["var_mean"] or 0.0) > 0.1


@pytest.mark.parametrize("vector", ["z", "mu", "var"])
@pytest.mark.parametrize("width", [None, 1])
def test_features_that_are_not_finite_end_only_their_member(
    vector: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = _members(knn=5, probe_epochs=2)
    clean = _reports(*configs, width=width)
    real = VJE.embed

    def embed(self: VJE, images_BCHW: Tensor) -> dict[str, Tensor]:
        vectors = real(self, images_BCHW)
        return vectors | {vector: torch.where(self.beta == 7, torch.nan, vectors[vector])}

    monkeypatch.setattr(VJE, "embed", embed)
    reports = _reports(*configs, width=width)
    first = {"z": "knn_z", "mu": "knn_mu", "var": "var_mean"}[vector]
    bad = reports[-1].members[1]
    assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 1, f"{first} was not finite in epoch 1")
    assert set(bad.metrics.values()) == {None}
    assert untimed(reports[0].members)[::2] == untimed(clean[0].members)[::2]


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["mlp", "convnet"])
def test_metrics_are_the_same_fused_or_alone(encoder: str) -> None:
    configs = _members(**EVERYTHING, encoder=encoder, width=4)
    fused, in_turn = _reports(*configs), _reports(*configs, width=1)
    for member, config in enumerate(configs):
        alone = metrics_of(_reports(config), 0)
        assert metrics_of(in_turn, member) == alone
        for actual, expected in zip(metrics_of(fused, member), alone, strict=True):
            assert actual.keys() == expected.keys()
            for name, value in expected.items():  # of 537 images; the means of barely trained posteriors are all ties
                if not name.endswith("_mu"):
                    assert actual[name] == pytest.approx(value, rel=1e-3, abs=0.02 if "_z" in name else 4e-3), name


@cache
def _digits() -> Dataset:
    return load("digits", HERE)


def _untrained(config: TrialConfig) -> VJE:
    (model,) = build_models([config], (1, 8, 8))
    assert isinstance(model, VJE)
    return model.eval()


def _seen(images: Tensor) -> Tensor:
    return (images / 16 - 0.305470) / 0.376049


@torch.no_grad()
def test_outlier_metrics_equal_scikit_learns() -> None:
    config = eval_config(epochs=0, held_out="3", outliers="held_out+inverted", encoder="convnet", width=4)
    metrics, model = _last(config), _untrained(config)
    images, threes = _digits().test_images, _digits().test_labels == 3
    inside = model.score(_seen(images[~threes]), noise=torch.empty(0))
    for name, outside in (("held_out", images[threes]), ("inverted", 16 - images[~threes])):
        outer = model.score(_seen(outside), noise=torch.empty(0))
        for score in VJE.scores:
            values = torch.cat([inside[score], outer[score]]).double().numpy()
            truth = np.arange(len(values)) >= len(inside[score])
            assert metrics[f"auroc_{score}_{name}"] == pytest.approx(roc_auc_score(truth, values), abs=1e-4)
            assert metrics[f"aupr_{score}_{name}"] == pytest.approx(average_precision_score(truth, values), abs=1e-3)
            fpr, tpr, _ = roc_curve(~truth, -values, drop_intermediate=False)
            assert metrics[f"fpr95_{score}_{name}"] == pytest.approx(fpr[tpr >= 0.95].min(), abs=0.01)


@torch.no_grad()
@pytest.mark.parametrize("held_out", ["", "3", "0+1+8"])
def test_held_out_classes_are_neither_trained_on_nor_tested_by_classifiers(
    held_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked against scikit-learn's nearest neighbour among the other classes, and by the arguments of the probes."""
    config = eval_config(epochs=0, knn=1, probe_epochs=1, held_out=held_out)
    calls: list[Any] = []
    real = probes.accuracies

    def accuracies(*arguments: Any, **options: Any) -> dict[int, Any]:
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(probes, "accuracies", accuracies)
    metrics, model, data = _last(config), _untrained(config), _digits()
    out = torch.tensor([int(name) for name in held_out.split("+")] if held_out else [], dtype=torch.long)
    learnt, tested = ~torch.isin(data.train_labels, out), ~torch.isin(data.test_labels, out)
    bank, test = (model.embed(_seen(images)) for images in (data.train_images[learnt], data.test_images[tested]))
    for name in VJE.representations:
        nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
        nearest.fit(bank[name].numpy(), data.train_labels[learnt])
        expected = nearest.score(test[name].numpy(), data.test_labels[tested])
        assert metrics[f"knn_{name}"] == metrics[f"knn_weighted_{name}"] == pytest.approx(expected, abs=4e-3)
    for _, bank_labels, _, test_labels, classes in calls:
        assert torch.equal(bank_labels, data.train_labels[learnt]) and classes == 10
        assert torch.equal(test_labels, data.test_labels[tested])
    assert len(calls) == 2


def test_images_as_files_give_the_same_metrics_as_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_imagenet(tmp_path, train=6, val=4)
    config = eval_config(dataset="imagenet", batch_size=6, epochs=0, features=4, width=4, **{**EVERYTHING, "knn": 3})
    files = load("imagenet", tmp_path)
    tensors = replace(files, train_images=files.train_images[:], test_images=files.test_images[:])
    from_files = without_seconds(_reports(config, data=tmp_path))
    monkeypatch.setattr(cohort_module, "dataset_of", lambda name, data: tensors)
    assert without_seconds(_reports(config, data=tmp_path)) == from_files
    assert not any("top5" in name for name in from_files[0][1][0].metrics)


def test_evaluation_does_not_change_training() -> None:
    configs = _members(**EVERYTHING, encoder="convnet", width=4, score_samples=2)
    evaluated, left = (Cohort(configs, HERE, torch.device("cpu"), None) for _ in range(2))
    for cohort in (evaluated, left):
        cohort.epoch(0)
    drawn = torch.get_rng_state()
    first, again = evaluated.evaluate(last=True), evaluated.evaluate(last=True)
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)
    assert torch.equal(torch.get_rng_state(), drawn)
    for _ in range(2):
        for kind, tensors in evaluated.state()[0].items():
            assert all(torch.equal(tensor, left.state()[0][kind][name]) for name, tensor in tensors.items())
        losses, expected = evaluated.epoch(1), left.epoch(1)
        assert all(np.array_equal(losses[name], expected[name]) for name in expected)


def test_rare_reports_or_a_resume_change_no_metric() -> None:
    saved: list[bytes] = []
    configs = _members(**EVERYTHING, epochs=3)
    whole = _reports(*configs, save=at_ends(saved), save_every=0.0)
    (seldom,) = _reports(*_members(**EVERYTHING, epochs=3, report_every=3))
    assert len(whole) == 3 and untimed(whole[-1].members) == untimed(seldom.members)
    assert without_seconds(_reports(*configs, resume=saved[1])) == without_seconds(whole)


def test_metrics_of_an_untrained_encoder_do_not_depend_on_training_options() -> None:
    """They also equal those of a method that trains, because the initial weights depend on the seed."""
    options: dict[str, Value] = {"knn": 5, "probe_epochs": 2}
    (report,) = _reports(*(eval_config("random", lr=lr, seed=seed, **options) for lr, seed in ((1, 0), (9, 0), (1, 1))))
    assert (report.epoch, report.done) == (0, True)
    first, other, seed = report.members
    assert first == other and first.metrics != seed.metrics
    assert (first.status, first.epochs_run, first.error) == ("finished", 0, None)
    vje = _last(eval_config(epochs=0, **options))
    assert dict(first.metrics) == pytest.approx({name: vje[name] for name in first.metrics}, abs=4e-3)


def test_metrics_in_bfloat16_are_nearly_the_same() -> None:
    (full,), (half,) = (_reports(*_members(**EVERYTHING, epochs=0, precision=kind)) for kind in ("float32", "bfloat16"))
    assert full.members != half.members
    for actual, expected in zip(half.members, full.members, strict=True):
        assert dict(actual.metrics) == pytest.approx(dict(expected.metrics), abs=0.05)
