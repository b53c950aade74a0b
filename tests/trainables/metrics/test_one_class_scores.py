"""Scores that are fitted to one class's training vectors, as trials report them and as their models have them."""

import pytest
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tests.trainables.metrics.evaluated import CPU, eval_config, last_metrics, prepared
from tests.trainables.metrics.test_fitted_scores import NAMES, Array, scikit_learn
from tests.trainables.small import HERE, image_trial
from trainables.data.datasets.catalog import load
from trainables.data.splits import hold_out_validation
from trainables.image_trial import ImageTrial
from trainables.methods.variational.vje import VJE
from trainables.metrics.fitted_scores import FITS
from trainables.metrics.meanings import FITTED_SCORES
from trainables.sections import Value
from trainables.tasks.images.model import ImageModel
from trainables.training.cohort import TrainingCohort
from trainables.training.model_file import TrainedModel
from trainables.training.train import Callbacks, train


def pixels(**changes: Value) -> ImageTrial:
    return eval_config("pixels", epochs=0, batch_size=60, normal_class=3, **changes)


def raw(images: Tensor) -> Array:
    """Pixels as encoders get them, float64 `[N, D]`."""
    return prepared(images).flatten(1).double().numpy()


def test_fitted_scores_and_trials_share_their_names() -> None:
    assert [*FITS] == [*FITTED_SCORES]
    assert (
        image_trial({"method": "vje", "normal_class": 3, "one_class_scores": "all"}).evaluation.fitted_scores == NAMES
    )


@pytest.mark.parametrize("standardize", [False, True])
def test_auroc_of_pixels_is_scikit_learns(standardize: bool) -> None:
    """On both sets of images; the images of the class that are not held out are the neighbours."""
    config = pixels(one_class_scores="knn2+gaussian", one_class_standardize=standardize, validation=0.2)
    metrics = last_metrics(config)
    for prefix, part in zip(("", "val_"), hold_out_validation(load("digits", HERE), 0.2), strict=True):
        train_ND, x_MD = raw(part.train_images[:][part.train_labels == 3]), raw(part.test_images[:])
        if standardize:
            scaler = StandardScaler().fit(train_ND)
            train_ND, x_MD = scaler.transform(train_ND), scaler.transform(x_MD)
        for name in ("knn2", "gaussian"):
            expected = roc_auc_score(part.test_labels != 3, scikit_learn(name, train_ND, x_MD))
            assert metrics[f"{prefix}auroc_{name}_z"] == pytest.approx(expected, abs=1e-4) and 0.8 < expected < 1
    best = max(metrics["auroc_knn2_z"], metrics["auroc_gaussian_z"])
    assert metrics["auroc_best_on_test"] == best
    chosen = max(("knn2", "gaussian"), key=lambda name: metrics[f"val_auroc_{name}_z"])
    assert metrics["auroc_chosen"] == metrics[f"auroc_{chosen}_z"]
    assert metrics["val_auroc_chosen"] == metrics[f"val_auroc_{chosen}_z"]


def test_members_of_several_classes_and_numbers_of_images_are_fitted_to_their_own() -> None:
    """Stacked or alone, on each representation and the projection."""
    changes: list[dict[str, Value]] = [
        {"normal_class": 3}, {"normal_class": 8}, {"normal_class": 8, "normal_images": 121, "seed": 1},
    ]  # fmt: skip
    shared: dict[str, Value] = {"one_class_scores": "knn5+gaussian", "epochs": 1, "projector_width": 8, "projection": 4}
    configs = [eval_config("simclr", **{**shared, **own}) for own in changes]
    together = TrainingCohort(configs, HERE, CPU, None).evaluate(last=True)
    assert {"auroc_knn5_z", "auroc_gaussian_projection", "auroc_best_on_test"} <= together.keys()
    assert "auroc_chosen" not in together, "no images are held out"
    for member, config in enumerate(configs):
        for name, (value,) in TrainingCohort([config], HERE, CPU, None).evaluate(last=True).items():
            assert together[name][member] == pytest.approx(value, abs=1e-3), name
    assert len({*together["auroc_knn5_z"].tolist()}) == 3


def test_a_model_scores_images_as_they_were_evaluated() -> None:
    config = eval_config(normal_class=3, one_class_scores="knn1+ocsvm_raw", epochs=1, validation=0.2)
    models: list[TrainedModel] = []
    *_, last = train([config], HERE, callbacks=Callbacks(keep=lambda _, model: models.append(model)))
    model, digits = models[0].build(), load("digits", HERE)
    assert isinstance(model, ImageModel)
    assert model.scores == (*VJE.scores, "knn1_z", "ocsvm_raw_z", "knn1_mu", "ocsvm_raw_mu")
    assert model.chosen_by == f"val_auroc_{model.chosen_score}"
    metrics = {name: value for name, value in last.members[0].metrics.items() if value is not None}
    assert metrics[f"auroc_{model.chosen_score}"] == metrics["auroc_chosen"]
    for name in model.scores[-4:]:
        actual = roc_auc_score(digits.test_labels != 3, model.score(digits.test_images[:], name))
        assert metrics[f"auroc_{name}"] == pytest.approx(actual, abs=1e-3)


def test_a_key_that_is_not_set_leaves_the_id_of_a_trial() -> None:
    assert not {"one_class_scores", "one_class_standardize"} & pixels().flat().keys()


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"one_class_scores": "knn3"}, r"no one_class_scores 'knn3' \(did you mean 'knn.'\?\); there are: knn1, "),
        ({"one_class_scores": "kde+kde"}, "each score must be named once, but got one_class_scores=kde\\+kde"),
        ({"one_class_scores": "kde", "normal_class": None}, "one_class_scores needs a normal_class, but got "),
        ({"one_class_standardize": True}, "one_class_standardize needs one_class_scores, but got"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(changes: dict[str, Value], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        image_trial({"method": "pixels", "epochs": 0, "normal_class": 3, **changes})
