"""The sections of evaluations: names joined by +, ranges, and what a key needs another one for."""

from typing import Any

import pytest

from trainables.data.outliers import OUTLIERS
from trainables.image_trial import ContentEvaluation, Evaluation, Generation


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


@pytest.mark.parametrize(("text", "names"), [("", ()), ("ink", ("ink",)), ("hue+ink", ("hue", "ink"))])
def test_styles_are_names(text: str, names: tuple[str, ...]) -> None:
    assert ContentEvaluation(content_probe_epochs=1, styles=text).style_names == names


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"content_probe_epochs": -1}, "`content_probe_epochs >= 0` must hold, but got content_probe_epochs=-1"),
        ({"content_probe_lr": 0.0}, "`content_probe_lr > 0` must hold, but got content_probe_lr=0.0"),
        (
            {"content_probe_batch_size": 0},
            "`content_probe_batch_size >= 1` must hold, but got content_probe_batch_size=0",
        ),
        ({"content_probe_width": -1}, "`content_probe_width >= 0` must hold, but got content_probe_width=-1"),
        ({"content_knn": 1.0}, "content_knn must be a whole number, but got content_knn=1.0"),
        ({"gmm_n_init": -1}, "`gmm_n_init >= 0` must hold, but got gmm_n_init=-1"),
        ({"styles": "ink"}, "styles needs content_probe_epochs of at least 1, but got styles=ink"),
        (
            {"styles": "ink+hue+ink", "content_probe_epochs": 1},
            "each attribute must be named once, but got styles=ink+hue+ink",
        ),
    ],
)
def test_evaluations_of_content_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        ContentEvaluation(**values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("values", "decodes"),
    [({}, False), ({"adhoc_epochs": 5}, False), ({"reconstructions": True}, True), ({"samples_per_class": 1}, True)],
)
def test_images_are_decoded_for_reconstructions_and_samples(values: dict[str, Any], decodes: bool) -> None:
    assert Generation(**values).decodes == decodes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"reconstructions": 1}, "reconstructions must be true or false, but got reconstructions=1"),
        ({"samples_per_class": -1}, "`samples_per_class >= 0` must hold, but got samples_per_class=-1"),
        ({"adhoc_epochs": -1}, "`adhoc_epochs >= 0` must hold, but got adhoc_epochs=-1"),
        ({"adhoc_lr": 0.0}, "`adhoc_lr > 0` must hold, but got adhoc_lr=0.0"),
        ({"adhoc_patience": 0}, "`adhoc_patience >= 1` must hold, but got adhoc_patience=0"),
        ({"fid_weights": "x.pth"}, "fid_weights needs samples_per_class of at least 1, but got samples_per_class=0"),
        ({"sheets": True}, "sheets needs reconstructions, or samples_per_class of at least 1, but there are neither"),
    ],
)
def test_evaluations_of_decoded_images_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Generation(**values)
    assert str(error.value) == message
