"""Whole sweeps in this process: from the command line to rows, with cohorts that fail, pruning, and interruptions."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from tests.fake_executor import without_ray
from tests.sweeper.small_grid import rows, small_grid
from trainables.worker.messages import CohortTask


def fail_with(beta: float) -> Callable[[CohortTask], None]:
    """Fails every attempt at a cohort that has a trial with this beta."""

    def fail(task: CohortTask) -> None:
        if any(config.flat()["beta"] == beta for config in task.spec.configs()):
            raise RuntimeError(f"no beta of {beta}")

    return fail


def test_the_same_command_again_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks: list[CohortTask] = []
    for _ in range(2):
        with without_ray(tmp_path, tasks.append):
            assert run.main(small_grid(tmp_path / "store")) == 0
    frame = rows(tmp_path / "store", "anomaly_grid")
    assert len(tasks) == 2 and len(frame) == 6 and set(frame["status"]) == {"finished"}
    assert "6 finished of 6 trials" in capsys.readouterr().out


def test_a_trial_that_cannot_train_fails_alone_and_is_tried_again_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_ray(tmp_path, fail_with(beta=1.0)):
        assert run.main(small_grid(tmp_path / "store", "--retries", "0")) == 1
    frame = rows(tmp_path / "store", "anomaly_grid")
    assert frame.groupby("beta")["status"].unique().map(list).to_dict() == {
        0.5: ["finished"], 1.0: ["failed"], 1.5: ["finished"]
    }  # fmt: skip
    assert set(frame.loc[frame["beta"] == 1.0, "error"]) == {"RuntimeError: no beta of 1.0"}
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store")) == 0
    assert set(rows(tmp_path / "store", "anomaly_grid")["status"]) == {"finished"}


@pytest.mark.parametrize("sweep", ["grid", "search"])
def test_a_sweep_that_was_interrupted_continues_to_the_same_rows(sweep: str, tmp_path: Path) -> None:
    def command(store: Path) -> list[str]:
        if sweep == "grid":
            return small_grid(store)
        options = ["--trials", "8", "--wave", "4", "--pruner", "halving", "--set", "epochs=20", "--cohort", "2"]
        return ["vje_search", "--preset", "digits", "--store", str(store), *options]

    name = "anomaly_grid" if sweep == "grid" else "vje_search"
    attempts = 0

    def interrupt(task: CohortTask) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise KeyboardInterrupt

    with without_ray(tmp_path):
        assert run.main(command(tmp_path / "whole")) == 0
    with without_ray(tmp_path, interrupt):
        assert run.main(command(tmp_path / "store")) == 130
    assert 0 < len(rows(tmp_path / "store", name)) < len(rows(tmp_path / "whole", name))
    assert (tmp_path / f"store/reports/{name}.html").exists(), "the page of what there is"
    with without_ray(tmp_path):
        assert run.main(command(tmp_path / "store")) == 0
    pd.testing.assert_frame_equal(rows(tmp_path / "store", name), rows(tmp_path / "whole", name))


@pytest.mark.slow
def test_a_search_prunes_at_rungs_across_cohorts(tmp_path: Path) -> None:
    options = ["--trials", "8", "--wave", "8", "--pruner", "halving", "--set", "epochs=20", "--cohort", "2"]
    with without_ray(tmp_path):
        assert run.main(["vje_search", "--preset", "digits", "--store", str(tmp_path / "store"), *options]) == 0
    frame = rows(tmp_path / "store", "vje_search")
    pruned = frame[frame["status"] == "pruned"]
    assert len(frame) == 8 and 0 < len(pruned) < 8 and (pruned["epochs_run"] < 20).all()
    assert pruned["error"].str.contains("was not among the best").all()


def test_members_of_a_population_copy_each_other(tmp_path: Path) -> None:
    options = ["--trials", "4", "--wave", "4", "--set", "epochs=10"]
    with without_ray(tmp_path):
        arguments = ["vje_search", "--preset", "digits_population", "--store", str(tmp_path / "store"), *options]
        assert run.main(arguments) == 0
    frame = rows(tmp_path / "store", "vje_search")
    assert len(frame) == 4 and set(frame["status"]) == {"finished"} and frame["schedule"].notna().any()
