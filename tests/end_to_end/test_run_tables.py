"""Whole sweeps that end in tables: many methods in one, and trials that several workers train together."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from search_spaces._protocols import METHODS
from sweeper.commands import run
from sweeper.commands.arguments import parse
from sweeper.planning.prepare import prepare
from sweeper.storage.load import load_history
from sweeper.storage.store import Store
from tests.end_to_end.sweeps import Sweeps, rows, title
from tests.fake_executor import without_ray
from tests.image_files import write_imagenet
from trainables.config import resolve
from trainables.training.train import train

pytestmark = pytest.mark.slow

EPOCHS = 6
GROUP = ["--set", "encoder=mlp", "--set", "width=8", "--set", "features=6", "--set", "bottleneck=8"]
GROUP += ["--set", "batch_size=12", "--set", "warmup_epochs=1", "--set", "report_every=2", "--set", "probe_epochs=3"]
GROUP += ["--axis", "seed=0", "--save-every", "0.1", "--set", f"epochs={EPOCHS}"]


def test_every_method_in_one_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "epochs=1", "--set", "report_every=1", "--set", "probe_epochs=1", "--axis", "seed=0,1"]
    arguments += ["--set", "encoder=mlp", "--set", "width=8", "--set", "features=8", "--set", "bottleneck=8"]
    with without_ray(tmp_path):
        status = run.main(["ssl_cifar10", "--preset", "digits", "--store", str(tmp_path), *arguments, "--cohort", "2"])
    out, err = capsys.readouterr()
    assert status == 0 and "21 finished of 21 trials" in out, out + err
    frame = rows(tmp_path, "ssl_cifar10")
    assert set(frame["method"]) == {*METHODS, "pixels", "random"}
    assert (frame["status"] == "finished").all() and len(frame) == 21
    untrained = frame["method"].isin(["pixels", "random"])
    assert (frame["epochs_run"] == np.where(untrained, 0, 1)).all() and frame["loss"].isna().eq(untrained).all()
    assert frame[["knn_z", "knn_weighted_z", "probe_z", "probe_top5_z"]].notna().all(axis=None)
    assert frame["probe_mu"].notna().eq(frame["method"] == "vje").all()
    (views,) = Store(tmp_path).files.list("tables/ssl_cifar10")
    assert views == "digits, bottleneck=8 encoder=mlp epochs=1 features=8 probe_epochs=1 report_every=1 width=8"
    table = pd.read_parquet(tmp_path / f"tables/ssl_cifar10/{views}/accuracy.parquet")
    for cell in table[table["metric"] == "probe_z"].to_dict("records"):
        width = frame["projector_width"]
        same_width = (width == cell["projector_width"]) | (width.isna() & pd.isna(cell["projector_width"]))
        trials = frame[(frame["method"] == cell["method"]) & same_width]
        assert len(trials) == cell["count"] == (1 if cell["method"] == "pixels" else 2)
        assert cell["mean"] == pytest.approx(trials["probe_z"].mean())
    assert (tmp_path / f"tables/ssl_cifar10/{views}/accuracy.md").read_text().count("\n| ") == 1 + 11
    points = pd.read_parquet(tmp_path / f"trajectories/ssl_cifar10/{views}/knn.parquet")
    assert set(points["epoch"]) == {0, 1} and (tmp_path / f"trajectories/ssl_cifar10/{views}/knn.png").exists()


@pytest.mark.soak
def test_a_group_of_workers_on_files(sweeps: Sweeps, tmp_path: Path) -> None:
    """Two workers over gloo train as one would. One of them is killed, and the group continues from its checkpoint.

    `test_two_processes_equal_one_with_the_whole_batch` of `test_data_parallel.py` asserts the first."""
    arguments = [*GROUP, "--data", str(tmp_path / "data"), "--set", "workers=2"]
    write_imagenet(tmp_path / "data", train=8, val=2)
    store = tmp_path / "group"
    sweep = sweeps.start(store, *arguments, name="imagenet_linear", preset="paper")
    sweep.wait_until(lambda: list(store.glob("checkpoints/sweep=imagenet_linear/*.pt")), "checkpoint")
    assert not any("PreemptionWatcher" in title(process) for process in sweep.processes()), "it serves nothing here"
    [worker for worker in sweep.trainers() if "RayTrainWorker" in title(worker)][-1].kill()
    outcome = sweep.outcome()
    assert outcome.status == 0 and "goes on from its checkpoint" in outcome.out, str(outcome)
    history = load_history("imagenet_linear", store)
    losses = history[history["metric"] == "loss"]["value"].to_numpy()
    single_worker = parse(["imagenet_linear", "--store", str(store), *arguments[:-1], "workers=1"])
    (trial,) = prepare(single_worker, Store(store))[0].trials
    reports = train([resolve(trial.config)], tmp_path / "data")
    assert losses == pytest.approx([report.members[0].metrics["loss"] for report in reports], rel=1e-4)
    assert len(losses) == EPOCHS / 2
    (file,) = store.glob("tables/imagenet_linear/*/accuracy.parquet")
    table = pd.read_parquet(file)
    assert table["mean"].notna().sum() == 1 and table["published"].isna().all(), "the paper's are of its own settings"
