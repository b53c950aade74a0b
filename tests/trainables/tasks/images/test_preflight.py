"""Checks of trials on images before anything trains."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.image_files import write_broken, write_imagenet
from trainables.config import resolve
from trainables.data.datasets.catalog import DATASETS, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.errors import DataError
from trainables.sections import TrialConfig, Value
from trainables.tasks.images import preflight
from trainables.training.checks import check_trials
from trainables.training.cohort import Cohort
from trainables.training.metric_names import metric_names

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
        ("0+1+2+3+4+5+6+7+8", "at least one class must be held out and two be left of the 10 of digits, but got 9 "),
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
    with pytest.raises(ValueError, match=r"^outliers must come from another set than the one trained on, but got 'di"):
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
    assert check_trials([config], None)[0].steps == 1260 // 60 == Cohort([config], Path(), CPU, None).steps
