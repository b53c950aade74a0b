"""The plain trainable of Ray Tune, under ASHA in a real Tune run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from sweeper.execution.session import connected
from sweeper.models import load_model
from tests.trainables.small import HERE, config_of
from trainables.training.train import train
from trainables.worker import tune_trainable as module
from trainables.worker.tune_trainable import MODEL, STATE, tune_trainable

pytestmark = pytest.mark.slow

FIXED = {**config_of().flat(), "epochs": 4, "report_every": 1}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(None):
        yield


def test_asha_stops_the_worse_trial_and_the_better_has_its_model(tmp_path: Path) -> None:
    rates = [1e-3, 1e-6]
    scheduler = ASHAScheduler(time_attr="epoch", max_t=4, grace_period=1, reduction_factor=2)
    results = tune.Tuner(
        tune_trainable({key: value for key, value in FIXED.items() if key != "lr"}, HERE, save_every=0.0),
        param_space={"lr": tune.grid_search(rates)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="asha", verbose=0),
    ).fit()
    assert not results.errors
    ended: list[Any] = [results[index] for index in range(len(results))]
    epochs = {result.config["lr"]: result.metrics["epoch"] for result in ended}
    assert epochs == {1e-3: 4, 1e-6: 1}
    best: Any = results.get_best_result()
    (report,) = [report for report in train([config_of(**{**FIXED, "lr": best.config["lr"]})], HERE) if report.done]
    assert best.metrics["loss"] == pytest.approx(report.members[0].metrics["loss"], rel=1e-6)
    with best.checkpoint.as_directory() as folder:
        assert load_model(Path(folder) / MODEL).config.flat()["lr"] == best.config["lr"]


class Interrupted(Exception):
    pass


def test_a_restored_trial_continues_and_reports_no_epoch_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a cluster: Tune's functions are replaced by lists."""
    reported, checkpoints = list[dict[str, object]](), list[Any]()

    def report(metrics: dict[str, object], checkpoint: Any = None) -> None:
        reported.append(metrics)
        if checkpoint:
            folder = checkpoint.to_directory(str(tmp_path / str(len(reported))))
            checkpoints.append(tune.Checkpoint.from_directory(folder))
        if len(reported) == 2:
            raise Interrupted

    monkeypatch.setattr(tune, "report", report)
    monkeypatch.setattr(tune, "get_checkpoint", lambda: checkpoints[-1] if checkpoints else None)
    trial = config_of(**FIXED)
    with pytest.raises(Interrupted):
        module._train(trial, HERE, 0.0)
    with checkpoints[-1].as_directory() as folder:
        assert (Path(folder) / STATE).exists() and not (Path(folder) / MODEL).exists()
    module._train(trial, HERE, 0.0)
    assert [metrics["epoch"] for metrics in reported] == [1, 2, 3, 4]
    undisturbed = [report.members[0].metrics["loss"] for report in train([trial], HERE)]
    assert [metrics["loss"] for metrics in reported] == undisturbed


def test_a_trial_that_diverges_raises_and_a_wrong_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "report", lambda *_, **__: None)
    monkeypatch.setattr(tune, "get_checkpoint", lambda: None)
    with pytest.raises(FloatingPointError, match=r"^auroc_joint was not finite in epoch 1$"):
        module._train(config_of(**{**FIXED, "lr": 1e6}), HERE, 60.0)
    with pytest.raises(ValueError, match="no key 'learning_rate'"):
        tune_trainable({"method": "vje", "learning_rate": 0.1})
