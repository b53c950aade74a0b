"""Grids whose settings are compared at rungs: the worse end early, also after a kill, and no trials are mixed up."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.commands import run
from sweeper.definition import Grid, Halving, Sweep, Value, registry
from sweeper.definition.space import Space
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import FIXED, TINY, rows
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.usefixtures("unreported")

LONG: Mapping[str, Value] = {**FIXED, "epochs": 4, "lr": 0.01}
AXES: Mapping[str, tuple[Value, ...]] = {"beta": (0.5, 1.5, 3.0), "normal_class": (0, 1), "seed": (0, 1)}
PLAIN = Grid({key: value for key, value in LONG.items() if key not in AXES}, AXES)
RUNGS = replace(PLAIN, pruner=Halving(first=1))


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define(space: Space) -> None:
        sweep: Sweep = replace(TINY, presets={"digits": space})
        monkeypatch.setattr(registry, "find", lambda name: sweep)

    return define


class Killed(BaseException):
    """Ends the driver as kill -9 does."""


def train(folder: Path, *words: str, store: str = "store", kill_at: int | None = None) -> int:
    """Run the sweep. `kill_at`: index of the cohort before which the driver is killed."""
    tasks: list[CohortTask] = []

    def before(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) - 1 == kill_at:
            raise Killed

    with without_ray(folder, before):
        return run.main(["tiny", "--store", str(folder / store), "--cohort", "4", *words])


def requests(folder: Path, store: str = "store") -> set[str]:
    return {path.stem for path in (folder / store / "requests/tiny").iterdir()}


@pytest.mark.slow
def test_the_best_settings_of_each_class_by_their_mean_over_seeds_go_on(define: Any, tmp_path: Path) -> None:
    define(RUNGS)
    assert train(tmp_path) == 0
    found = load("tiny", tmp_path / "store")
    assert len(found) == 12 and requests(tmp_path) == {"digits"}
    for _, of_class in found.groupby("normal_class"):
        status = of_class.groupby("beta")["status"].agg(set)
        assert sorted(map(min, status)) == ["finished", "pruned", "pruned"] and all(len(each) == 1 for each in status)
        pruned = of_class[of_class["status"] == "pruned"]
        assert pruned["error"].str.contains(r"\(mean of 2\) at epoch 1 was not among the best 1 of").all()
        assert set(pruned["epochs_run"]) == {1} and set(of_class["study"]) == {str(of_class["normal_class"].iloc[0])}
    best = {f"{trial}.safetensors" for trial in found[found["status"] == "finished"]["trial_id"]}
    kept = {path.name for path in (tmp_path / "store/models/sweep=tiny").iterdir()}
    assert kept <= best and len(kept) == 2, "one of each class"
    with pytest.raises(Killed):
        train(tmp_path, store="killed", kill_at=2)
    assert train(tmp_path, store="killed") == 0
    pd.testing.assert_frame_equal(rows(tmp_path / "killed", "tiny"), rows(tmp_path / "store", "tiny"), check_like=True)


@pytest.mark.slow
def test_the_command_line_adds_and_removes_rungs_without_mixing_trials(define: Any, tmp_path: Path) -> None:
    define(RUNGS)
    one = ("--axis", "normal_class=0")
    assert train(tmp_path, *one, "--pruner", "none") == 0
    define(PLAIN)
    assert train(tmp_path, *one) == 0 and len(load("tiny", tmp_path / "store")) == 6, "trials of a plain grid are known"
    assert requests(tmp_path) == {"digits", "digits, pruner=none"}
    plain = load("tiny", tmp_path / "store", preset="digits")
    assert train(tmp_path, *one, "--pruner", "halving") == 0
    both = load("tiny", tmp_path / "store")
    assert len(both) == 12 and (both["status"] == "pruned").sum() == 4
    own = both[~both["trial_id"].isin(plain["trial_id"])]
    assert set(own["changes"]) == {"pruner=halving"} and set(own["study_id"].notna()) == {True}
    assert train(tmp_path, *one, "--pruner", "halving", "--axis", "beta=0.5,1.5") == 0
    assert requests(tmp_path) >= {"digits, pruner=halving", "digits, beta=0.5,1.5 pruner=halving"}


@pytest.mark.parametrize(
    ("space", "words", "line"),
    [
        (PLAIN, ("--trials", "4", "--pruner", "halving"), "tiny (digits) is a grid, and takes no options of searches"),
        (RUNGS, ("--order", "coarse"), "a pruner compares the settings of a grid in their order, so --order must not"),
        (RUNGS, ("--set", "validation=0"), "a pruner compares trials by val_auroc_joint, but no validation images are"),
        (RUNGS, ("--set", "beta=1"), "a pruner compares the settings of a grid, but this one has only one; its axes"),
        (RUNGS, ("--set", "epochs=1"), "a pruner needs a report before the last epoch"),
        (RUNGS, ("--decide",), "--decide needs a grid, but tiny (digits) is"),
        (
            (replace(PLAIN, pruner=Halving(1)), replace(RUNGS, fixed={**PLAIN.fixed, "nu": 3.0})),
            (),
            "a pruner needs grids that differ in their method, but two have vje+0; narrow the preset",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    define: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], space: Space, words: tuple[str, ...], line: str
) -> None:
    define(space)
    assert train(tmp_path, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {line}") and error.count("\n") == 1
