"""Searches with compiled steps in this process: continued, they keep their steps, and these have few shapes.

Steps are traced, and then run operation by operation.
"""

from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from tests.sweeper.small_grid import rows
from tests.trainables.traced import TracingCompiler
from trainables.worker import worker
from trainables.worker.messages import CohortTask

SEARCH = ["vje_search", "--set", "width=32", "--store"]
COMMANDS = {
    "search": [*SEARCH, "STORE", "--preset", "digits", "--set", "epochs=12", "--trials", "18", "--wave", "18"],
    "population": [
        *SEARCH,
        "STORE",
        "--preset",
        "digits_population",
        "--set",
        "epochs=6",
        "--trials",
        "8",
        "--wave",
        "4",
    ],
}


@pytest.mark.parametrize(
    ("sweep", "widths"), [pytest.param("search", {4, 1}, marks=pytest.mark.slow), ("population", {4})]
)
def test_a_continued_search_keeps_its_compiled_steps(
    sweep: str, widths: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two cohorts of the search have nine trials, eight of them in stacks of four; a half is pruned."""
    compiler = TracingCompiler()
    monkeypatch.setattr(worker, "StepCompiler", lambda notify: compiler)
    tasks: list[CohortTask] = []

    def interrupt(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) == 2:
            raise KeyboardInterrupt

    def main(store: Path, *options: str) -> int:
        return run.main([str(store) if part == "STORE" else part for part in [*COMMANDS[sweep], *options]])

    with without_ray(tmp_path):
        assert main(tmp_path / "whole", "--compile", "always") == 0
    with without_ray(tmp_path, interrupt):
        assert main(tmp_path / "store", "--compile", "always") == 130
    with without_ray(tmp_path):
        assert main(tmp_path / "store") == 0
    name = "vje_search"
    pd.testing.assert_frame_equal(rows(tmp_path / "store", name), rows(tmp_path / "whole", name))
    assert set(load(name, str(tmp_path / "store"))["compiled"]) == {True}
    assert {task.step.size for task, _ in compiler.traced} == widths
