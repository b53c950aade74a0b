"""The folder of compiled steps: who may write it, what makes a library out of date, and who compiles."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from tests.trainables.training.compilation.steps import task_of
from trainables.config.trial import resolve
from trainables.reports import Stopped
from trainables.training.compilation import folder as module
from trainables.training.compilation.build import OPERATIONS, RECORD
from trainables.training.compilation.compiler import StepCompiler
from trainables.training.compilation.folder import CompilationError, LibraryFolder, default_folder
from trainables.training.compilation.loaded_code import file_hash, is_unchanged, loaded_code
from trainables.training.compilation.task import StepTask

TASK = task_of()


class FakeFolder(LibraryFolder):
    """A folder whose compiler writes a record at once."""

    compiled: ClassVar[list[StepTask]] = []
    seconds = 0.0

    def _compile(self, task: StepTask, wait: Callable[[], None]) -> None:
        time.sleep(self.seconds)
        self.compiled.append(task)
        self._library(task).write_bytes(b"code")
        record = {"code": {__name__: file_hash(__file__)}, "parts": ["dir", "kl"]}
        self._library(task).with_suffix(RECORD).write_text(json.dumps(record))


@pytest.fixture
def steps(tmp_path: Path) -> FakeFolder:
    FakeFolder.compiled.clear()
    return FakeFolder(tmp_path / "steps")


def test_a_step_is_compiled_once_into_a_folder_of_the_user(steps: FakeFolder) -> None:
    assert steps.find(TASK) is None
    library = steps.find_or_compile(TASK)
    assert library.path.read_bytes() == b"code" and library.parts == ("dir", "kl")
    assert steps.find_or_compile(TASK) == steps.find(TASK) == library
    assert steps.compiled == [TASK]
    assert steps.path.stat().st_mode & 0o777 == 0o700


def test_of_several_processes_one_compiles(steps: FakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeFolder, "seconds", 0.2)
    waits: list[int] = []
    threads = [threading.Thread(target=steps.find_or_compile, args=(TASK, lambda: waits.append(1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps.compiled == [TASK] and waits


def test_changed_code_is_compiled_again(steps: FakeFolder) -> None:
    record = steps.find_or_compile(TASK).path.with_suffix(RECORD)
    plain = json.loads(record.read_text())
    record.write_text(json.dumps(plain | {"code": {__name__: "another hash"}}))
    assert steps.find(TASK) is None
    steps.find_or_compile(TASK)
    assert len(steps.compiled) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"code": {"os": 1}}'])
def test_a_damaged_record_counts_as_none(steps: FakeFolder, content: str) -> None:
    steps.find_or_compile(TASK).path.with_suffix(RECORD).write_text(content)
    assert steps.find(TASK) is None
    assert steps.find_or_compile(TASK).parts == ("dir", "kl")


def test_what_another_user_could_have_written_is_not_executed(steps: FakeFolder) -> None:
    steps.find_or_compile(TASK)
    steps.path.chmod(0o777)
    with pytest.raises(CompilationError, match="must belong to you and be writable for no one else"):
        steps.find(TASK)


def test_a_step_without_its_file_of_operations_is_compiled_again(steps: FakeFolder) -> None:
    library = steps.find_or_compile(TASK).path
    record = json.loads(library.with_suffix(RECORD).read_text())
    library.with_suffix(RECORD).write_text(json.dumps(record | {"operations": True}))
    assert steps.find(TASK) is None
    library.with_suffix(OPERATIONS).write_text('{"nodes": []}')
    assert steps.find(TASK)


def test_a_library_that_cannot_be_loaded_leaves_steps_eager(steps: FakeFolder) -> None:
    lines: list[str] = []
    config = resolve(TASK.config)
    assert StepCompiler(lines.append, steps).finder(config, TASK.shapes, lambda: None)(TASK.step) is None
    (line,) = lines
    assert line.startswith("a compiled step cannot be loaded: ")


def test_a_step_that_cannot_be_traced_is_not_tried_again(steps: FakeFolder) -> None:
    record = steps.find_or_compile(TASK).path.with_suffix(RECORD)
    plain = json.loads(record.read_text())
    record.write_text(json.dumps({"code": plain["code"], "error": "its step cannot be traced: it reads a value"}))
    with pytest.raises(CompilationError, match="it reads a value"):
        steps.find_or_compile(TASK)
    assert len(steps.compiled) == 1


def test_without_a_compiler_there_is_one_line(steps: FakeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    with pytest.raises(CompilationError, match=r"there is no C\+\+ compiler \(g\+\+\) on this machine"):
        steps.find_or_compile(TASK)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CompilationError, match="cannot be used"):
        LibraryFolder(tmp_path / "file" / "steps").find_or_compile(TASK)


def test_a_compilation_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a process nor scratch files."""
    processes: list[int] = []
    popen = module.subprocess.Popen

    def started(*arguments: object, **options: object) -> object:
        process = popen(*arguments, **options)  # type: ignore[call-overload]
        processes.append(process.pid)
        return process

    monkeypatch.setattr(module.subprocess, "Popen", started)
    turns = iter(range(3))

    def wait() -> None:
        if next(turns, None) is None:
            raise Stopped

    with pytest.raises(Stopped):
        LibraryFolder(tmp_path / "steps").find_or_compile(TASK, wait)
    (pid,) = processes
    assert not Path(f"/proc/{pid}").exists()
    assert sorted(path.suffix for path in (tmp_path / "steps").iterdir()) == ["", ".lock"]
    assert not list((tmp_path / "steps" / module.SCRATCH).iterdir())


def test_the_default_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "sweeper" / "steps"


def test_loaded_code_is_this_projects_and_the_users_and_not_what_is_installed() -> None:
    code = loaded_code()
    assert {"trainables.contract", "trainables.methods.variational.vje", __name__} <= set(code)
    assert not {"torch", "os", "pytest"} & set(code)
    assert is_unchanged(code) and os.path.exists(__file__)
    assert not is_unchanged(code | {__name__: "another hash"})
    assert not is_unchanged({"no.such.module": "hash"})
