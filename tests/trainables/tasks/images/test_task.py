"""The full evaluations of a method, and data that a process keeps."""

from pathlib import Path

import pytest

from tests.trainables.small import HERE, IMAGE_METHODS, image_trial
from trainables.catalog import task_of
from trainables.tasks.images import preflight
from trainables.tasks.images.task import Images
from trainables.training.metric_names import metric_names


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_full_evaluations_hold_the_metrics_of_every_evaluation(method: str) -> None:
    """Among them those of trials on one class, which are asked for alone."""
    evaluations = task_of(method).full_evaluations(IMAGE_METHODS[method])
    full = [image_trial({"method": method, "epochs": 0, **keys}) for keys in evaluations]
    names = {name for config in full for name in metric_names(config, 10)}
    for keys in ({"knn": 3}, {"probe_epochs": 2}, {"normal_class": 3}, {"content_knn": 2}, {"gmm_n_init": 3}):
        config = image_trial({"method": method, "epochs": 0, **keys})
        assert set(metric_names(config, 10)) <= names


def test_data_that_are_kept_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    real = preflight.load

    def load(name: str, data: Path) -> object:
        loaded.append(name)
        return real(name, data)

    preflight._kept.cache_clear()
    monkeypatch.setattr(preflight, "load", load)
    for seed in range(3):
        Images().keep_data(image_trial({"method": "vje", "seed": seed}), HERE)
    config = image_trial({"method": "vje"})
    assert loaded == ["digits"] and preflight.dataset_of(config, HERE) is preflight.dataset_of(config, HERE)
