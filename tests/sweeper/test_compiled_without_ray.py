"""Sweeps with compiled steps in this process: continued searches keep their steps, which have few shapes, and damaged
steps take no trial with them.

Steps are traced, and then run operation by operation.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import rows
from tests.trainables.traced import TracingCompiler
from trainables.training.compile_step import RECORD, StepTask, file_hash
from trainables.training.compiled_steps import LibraryFolder
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
STACK = [
    *("anomaly_grid", "--preset", "digits", "--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0"),
    *("--set", "epochs=1", "--set", "width=16", "--cohort", "2", "--compile", "always"),
]
"""Two trials in a stack."""


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


def test_half_a_library_is_a_line_and_no_trial_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loaded, a half of a real one crashes the process that trains; these cannot be loaded at all, which would be
    another line. They would be compiled anew; here the compiler is gone meanwhile, and the steps are not compiled."""

    def compile_step(folder: LibraryFolder, task: StepTask, wait: Callable[[], None]) -> None:
        library = folder._library(task)
        library.write_bytes(b"machine code")
        digests = {library.name: file_hash(str(library))}
        library.with_suffix(RECORD).write_text(json.dumps({"code": {}, "parts": [], "digests": digests}))

    def printed(store: str, what: str) -> list[str]:
        with without_ray(tmp_path):
            assert run.main([*STACK, "--store", str(tmp_path / store)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if what in line]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(LibraryFolder, "_compile", compile_step)
    assert printed("whole", "steps are not compiled: a compiled step cannot be loaded: ")
    libraries = list((tmp_path / "cache/sweeper/steps").glob("*.so"))
    for library in libraries:
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    monkeypatch.setenv("CXX", "/nowhere/g++")
    (line,) = printed("damaged", "is damaged")
    for library in libraries:
        assert f"the compiled step {library} is damaged, so it is compiled anew" in line
    assert line.endswith("steps are not compiled: there is no C++ compiler (g++) on this machine")
    frame = rows(tmp_path / "damaged", "anomaly_grid")
    assert set(frame["status"]) == {"finished"}
    assert set(load("anomaly_grid", str(tmp_path / "damaged"))["compiled"]) == {False}
    pd.testing.assert_frame_equal(frame, rows(tmp_path / "whole", "anomaly_grid"))
