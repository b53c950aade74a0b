"""A method as a plain Ray Tune trainable, for code that runs Tune itself. Sweeps do not need it.

from ray import tune

trainable = tune_trainable({"method": "vje", "dataset": "digits", "epochs": 20, "knn": 30}, data="data")
tuner = tune.Tuner(
    tune.with_resources(trainable, {"gpu": 0.25}),
    param_space={"lr": tune.loguniform(1e-4, 1e-2), "beta": tune.uniform(0, 2)},
    tune_config=tune.TuneConfig(metric="knn_z", mode="max", scheduler=tune.schedulers.ASHAScheduler(), num_samples=32),
)
results = tuner.fit()
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

from trainables.catalog import import_method
from trainables.config import keys, resolve_sent
from trainables.reports import SAVE_EVERY, Report
from trainables.sections import TrialConfig, Value
from trainables.training.model_file import TrainedModel, pack_model
from trainables.training.train import Callbacks, Checkpointing, train
from trainables.validation import unknown
from trainables.worker.ray_train import assigned_device

STATE, REPORTED, MODEL = "trial.pt", "reported", "model.safetensors"
"""Files of a checkpoint: the training's state, the last reported epoch, and, in the last checkpoint, the trained model,
which `sweeper.load_model` opens."""


def tune_trainable(
    fixed: Mapping[str, Value], data: str | Path = "data", save_every: float = SAVE_EVERY
) -> Callable[[Mapping[str, Value]], None]:
    """Return a Ray Tune trainable. Its config contains a trial's keys (`--describe METHOD` lists them) and takes
    precedence over `fixed`; missing keys have their defaults. Raises ValueError for an unknown key.

    It trains one trial on the device from Tune, in a TorchTrainer, and reports the trial's metrics and `epoch` (key
    `report_every`). Its checkpoint is renewed with a report, at most every `save_every` seconds; a restored trial
    continues bit for bit on a CPU. A trial that diverges raises FloatingPointError. Checkpoints of other configs are
    not used, so Tune's PBT does not work; use `Search(population=...)`.

    `data` is the folder of the data sets, on every node.
    """
    if "method" in fixed:
        method = str(fixed["method"])
        import_method(method)
        for key in fixed:
            if key not in keys(method):
                raise ValueError(unknown("key", key, sorted(keys(method)), f"--describe {method} lists its keys"))
    folder = str(Path(data).absolute())

    def trainable(config: Mapping[str, Value]) -> None:
        trial = resolve_sent({**fixed, **config})
        TorchTrainer(
            lambda _: _train(trial, Path(folder), save_every),
            train_loop_config={},
            scaling_config=ScalingConfig(num_workers=0),  # in this process
        ).fit()

    return trainable


def _train(trial: TrialConfig, data: Path, save_every: float) -> None:
    resumed, reported = _resumed()
    states, models = list[bytes](), list[bytes]()

    def keep(index: int, model: TrainedModel) -> None:
        models.append(pack_model(model, {}))

    reports = train(
        [trial],
        data,
        device=assigned_device(),
        checkpointing=Checkpointing(resumed, save=states.append, every=save_every),
        callbacks=Callbacks(keep=keep),
    )
    for report in reports:
        if report.epoch <= reported:  # reported before the checkpoint
            continue
        _raise_if_diverged(report)
        files = {STATE: states[-1:], MODEL: models, REPORTED: [str(report.epoch).encode()]}
        _report(report, {name: contents[0] for name, contents in files.items() if contents} if states or models else {})
        states.clear()


def _report(report: Report, files: Mapping[str, bytes]) -> None:
    """Report metrics to Tune, with a checkpoint of the files if there are any."""
    (member,) = report.members
    metrics: dict[str, Any] = {name: value for name, value in member.metrics.items() if value is not None}
    metrics["epoch"] = report.epoch
    if not files:
        tune.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def _resumed() -> tuple[bytes | None, int]:
    """The state to continue from, if any, and the last reported epoch; -1 at the start."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return None, -1
    with checkpoint.as_directory() as folder:
        state = Path(folder) / STATE
        return state.read_bytes() if state.exists() else None, int((Path(folder) / REPORTED).read_text())


def _raise_if_diverged(report: Report) -> None:
    (member,) = report.members
    if member.status == "diverged":
        raise FloatingPointError(member.error)
