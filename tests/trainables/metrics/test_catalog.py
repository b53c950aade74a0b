"""The evaluators that a trial asks for; their metrics are those promised before it trains, on validation images as on
test images, and depend on no other member of the cohort, on no other report, and do not change training."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from sweeper.definition.metric import VALIDATION as SWEEPERS_VALIDATION
from tests.cases import for_each
from tests.trainables.metrics.evaluated import (
    EVERYTHING,
    eval_config,
    evaluated,
    last_metrics,
    prepared,
    scores_of,
    trial,
    untrained,
)
from tests.trainables.small import HERE, IMAGE_METHODS, at_ends, image_trial, metrics_of
from tests.trainables.training.judged import untimed, without_seconds
from trainables.catalog import task_of
from trainables.data.datasets.catalog import DATASETS, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.outliers import CORRUPTIONS
from trainables.data.splits import hold_out_validation
from trainables.image_trial import ImageTrial
from trainables.methods.variational.vje import VJE
from trainables.metrics import catalog, fitted_scores, generation
from trainables.metrics.catalog import (
    REPRESENTATION_EVALUATORS,
    SCORE_EVALUATORS,
    asked_representation_evaluators,
    asked_score_evaluators,
)
from trainables.metrics.evaluator import ImageEvaluator
from trainables.metrics.meanings import VALIDATION, family_of
from trainables.metrics.one_class_scores import OneClassScores
from trainables.metrics.scores import AnomalyDetection
from trainables.reports import Report
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.metric_names import metric_names
from trainables.training.train import Checkpointing, train

CLASSES = 10
each_method = for_each("name", IMAGE_METHODS)


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
        names = catalog.metric_names(config, IMAGE_METHODS[name], CLASSES, True)
        assert [metric for metric, count in Counter(names).items() if count > 1] == []
        assert [metric for metric in names if family_of(metric) is None] == []


def test_a_trial_on_one_class_is_evaluated_by_its_scores_only() -> None:
    config, fitted = (eval_config(normal_class=0, one_class_scores=names) for names in ("", "knn1"))
    assert asked_representation_evaluators(config, IMAGE_METHODS["vje"], CLASSES, True) == []
    assert asked_representation_evaluators(fitted, IMAGE_METHODS["vje"], CLASSES, True) == [OneClassScores]
    assert asked_representation_evaluators(fitted, IMAGE_METHODS["vje"], CLASSES, False) == []
    assert asked_score_evaluators(config, IMAGE_METHODS["vje"], CLASSES) == [AnomalyDetection]


def test_names_before_the_last_report_are_among_those_of_the_last_in_the_same_order() -> None:
    config, method = eval_config(**EVERYTHING, validation=0.2), IMAGE_METHODS["vje"]
    before, last = (catalog.metric_names(config, method, CLASSES, is_last) for is_last in (False, True))
    assert list(before) == [name for name in last if "probe" not in name] and len(before) < len(last)


# --- What is reported is what is promised ---

ON_ALL_DATASETS = ("vae", "vje")
"""Methods that are evaluated on all data sets, one with a decoder and one without; the others on the digits."""


def evaluations_of(index: int, name: str) -> list[Mapping[str, Value]]:
    """The first full evaluation of a method, which asks for most, and one of the others in turn; or all."""
    first, *others = task_of(name).full_evaluations(IMAGE_METHODS[name])
    if name in ON_ALL_DATASETS:
        return [first, *others]
    on_digits = [keys for keys in others if keys.get("dataset", "digits") == "digits"]
    return [first, *on_digits[index % max(1, len(on_digits)) :][:1]]


EVALUATIONS = [(name, keys) for index, name in enumerate(IMAGE_METHODS) for keys in evaluations_of(index, name)]


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_datasets")
@for_each(("name", "keys"), EVALUATIONS)
def test_metrics_are_those_promised_in_order(
    name: str, keys: Mapping[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last report, and of some methods before, too. Outliers are those that need no other data set, and there
    are no weights for a FID."""
    monkeypatch.setattr(fitted_scores, "TREES", 2)  # for speed
    monkeypatch.setattr(generation, "fid", lambda samples_KNCHW, *others: [0.0] * len(samples_KNCHW))
    local: dict[str, Value] = {"outliers": "+".join((*CORRUPTIONS, "held_out"))} if "outliers" in keys else {}
    if keys.get("dataset") == "folder":  # `test_own_images.py` and `test_detection.py` have images of the user's own
        local["dataset"] = "digits"
    config = trial(name, **{**keys, **local})
    classes = DATASETS[config.data.dataset].declaration.classes
    for last in (True, False) if name in ON_ALL_DATASETS else (True,):
        promised = task_of(name).metric_names(config, IMAGE_METHODS[name], classes, last)
        assert tuple(evaluated(config, last=last)) == promised
        names = metric_names(config, classes, last)
        assert names[len(names) - len(promised) :] == promised


