"""Images that a trained model takes as users have them, and its anomaly scores with their threshold.

Shapes: B images of C channels, H by W pixels.
"""

import io
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.cases import for_each
from tests.image_files import write_own_images
from tests.trainables.methods.method_configs import config_of, images_of_tests, model_of
from tests.trainables.small import HERE, image_trial
from trainables.contract import ImageMethod
from trainables.data.datasets.catalog import load
from trainables.data.datasets.class_folders import list_folder
from trainables.image_trial import ImageTrial
from trainables.methods.baselines.classifier import Classifier
from trainables.metrics import one_class_scores
from trainables.metrics.evaluator import BATCH
from trainables.metrics.roc import mann_whitney
from trainables.reports import Member, ModelError
from trainables.sections import Value
from trainables.tasks.images.model import ImageModel, inputs_of
from trainables.tasks.images.preflight import check_classes
from trainables.tasks.images.stream import make_splits
from trainables.training.model_file import TrainedModel, pack_model, unpack_model
from trainables.training.train import Callbacks, train


def image_model(name: str = "vje", **changes: Value) -> ImageModel:
    config, method = config_of(name, **changes), model_of(name)
    assert isinstance(config, ImageTrial) and isinstance(method, ImageMethod)
    return ImageModel(config, method, inputs_of(load("digits", HERE)))


def digits() -> torch.Tensor:
    images = load("digits", HERE).test_images
    assert isinstance(images, torch.Tensor)
    return images


def test_types_and_layouts_are_prepared_as_in_training() -> None:
    model, images_BCHW, expected_BCHW = image_model(), digits()[:20], images_of_tests()[:20]
    for images in (
        images_BCHW,
        images_BCHW.numpy(),
        images_BCHW.permute(0, 2, 3, 1),
        images_BCHW[:, 0],
        images_BCHW.float() / 16,
        (images_BCHW.numpy() / 16).astype(np.float64).transpose(0, 2, 3, 1),
    ):
        torch.testing.assert_close(model.prepare(images), expected_BCHW)
    halves = image_model(binarise=True, normalise=False).prepare(images_BCHW)
    assert torch.equal(halves, (images_BCHW > 8).float())


@for_each(
    ("images", "message"),
    [
        (
            torch.zeros(2, 1, 9, 9),
            r"images must have the shape \[B, 1, 8, 8\] or \[B, 8, 8, 1\], but got \[2, 1, 9, 9\]",
        ),
        (torch.zeros(8, 8), r"but got \[8, 8\]"),
        (
            torch.full((1, 8, 8), 17, dtype=torch.uint8),
            r"of uint8 images must be in \[0, 16\], but got 17 to 17",
        ),
        (torch.full((1, 8, 8), 1.5), r"pixels of float images must be in \[0, 1\], but got 1.5 to 1.5"),
        (torch.full((1, 8, 8), torch.nan), r"must be in \[0, 1\], but got nan to nan"),
        (torch.zeros(1, 8, 8, dtype=torch.int64), r"images must be uint8, or floats in \[0, 1\], but got torch.int64"),
    ],
)
def test_other_images_are_refused(images: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        image_model().embed(images)


def test_what_a_method_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"simclr must be able to decode for this call, but can only embed"):
        image_model("simclr").reconstruct(digits()[:2])
    with pytest.raises(ValueError, match="simclr has no anomaly scores"):
        image_model("simclr").score(digits()[:2])


def test_any_number_of_images_is_taken_and_only_a_call_has_gradients() -> None:
    model, images = image_model(), digits()
    scores, vectors = [model.score(images, name) for name in model.scores], model.embed(images)
    assert {len(score) for score in scores} == {len(images)} and len(images) > BATCH
    torch.testing.assert_close(model.embed(images[BATCH:])["z"], vectors["z"][BATCH:])
    z_BD = model(images[:10])
    torch.testing.assert_close(z_BD, vectors["z"][:10])
    assert z_BD.requires_grad and not vectors["z"].requires_grad
    assert {len(vector) for vector in model.embed(images[:0]).values()} == {0}


