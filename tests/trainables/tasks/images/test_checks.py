"""What the sections of a trial on images must agree on, checks before anything trains, and images that a trained model
takes as users have them.

Shapes: B images of C channels, H by W pixels.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cases import for_each
from tests.image_files import write_broken, write_imagenet
from tests.trainables.small import IMAGE_METHODS, image_trial
from trainables.config import resolve
from trainables.data.datasets.catalog import DATASETS, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.own_data import list_own_data
from trainables.data.errors import DataError
from trainables.image_trial import LatentDensity
from trainables.networks.pretrained import TORCHVISION
from trainables.networks.trial_networks import PUBLISHED_SIZES
from trainables.sections import TrialConfig, Value
from trainables.tasks.images import preflight
from trainables.tasks.images.preflight import is_misspelt
from trainables.training.checks import check_trials
from trainables.training.cohort import TrainingCohort
from trainables.training.metric_names import metric_names


def _error(method: str = "vje", /, **values: Value) -> str:
    with pytest.raises(ValueError) as error:
        resolve({"method": method, **values})
    assert "\n" not in str(error.value)
    return str(error.value)


@for_each(
    ("key", "value"),
    [
        *(("knn", 30), ("probe_epochs", 1), ("outliers", "noise"), ("held_out", "3"), ("content_probe_epochs", 1)),
        *(("content_knn", 1), ("gmm_n_init", 1), ("reconstructions", True), ("samples_per_class", 2)),
    ],
)
def test_trials_on_one_class_refuse_other_evaluations(key: str, value: Value) -> None:
    values: dict[str, Value] = {key: value, "adhoc_epochs": 1}
    assert image_trial({"method": "vje", **values}).flat()[key] == value
    expected = f"{key} needs trials on all classes, but got {key}={value} with a normal_class"
    assert _error(normal_class=0, **values) == expected  # class 0 is a class


@for_each("method", [name for name, cls in IMAGE_METHODS.items() if not cls.scores])
def test_outliers_need_scores(method: str) -> None:
    scoring = [name for name, cls in IMAGE_METHODS.items() if cls.scores]
    expected = f"{method} has no anomaly scores for outliers; methods with them are: {', '.join(scoring)}"
    assert _error(method, outliers="noise", epochs=0) == expected and "vje" in scoring


def test_a_method_that_reads_labels_needs_all_of_them_and_several_classes() -> None:
    law = "classifier needs the label of every training image"
    refused = f"{law} and several classes, so normal_class must be none, but got 0"
    assert _error("classifier", normal_class=0) == refused
    assert _error("classifier", dataset="stl10") == f"{law}, but 100000 images of stl10 have none"
    assert image_trial({"method": "classifier", "dataset": "stl10", "held_out": "3"}).data.held_out == "3"


@pytest.mark.parametrize("unlabelled", [4, 12])
def test_own_images_without_labels_are_refused_by_a_method_that_reads_them(tmp_path: Path, unlabelled: int) -> None:
    """Some of them or all, before anything is loaded."""
    labels = np.array([0, 1] * 6)
    for part, hidden in (("train", unlabelled), ("test", 0)):
        pixels = np.random.default_rng(hidden).integers(0, 255, (12, 8, 8, 1), dtype=np.uint8)
        np.save(tmp_path / f"{part}_images.npy", pixels)
        if unlabelled < 12:
            np.save(tmp_path / f"{part}_labels.npy", np.where(np.arange(12) < hidden, -1, labels))
    digest = list_own_data("arrays", tmp_path, whole=False).digest
    values: dict[str, Value] = {"dataset": "arrays", "image_digest": digest, "image_size": 8, "image_channels": 1}
    assert image_trial({"method": "vje", **values}).folder.image_digest == digest
    images = "the images" if unlabelled == 12 else "4 images"
    refused = f"classifier needs the label of every training image, but {images} of arrays have none"
    assert _error("classifier", **values) == refused


def test_held_out_outliers_need_held_out_classes() -> None:
    expected = "outliers=held_out needs held-out classes, but got held_out=''"
    assert _error(outliers="noise+held_out") == expected
    config = image_trial({"method": "vje", "outliers": "held_out", "held_out": "3"})
    assert config.evaluation.outlier_sets == ("held_out",)


@for_each("encoder", [name for name in PUBLISHED_SIZES if name not in TORCHVISION])
@for_each("method", IMAGE_METHODS)
def test_a_method_of_several_outputs_needs_an_encoder_whose_size_can_be_chosen(method: str, encoder: str) -> None:
    values: dict[str, Value] = {"encoder": encoder, "epochs": 0}
    if IMAGE_METHODS[method].outputs == 1:
        assert image_trial({"method": method, **values}).encoder.encoder == encoder
    else:
        message, _, choices = _error(method, **values).partition("; there are: ")
        law = f"{method} needs an encoder of configurable size, but {encoder} has its published size"
        assert message == law and "convnet" in choices and not any(name in choices for name in PUBLISHED_SIZES)


def test_images_of_a_method_without_a_decoder_need_one_trained_for_them() -> None:
    message, _, advice = _error(reconstructions=True).partition("; for others set ")
    lack, _, decoding = message.partition("; methods with them are: ")
    assert lack == "vje has no decoded images for reconstructions"
    assert advice == "adhoc_epochs to at least 1, which trains a decoder"
    assert decoding.split(", ") == [name for name, cls in IMAGE_METHODS.items() if "decode" in cls.capabilities]
    for method, values in (("vje", {"adhoc_epochs": 1}), (decoding.split(", ")[0], {})):
        assert image_trial({"method": method, "reconstructions": True, **values}).generation.decodes


@pytest.mark.parametrize(
    ("method", "values"),
    [("vae", {}), ("cr_vae", {}), ("simclr", {"reconstructions": True, "adhoc_epochs": 1})],
)
def test_a_decoder_suits_the_size_of_the_images(method: str, values: dict[str, Value]) -> None:
    """That of a method that has one, or of a method that gets one; another is not looked at."""
    deconv: dict[str, Value] = {"method": method, "decoder": "simvae_deconv"}
    assert image_trial({**deconv, **values, "dataset": "cifar10"}).layers.decoder == "simvae_deconv"
    assert _error(**{**deconv, **values, "dataset": "mnist"}) == (
        "height and width must be multiples of 16 (32x32, 64x64) for decoder=simvae_deconv, but are 28x28; "
        "relu_mlp and strided_deconv decode to any size"
    )
    assert image_trial({**deconv, "method": "simclr", "dataset": "mnist"}).data.dataset == "mnist"


def test_samples_need_all_classes() -> None:
    expected = "samples_per_class needs training images of each class, but some classes are held out"
    assert _error(samples_per_class=2, adhoc_epochs=1, held_out="3") == expected


def test_styles_are_attributes_of_the_data_set() -> None:
    values: dict[str, Value] = {"content_probe_epochs": 1, "styles": "ink"}
    assert image_trial({"method": "vje", **values}).content.style_names == ("ink",)
    assert _error(dataset="cifar10", **values) == "cifar10 has no attributes for styles, but got styles=ink"
    assert _error(**{**values, "styles": "hue"}).startswith("no styles 'hue'; there are: ")


@pytest.mark.parametrize(("method", "values", "encoded"), [("cr_vae", {}, 2), ("simvae", {"views": 7}, 7)])
def test_a_batch_of_views_counts_all_that_a_step_encodes(method: str, values: dict[str, Value], encoded: int) -> None:
    """J views, or the plain image and a view."""
    views: dict[str, Value] = {**values, "batch_unit": "views"}
    assert image_trial({"method": method, **views, "batch_size": 2 * encoded}).gradient.batch_size == 2 * encoded
    message = _error(method, **views, batch_size=2 * encoded - 1)
    assert f"batch_size must be at least {2 * encoded} for {method} with batch_unit=views" in message


@pytest.mark.parametrize("method", ["simclr", "vje"])
def test_a_batch_of_views_has_at_least_two_images_and_one_worker(method: str) -> None:
    assert image_trial({"method": method, "batch_unit": "views", "batch_size": 4}).gradient.batch_size == 4
    assert _error(method, batch_unit="views", batch_size=3) == (
        "a batch must contain the views of at least 2 images, so batch_size must be at least 4 for "
        f"{method} with batch_unit=views, but got batch_size=3"
    )
    if IMAGE_METHODS[method].per_example:
        assert _error(method, batch_unit="views", workers=2) == "batch_unit=views needs one worker, but got workers=2"


def test_colours_of_image_files_are_jittered_after_the_crop() -> None:
    """They are cropped while they are decoded."""
    assert image_trial({"method": "vje", "jitter_first": True}).pixel_views.jitter_first
    message = _error(jitter_first=True, dataset="imagenet")
    assert message.startswith("image files are cropped while they are decoded, so jitter_first must be false for ")


DECODED: dict[str, Value] = {"adhoc_epochs": 1}


def test_a_trial_that_asks_for_no_density_has_no_keys_of_one() -> None:
    """So the ids of earlier trials are what they were."""
    assert not any(key.startswith("density") for key in image_trial({"method": "simclr"}).flat())
    asking = image_trial({"method": "simclr", "density": "gmm", **DECODED}).flat()
    assert {key for key in asking if key.startswith("density")} == set(vars(LatentDensity()))


@for_each(
    ("method", "values", "message"),
    [
        ("simclr", {"density": "gmm"}, "density=gmm needs adhoc_epochs of at least 1"),
        ("simclr", {"density": "own", **DECODED}, "simclr has no density for density; methods with them are: gmje"),
        (
            *("gmje_parametric", {"density": "own", **DECODED}),
            "the density of gmje_parametric must be over representations, so projector_width must be 0, but got ",
        ),
        (
            *("simclr", {"density": "gmm", "samples_per_class": 2, **DECODED}),
            "samples come either from density or from each class, so samples_per_class must be 0",
        ),
        (
            *("simclr", {"density": "gmm", "normal_class": 0, **DECODED}),
            "density needs trials on all classes, but got density=gmm with a normal_class",
        ),
        (
            *("simclr", {"density": "gmm", "dataset": "mnist", "decoder": "simvae_deconv", **DECODED}),
            "height and width must be multiples of 16",
        ),
    ],
)
def test_a_density_that_cannot_be_sampled_or_decoded_is_refused(
    method: str, values: dict[str, Value], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        resolve({"method": method, **values})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_real_images_need_no_decoder() -> None:
    asked = image_trial({"method": "pixels", "epochs": 0, "density": "images"}).latent_density
    assert asked.evaluated and not asked.decoded and not asked.sampled


CPU = torch.device("cpu")


def _config(**changes: Value) -> TrialConfig:
    return resolve({"method": "vje", "batch_size": 60, **changes})


def test_steps_are_those_of_each_trial_in_order(tmp_path: Path) -> None:
    configs = [_config(), _config(normal_class=3), _config(normal_class=3, batch_size=100, seed=4), _config(beta=2)]
    assert [result.steps for result in check_trials(configs, tmp_path)] == [21, 2, 1, 21]


def test_a_class_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        check_trials([_config(normal_class=3), _config(normal_class=10)], tmp_path)
    assert str(error.value) == "normal_class must be one of 0..9 for digits, but got 10"


def test_a_batch_larger_than_its_class_is_refused(tmp_path: Path) -> None:
    """It is refused although another trial on the same class fits."""
    with pytest.raises(ValueError, match=r"^batch_size must not exceed the 12\d training images of digits with "):
        check_trials([_config(normal_class=3), _config(normal_class=3, batch_size=400)], tmp_path)


def test_data_that_cannot_be_loaded_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(root: Path) -> Dataset:
        raise DataError(f"gone from {root}")

    monkeypatch.setitem(DATASETS, "mnist", replace(DATASETS["mnist"], load=absent))
    with pytest.raises(DataError, match="gone from"):
        check_trials([_config(), _config(dataset="mnist")], tmp_path)


def test_each_data_set_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(name: str, root: Path) -> Dataset:
        calls.append(name)
        return load(name, root)

    monkeypatch.setattr(preflight, "load", counted)
    check_trials([_config(normal_class=digit, seed=seed) for digit in range(3) for seed in range(3)], tmp_path)
    assert calls == ["digits"]


def test_metric_names_follow_from_the_data_and_the_evaluation(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    files = _config(dataset="imagenet", batch_size=4, probe_epochs=1)
    configs = [_config(knn=5), files, _config(normal_class=3), _config(held_out="3", outliers="held_out")]
    trials = check_trials(configs, tmp_path)
    expected = [metric_names(config, 3 if config is files else 10) for config in configs]
    assert [result.metrics for result in trials] == expected
    assert trials[1].steps == 3 and "probe_top5_z" not in trials[1].metrics


def test_held_out_classes_leave_fewer_steps(tmp_path: Path) -> None:
    trials = check_trials([_config(), _config(held_out="3"), _config(held_out="0+1+2+3+4")], tmp_path)
    assert [result.steps for result in trials] == [21, 18, 10]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "each held-out class must be one of 0..9 for digits, but got 10"),
        ("4+4", "held_out must be ascending class indices joined by +, but got held_out=4+4"),
        ("0+1+2+3+4+5+6+7+8", "of the 10 classes of digits at least one must be held out and two must be left, "),
    ],
)
def test_classes_that_cannot_be_held_out_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        check_trials([_config(), _config(held_out=text)], tmp_path)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("key", ["knn", "content_knn"])
def test_neighbours_are_at_most_as_many_as_labelled_images(key: str, tmp_path: Path) -> None:
    """Each trial is checked, even if another one on the same data fits."""
    assert check_trials([_config(**{key: 1260})], tmp_path)[0].steps == 21
    with pytest.raises(ValueError) as error:
        check_trials([_config(**{key: 5}), _config(**{key: 1261})], tmp_path)
    message = f"{key} must not exceed the 1260 labelled training images of digits, but got {key}=1261"
    assert str(error.value) == message
    with pytest.raises(ValueError, match=rf"^{key} must not exceed the 11\d\d labelled training images of digits, but"):
        check_trials([_config(held_out="3", **{key: 1260})], tmp_path)


def test_outliers_from_the_training_data_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^outliers must come from another data set than the training images, but"):
        check_trials([_config(outliers="noise"), _config(outliers="noise+digits")], tmp_path)
    with pytest.raises(ValueError, match=r"^outliers must have as many channels as the images of digits, 1, but those"):
        check_trials([_config(outliers="digits32")], tmp_path)


def test_weights_for_the_fid_must_exist_unless_trials_are_only_planned(tmp_path: Path) -> None:
    config = resolve({"method": "vae", "samples_per_class": 2, "fid_weights": str(tmp_path / "inception.pth")})
    assert "fid" in check_trials([config], None)[0].metrics
    with pytest.raises(ValueError, match=r"^FID needs"):
        check_trials([config], tmp_path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path)
    config = _config(dataset="imagenet", batch_size=4)
    assert check_trials([config], tmp_path)[0].steps == 3
    broken = write_broken(folder / "val/n01440764")
    with pytest.raises(DataError) as error:
        check_trials([config], tmp_path)
    images = 18 + len(broken)
    assert str(error.value) == (
        f"{len(broken)} of {images} images of imagenet cannot be read, the first is "
        f"{folder / 'val/n01440764/cut.jpg'} (cut off); remove or replace them"
    )


def test_held_out_validation_images_leave_fewer_steps(tmp_path: Path) -> None:
    configs = [_config(normal_class=3, validation=share) for share in (0.0, 0.2)]
    assert [result.steps for result in check_trials(configs, tmp_path)] == [2, 1]
    with pytest.raises(ValueError, match=r"^knn must not exceed the 1008 labelled training images of digits"):
        check_trials([_config(knn=1009, validation=0.2)], tmp_path)


@pytest.mark.parametrize(("method", "changes"), [("vae", {}), ("cr_vae", {}), ("simvae", {"views": 7})])
def test_batches_of_views_make_as_many_steps_as_batches_of_images(method: str, changes: dict[str, Value]) -> None:
    """In training, too, where a step takes fewer images the more views it encodes of each."""
    config = resolve({"method": method, "batch_size": 60, "batch_unit": "views", "decoder_hidden": "8", **changes})
    assert check_trials([config], None)[0].steps == 1260 // 60 == TrainingCohort([config], Path(), CPU, None).steps


@for_each(
    ("name", "expected"),
    [
        *((name, True) for name in ("Good", "GOOD", "go od", "goood", "god", "gold", "_good")),
        *((name, False) for name in ("bad", "good2", "no good", "scratch", "goods of ours", "")),
    ],
)
def test_a_name_of_a_folder_that_may_be_a_misspelt_one(name: str, expected: bool) -> None:
    assert is_misspelt(name, "good") == is_misspelt("good", name) == expected
    assert not is_misspelt("abnormal", "normal") and not is_misspelt("type2", "type1")
    assert is_misspelt("OK", "ok") and not is_misspelt("nok", "ok")