# --- Members of a cohort are independent, also of other reports ---


def _members(**changes: Value) -> list[TrialConfig]:
    return [eval_config(**{"beta": beta, "seed": seed, **changes}) for beta, seed in ((0.5, 0), (7.0, 1), (2.0, 0))]


def _reports(*configs: TrialConfig, **how: Any) -> list[Report]:
    return list(train(configs, HERE, **how))


@cache
def _clean(width: int | None) -> list[Report]:
    return _reports(*_members(knn=5, probe_epochs=2), width=width)


@pytest.mark.slow
@for_each(("vector", "width"), [("z", None), ("mu", 1), ("var", None)])
def test_features_that_are_not_finite_end_only_their_member(
    vector: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = _members(knn=5, probe_epochs=2)
    clean, real = _clean(width), VJE.embed

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
                    of_neighbours = "_z" in name or name == "error_auroc"
                    assert actual[name] == pytest.approx(value, rel=1e-3, abs=0.05 if of_neighbours else 4e-3), name


@pytest.mark.slow
def test_evaluation_does_not_change_training() -> None:
    configs = _members(**EVERYTHING, encoder="convnet", width=4, score_samples=2)
    evaluated, left = (TrainingCohort(configs, HERE, torch.device("cpu"), None) for _ in range(2))
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


@pytest.mark.slow
def test_rare_reports_or_a_resume_change_no_metric() -> None:
    saved: list[bytes] = []
    configs = _members(**EVERYTHING, epochs=3)
    whole = _reports(*configs, checkpointing=Checkpointing(save=at_ends(saved), every=0.0))
    (seldom,) = _reports(*_members(**EVERYTHING, epochs=3, report_every=3))
    assert len(whole) == 3 and untimed(whole[-1].members) == untimed(seldom.members)
    assert without_seconds(_reports(*configs, checkpointing=Checkpointing(saved[1]))) == without_seconds(whole)


def test_metrics_of_an_untrained_encoder_do_not_depend_on_training_options() -> None:
    """They also equal those of a method that trains, because the initial weights depend on the seed."""
    options: dict[str, Value] = {"knn": 5, "probe_epochs": 2}
    (report,) = _reports(*(eval_config("random", lr=lr, seed=seed, **options) for lr, seed in ((1, 0), (9, 0), (1, 1))))
    assert (report.epoch, report.done) == (0, True)
    first, other, seed = report.members
    assert first == other and first.metrics != seed.metrics
    assert (first.status, first.epochs_run, first.error) == ("finished", 0, None)
    vje = last_metrics(eval_config(epochs=0, **options))
    assert dict(first.metrics) == pytest.approx({name: vje[name] for name in first.metrics}, abs=4e-3)


# --- Validation images ---


def _config(**changes: Value) -> ImageTrial:
    defaults: dict[str, Value] = {"method": "vje", "width": 16, "features": 8, "bottleneck": 8, "batch_size": 40}
    return image_trial({**defaults, "epochs": 0, "lr": 0.02, "rotation": 10.0, "validation": 0.2, **changes})


@cache
def _parts() -> tuple[Dataset, Dataset]:
    return hold_out_validation(load("digits", HERE), 0.2)


def test_the_validation_prefix_equals_that_of_the_sweeper() -> None:
    """The sweeper has its own copy, because it reads rows without importing trainables."""
    assert VALIDATION == SWEEPERS_VALIDATION == "val_"


@pytest.mark.parametrize(
    "changes",
    [
        {"normal_class": 3, "epochs": 2},
        {"knn": 5, "probe_epochs": 1, "held_out": "3", "outliers": "held_out+noise", "epochs": 1},
        {},
    ],
)
def test_each_metric_but_the_losses_is_also_reported_on_validation_images(changes: dict[str, Value]) -> None:
    with_parts, without = (metric_names(_config(**changes, validation=share), 10) for share in (0.2, 0.0))
    of_training = {name for name in without if name.startswith("loss")} | VJE.measures
    doubled = [name for name in without if name not in of_training]
    assert sorted(with_parts) == sorted([*without, *(f"val_{name}" for name in doubled)]) and doubled
    reported = metrics_of(list(train([_config(**changes)], HERE)), 0)[-1]
    assert list(reported) == [name for name in with_parts if "epochs" in changes or name not in of_training]


def test_validation_metrics_are_reported_before_the_end_too() -> None:
    """Pruners need them."""
    names = metric_names(_config(knn=5, probe_epochs=1, epochs=3), 10, last=False)
    assert "val_knn_z" in names and not any("probe" in name for name in names)


@torch.no_grad()
@pytest.mark.parametrize("normal_class", [1, 8])
def test_auroc_of_validation_images_is_scikit_learns(normal_class: int) -> None:
    config = _config(normal_class=normal_class)
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        scores = scores_of(model, part.test_images)
        truth = (part.test_labels != normal_class).numpy()
        for name, values in scores.items():
            assert metrics[f"{prefix}auroc_{name}"] == pytest.approx(roc_auc_score(truth, values.numpy()), abs=1e-4)
        assert metrics[f"{prefix}posterior_variance"] == pytest.approx(scores["variance"].mean().item(), rel=1e-4)


@torch.no_grad()
def test_validation_knn_uses_the_remaining_training_images() -> None:
    config = _config(knn=1)
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
        nearest.fit(model.embed(prepared(part.train_images))["z"].numpy(), part.train_labels)
        expected = nearest.score(model.embed(prepared(part.test_images))["z"].numpy(), part.test_labels)
        assert metrics[f"{prefix}knn_z"] == pytest.approx(expected, abs=4e-3)


@torch.no_grad()
def test_held_out_classes_are_outliers_of_both_parts() -> None:
    config = _config(held_out="3", outliers="held_out")
    metrics, model = last_metrics(config), untrained(config)
    for prefix, part in zip(("", "val_"), _parts(), strict=True):
        joint = scores_of(model, part.test_images)["joint"].numpy()
        truth = (part.test_labels == 3).numpy()
        assert metrics[f"{prefix}auroc_joint_held_out"] == pytest.approx(roc_auc_score(truth, joint), abs=1e-4)


def test_members_of_several_classes_have_outliers_of_their_own() -> None:
    """Fused or alone, a member is evaluated by the outliers of its own class."""
    configs = [_config(normal_class=digit, epochs=1) for digit in (1, 8)]
    fused = list(train(configs, HERE))
    aurocs = [metrics_of(fused, member)[-1]["val_auroc_joint"] or 0.0 for member in (0, 1)]
    for config, value in zip(configs, aurocs, strict=True):
        alone = metrics_of(list(train([config], HERE)), 0)[-1]
        assert value == pytest.approx(alone["val_auroc_joint"], abs=5e-3)
    assert abs(aurocs[0] - aurocs[1]) > 0.01