def trained(data: Path = HERE, **changes: Value) -> tuple[ImageTrial, TrainedModel, Member]:
    """A trial on one class, its model as its file gives it, and its last results."""
    small: dict[str, Value] = {"encoder": "mlp", "width": 16, "features": 8, "batch_size": 16}
    small |= {"bottleneck": 8} if changes.get("method", "vje") == "vje" else {}
    trial: dict[str, Value] = {"method": "vje", "normal_class": 3, "validation": 0.2, "epochs": 1, "lr": 0.02}
    config = image_trial({**trial, **small, **changes})
    models: list[TrainedModel] = []
    *_, last = train([config], data, callbacks=Callbacks(keep=lambda _, model: models.append(model)))
    return config, unpack_model(pack_model(models[0], {})), last.members[0]


def test_a_classifier_that_was_loaded_gives_the_probabilities_of_its_classes() -> None:
    config, trained_model, member = trained(method="classifier", normal_class=None, lr=0.1, epochs=3)
    assert dict(trained_model.shapes) == {"views": (1, 8, 8), "logits": (10,)}
    model, tested = trained_model.build(), load("digits", HERE)
    assert isinstance(model, ImageModel)
    probabilities = model.classify(digits())
    assert probabilities.shape == (len(digits()), len(model.classes)) and not probabilities.requires_grad
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(len(digits())))
    right = (probabilities.argmax(-1) == tested.test_labels).double().mean().item()
    assert right == pytest.approx(member.metrics["accuracy"]) and right > 0.5
    with pytest.raises(ValueError, match="vje must be able to classify for this call, but can only embed, score"):
        image_model().classify(digits()[:2])
    with pytest.raises(
        ValueError, match="method=classifier refers to the 10 classes on which the model was trained, but x"
    ):
        check_classes(config, Classifier, 10, replace(tested, name="x", classes=("a", "b")))


@pytest.fixture(scope="module")
def one_class() -> tuple[ImageTrial, TrainedModel, Member]:
    return trained()


def test_the_score_that_was_best_on_validation_images_is_the_chosen_one(
    one_class: tuple[ImageTrial, TrainedModel, Member],
) -> None:
    _, trained_model, member = one_class
    model = trained_model.build()
    assert isinstance(model, ImageModel)
    by_name = {name: member.metrics[f"val_auroc_{name}"] for name in model.scores}
    assert model.chosen_score == max(by_name, key=lambda name: by_name[name] or 0.0)
    assert model.chosen_by == f"val_auroc_{model.chosen_score}" and len(set(by_name.values())) > 1
    torch.testing.assert_close(model.score(digits()), model.score(digits(), model.chosen_score))
    with pytest.raises(ValueError, match=r"no score 'jont' \(did you mean 'joint'\?\); there are: joint, dir"):
        model.score(digits(), "jont")


def test_held_out_normal_images_give_the_threshold_of_any_rate(
    one_class: tuple[ImageTrial, TrainedModel, Member],
) -> None:
    config, trained_model, _ = one_class
    model = trained_model.build()
    assert isinstance(model, ImageModel)
    validation = make_splits(load("digits", HERE), config.data).validation
    assert validation is not None and validation.outlier is not None
    normal = validation.test_images[:][~validation.outlier]
    assert len(normal) == 26
    for name in model.scores:
        expected = model.score(normal, name)
        torch.testing.assert_close(model.held_out[name], expected)
        assert model.threshold_at(0.1, name) == model.held_out[name].sort().values[26 - 2]  # at most 2 of 27
    with pytest.raises(
        ValueError, match=r"a threshold needs a false-alarm rate: load_model\(\.\.\., alarm_rate=0\.01\)"
    ):
        _ = model.threshold
    model.alarm_rate = 0.04
    assert model.threshold == model.held_out[model.chosen_score].max()
    with pytest.raises(ValueError, match=r"a false-alarm rate of 0\.03 needs at least 33 held-out normal images"):
        model.threshold_at(0.03)


