"""The sections of a config: names joined by +, zero epochs, batches that are split over workers."""

from typing import Any

import pytest

from trainables.config.training import Training
from trainables.data.outliers import OUTLIERS
from trainables.tasks.images.config import Data, Evaluation


@pytest.mark.parametrize(("text", "classes"), [("", ()), ("3", (3,)), ("0", (0,)), ("2+7+10", (2, 7, 10))])
def test_held_out_classes_are_indices(text: str, classes: tuple[int, ...]) -> None:
    assert Data(held_out=text).held_out_classes == classes


@pytest.mark.parametrize("text", ["x", "3,4", "-1", "1.0", "3+", "+", "3++4", " 3", "5+3", "3+3+4", "03"])
def test_held_out_is_nothing_but_indices(text: str) -> None:
    with pytest.raises(ValueError) as error:
        Data(held_out=text)
    assert str(error.value) == f"held_out must be ascending class indices joined by +, but got held_out={text}"


@pytest.mark.parametrize(("text", "sets"), [("", ()), ("svhn", ("svhn",)), ("noise+held_out", ("noise", "held_out"))])
def test_sets_of_outliers_are_names(text: str, sets: tuple[str, ...]) -> None:
    assert Evaluation(outliers=text).outlier_sets == sets


def test_every_set_of_outliers_may_be_asked_for() -> None:
    assert Evaluation(outliers="+".join(OUTLIERS)).outlier_sets == OUTLIERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shn", "no outliers 'shn' (did you mean 'svhn'?); there are: "),
        ("svhn+", "no outliers ''; there are: "),
        ("imagenet", "no outliers 'imagenet'"),
        ("svhn+noise+svhn", "each set of outliers must be named once, but got outliers=svhn+noise+svhn"),
    ],
)
def test_unknown_or_repeated_outliers_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Evaluation(outliers=text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("knn", -1, "`knn >= 0` must hold, but got knn=-1"),
        ("knn", 2.0, "knn must be a whole number, but got knn=2.0"),
        ("knn_temperature", 0.0, "`knn_temperature > 0` must hold, but got knn_temperature=0.0"),
        ("probe_epochs", -1, "`probe_epochs >= 0` must hold, but got probe_epochs=-1"),
        ("probe_lr", 0.0, "`probe_lr > 0` must hold, but got probe_lr=0.0"),
        ("probe_batch_size", 0, "`probe_batch_size >= 1` must hold, but got probe_batch_size=0"),
        ("probe_standardize", 1, "probe_standardize must be true or false, but got probe_standardize=1"),
    ],
)
def test_evaluations_out_of_range_are_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Evaluation(**{field: value})
    assert str(error.value) == message


def test_zero_epochs_allow_no_warm_up() -> None:
    assert Training(epochs=0).warmup_epochs == 0
    with pytest.raises(ValueError, match=r"^`warmup_epochs < epochs` must hold, but got warmup_epochs=1, epochs=0$"):
        Training(epochs=0, warmup_epochs=1)
    assert Training(epochs=2, warmup_epochs=1).epochs == 2


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 1), (2, 1), (64, 32), (6, 3)])
def test_a_batch_is_split_into_equal_parts(batch_size: int, workers: int) -> None:
    assert Training(batch_size=batch_size, workers=workers).workers == workers


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 3), (64, 64), (4, 8), (6, 4)])
def test_a_batch_that_cannot_be_split_is_refused(batch_size: int, workers: int) -> None:
    with pytest.raises(ValueError) as error:
        Training(batch_size=batch_size, workers=workers)
    assert str(error.value) == (
        f"batch_size must be a multiple of workers, at least 2 for each, but got batch_size={batch_size}, "
        f"workers={workers}"
    )


@pytest.mark.parametrize("workers", [0, -2, 1.0, True])
def test_workers_must_be_a_positive_integer(workers: int) -> None:
    with pytest.raises(ValueError, match=r"workers must be a whole number|`workers >= 1` must hold"):
        Training(workers=workers)