def test_the_sample_grid_shows_the_images_with_the_highest_and_the_lowest_chosen_scores() -> None:
    config, trained_model, member = trained(sheets=True)
    model, tested = trained_model.build(), load("digits", HERE)
    assert isinstance(model, ImageModel) and config.data.normal_class is not None
    with np.load(io.BytesIO(member.pictures["anomalies.npz"]), allow_pickle=False) as grid:
        scores = model.score(tested.test_images)
        assert str(grid["score"]) == model.chosen_score and tuple(grid["classes"]) == tested.classes
        np.testing.assert_allclose(grid["scores"], scores, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(grid["outlier"], tested.test_labels != config.data.normal_class)
        np.testing.assert_array_equal(grid["held_out"], model.held_out[model.chosen_score])
        order = np.argsort(-grid["scores"], kind="stable")
        assert grid["places"].tolist() == [*order[:20], *order[-20:]]
        white = torch.from_numpy(grid["shown"]).permute(0, 3, 1, 2) / 255
        torch.testing.assert_close(white, digits()[grid["places"]] / 16, atol=0.51 / 255, rtol=0)


def test_a_model_that_was_kept_before_loads_with_its_default_score(
    one_class: tuple[ImageTrial, TrainedModel, Member],
) -> None:
    _, trained_model, _ = one_class
    known = {name: trained_model.inputs[name] for name in inputs_of(load("digits", HERE))}
    model = replace(trained_model, inputs=known, arrays={}).build()
    assert isinstance(model, ImageModel)
    assert model.chosen_score == "joint" and model.chosen_by is None and not model.held_out
    with pytest.raises(ValueError, match="needs at least 9 held-out normal images, but there are none; hold some out"):
        model.threshold_at(0.1)


FITTED: dict[str, Value] = {"method": "simclr", "projector_width": 8, "projection": 4}
FITTED |= {"one_class_scores": "knn1+kde+ocsvm+forest+gaussian"}


@pytest.fixture(scope="module")
def contrastive() -> tuple[ImageTrial, TrainedModel, Member]:
    """A method without scores of its own, whose scores are fitted to its representation and its projection."""
    return trained(HERE, **FITTED)


def count_calls(module: nn.Module) -> list[None]:
    """A list that grows by one whenever the module is called."""
    calls: list[None] = []
    module.register_forward_pre_hook(lambda *_: calls.append(None))
    return calls


@pytest.mark.slow
def test_a_method_that_can_only_embed_scores_images_by_its_kept_training_vectors(
    contrastive: tuple[ImageTrial, TrainedModel, Member],
) -> None:
    """The scores and the AUROC are those that were recorded, also from the file alone."""
    config, trained_model, member = contrastive
    model, tested = trained_model.build(), load("digits", HERE)
    assert isinstance(model, ImageModel)
    assert {"knn1_z", "kde_projection", "forest_z"} < set(model.scores) and len(model.scores) == 10
    assert config.data.normal_class is not None
    outlier_N = (tested.test_labels != config.data.normal_class).numpy()
    for name in model.scores:
        scores_N = model.score(tested.test_images, name).double().numpy()
        recorded = member.metrics[f"auroc_{name}"]
        assert mann_whitney(scores_N[~outlier_N], scores_N[outlier_N]) == pytest.approx(recorded, abs=1e-4), name
    validation = make_splits(tested, config.data).validation
    assert validation is not None and validation.outlier is not None
    normal = validation.test_images[:][~validation.outlier]
    for name in model.scores:
        torch.testing.assert_close(model.held_out[name], model.score(normal, name), rtol=1e-3, atol=1e-3)
    passes = count_calls(model.method.encoder)
    together = model.score_all(tested.test_images)
    assert [*together] == [*model.scores] and len(passes) == 2 * -(-len(tested.test_images) // BATCH), (
        "z and projection"
    )
    for name in model.scores:
        torch.testing.assert_close(together[name], model.score(tested.test_images, name))
    chosen = member.metrics[f"auroc_{model.chosen_score}"]
    assert member.metrics["auroc_chosen"] == chosen and model.chosen_by == f"val_auroc_{model.chosen_score}"
    assert 0 < (member.metrics["auroc_margin"] or 0) < 0.1
    with pytest.raises(ValueError, match=r"no score 'knn2_z' .*; there are: knn1_z"):
        model.score(tested.test_images, "knn2_z")


@pytest.mark.slow
def test_of_many_training_vectors_as_many_are_kept_as_fit_and_thresholds_are_by_these(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_class_scores, "KEPT_BYTES", 4 * 8 * 30)
    config, trained_model, _ = trained(HERE, **FITTED)
    model = trained_model.build()
    assert isinstance(model, ImageModel)
    lengths = {name: len(array) for name, array in trained_model.arrays.items() if name.startswith("vectors/")}
    assert lengths == {"vectors/z": 30, "vectors/projection": 60}
    validation = make_splits(load("digits", HERE), config.data).validation
    assert validation is not None and validation.outlier is not None
    normal = validation.test_images[:][~validation.outlier]
    for name in model.scores:
        torch.testing.assert_close(model.held_out[name], model.score(normal, name), rtol=1e-3, atol=1e-3)


def test_what_a_method_has_itself_comes_before_what_is_fitted() -> None:
    _, trained_model, member = trained(one_class_scores="knn1")
    model = trained_model.build()
    assert isinstance(model, ImageModel)
    assert model.scores == ("joint", "dir", "rad", "variance", "entropy", "knn1_z", "knn1_mu")
    names = [name for name in member.metrics if name.startswith("auroc_")]
    by_validation = {name: member.metrics[f"val_auroc_{name}"] for name in model.scores}
    assert names and model.chosen_score == max(by_validation, key=lambda name: by_validation[name] or 0)


@for_each(
    ("inputs", "arrays"),
    [
        ({"score": "secret"}, {}),
        ({"alarm_rate": "often"}, {}),
        ({}, {"held_out/joint": torch.zeros(2, 2)}),
        ({}, {"held_out/joint": torch.tensor([torch.nan])}),
        ({}, {"held_out/secret": torch.zeros(2)}),
        ({"scores": ["secret"]}, {}),
        ({}, {"vectors/z": torch.zeros(3)}),
    ],
)
def test_what_was_kept_must_suit_the_model(
    one_class: tuple[ImageTrial, TrainedModel, Member], inputs: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]
) -> None:
    _, trained_model, _ = one_class
    inputs, arrays = {**trained_model.inputs, **inputs}, {**trained_model.arrays, **arrays}
    with pytest.raises(ModelError, match="vje cannot be built from it"):
        replace(trained_model, inputs=inputs, arrays=arrays).build()


def test_normal_images_alone_have_a_threshold_but_no_chosen_score(tmp_path: Path) -> None:
    """A folder whose training images are all normal, as most users have one."""
    images = write_own_images(tmp_path, ("bad", "good"), train=20, test=8)
    shutil.rmtree(images / "train/bad")
    digest = list_folder(images).digest
    small: dict[str, Value] = {"image_size": 8, "image_channels": 1, "normal_class": 1, "batch_size": 8}
    _, trained_model, member = trained(images, dataset="folder", image_digest=digest, **small)
    model = trained_model.build()
    assert isinstance(model, ImageModel)
    assert "auroc_joint" in member.metrics and "val_posterior_entropy" in member.metrics
    assert not [name for name in member.metrics if name.startswith("val_auroc")]
    assert model.chosen_score == "joint" and model.chosen_by is None
    assert {len(scores) for scores in model.held_out.values()} == {4}


def test_the_heat_of_a_reconstruction_adds_up_to_its_score() -> None:
    model, images_BCHW = image_model("autoencoder"), digits()[:300]
    heat_BHW = model.heat(images_BCHW)
    assert model.has_heat and heat_BHW.shape == (300, 8, 8)
    torch.testing.assert_close(heat_BHW.sum((1, 2)), model.score(images_BCHW, "reconstruction"))
    with pytest.raises(
        ValueError, match="a heat map needs a method that decodes, patchcore, or method=pixels with a fitted "
    ):
        image_model("vje").heat(images_BCHW)


def test_the_heat_of_pixels_is_the_difference_from_the_nearest_training_image() -> None:
    """Its sum is the square of the distance that is the score knn1."""
    config, trained_model, _ = trained(method="pixels", epochs=0, report_every=1, one_class_scores="knn1")
    assert config.method == "pixels"
    model = trained_model.build()
    assert isinstance(model, ImageModel) and model.has_heat
    changed = digits()[:20].clone()
    changed[:, :, 2, 3] = 16 - changed[:, :, 2, 3]
    heat_BHW = model.heat(changed)
    torch.testing.assert_close(heat_BHW.sum((1, 2)), model.score(changed, "knn1_z").square(), atol=1e-3, rtol=1e-3)
    assert (heat_BHW >= 0).all() and heat_BHW[:, 2, 3].mean() > 2 * heat_BHW.mean()
