"""The folder of compiled steps: who may write it, what makes a library out of date, and who compiles."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from tests.trainables.training.steps import task_of
from trainables.config import resolve
from trainables.reports import Stopped
from trainables.training import compiled_steps as module
from trainables.training.compile_step import OPERATIONS, RECORD, StepTask, file_hash, is_unchanged, loaded_code
from trainables.training.compiled_steps import CompilationError, LibraryFolder, StepCompiler, default_folder

TASK = task_of()


class FakeFolder(LibraryFolder):
    """A folder whose compiler writes a record at once."""

    compiled: ClassVar[list[StepTask]] = []
    seconds = 0.0

    def _compile(self, task: StepTask, wait: Callable[[], None]) -> None:
        time.sleep(self.seconds)
        self.compiled.append(task)
        self._library(task).write_bytes(b"code")
        digests = {self._library(task).name: file_hash(str(self._library(task)))}
        record = {"code": {__name__: file_hash(__file__)}, "parts": ["dir", "kl"], "digests": digests}
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


@pytest.mark.parametrize("content", [b"", b"co", b"cpde"])
def test_a_damaged_library_is_compiled_again_and_said(steps: FakeFolder, content: bytes) -> None:
    lines: list[str] = []
    library = steps.find_or_compile(TASK, notify=pytest.fail)
    library.path.write_bytes(content)
    assert steps.find(TASK) is None
    assert steps.find_or_compile(TASK, notify=lines.append).path.read_bytes() == b"code" and len(steps.compiled) == 2
    assert lines == [f"the compiled step {library.path} is damaged, so it is compiled anew"]
    assert steps.find_or_compile(TASK, notify=pytest.fail) == library


@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_another_user_could_have_written_is_not_executed(tmp_path: Path, above: int) -> None:
    FakeFolder.compiled.clear()
    steps = FakeFolder(tmp_path / "cache" / "sweeper" / "steps")
    steps.find_or_compile(TASK)
    (steps.path, *steps.path.parents)[above].chmod(0o775)
    lines: list[str] = []
    assert StepCompiler(lines.append, steps).finder(resolve(TASK.config), TASK.shapes, lambda: None)(TASK.step) is None
    (line,) = lines
    assert line.startswith("steps are not compiled: ") and "must belong to you or to root" in line
    with pytest.raises(CompilationError, match="writable for no one else"):
        steps.find(TASK)
    assert len(steps.compiled) == 1


def test_a_step_without_its_file_of_operations_is_compiled_again(steps: FakeFolder) -> None:
    library = steps.find_or_compile(TASK).path
    record = json.loads(library.with_suffix(RECORD).read_text())
    operations = library.with_suffix(OPERATIONS)
    operations.write_text('{"nodes": []}')
    digests = {**record["digests"], operations.name: file_hash(str(operations))}
    library.with_suffix(RECORD).write_text(json.dumps(record | {"digests": digests}))
    operations.unlink()
    assert steps.find(TASK) is None
    operations.write_text('{"nodes": []}')
    assert steps.find(TASK)


def test_a_library_that_cannot_be_loaded_leaves_steps_eager(steps: FakeFolder) -> None:
    lines: list[str] = []
    config = resolve(TASK.config)
    assert StepCompiler(lines.append, steps).finder(config, TASK.shapes, lambda: None)(TASK.step) is None
    (line,) = lines
    assert line.startswith("steps are not compiled: a compiled step cannot be loaded: ")


def test_a_step_that_cannot_be_traced_is_not_tried_again(steps: FakeFolder) -> None:
    record = steps.find_or_compile(TASK).path.with_suffix(RECORD)
    plain = json.loads(record.read_text())
    record.write_text(json.dumps({**plain, "error": "its step cannot be traced: it reads a value"}))
    with pytest.raises(CompilationError, match="it reads a value"):
        steps.find_or_compile(TASK)
    assert len(steps.compiled) == 1


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("kill -KILL $$", "a step was not compiled: SIGKILL ended the compiler, perhaps for lack of memory"),
        ("exit 1", "a step cannot be compiled: g++: fatal error: Killed signal terminated program cc1plus"),
    ],
)
def test_a_compilation_that_is_killed_is_reported_by_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, reason: str
) -> None:
    """And not by the last line that PyTorch happened to write before or after: the first is killed itself, the second
    loses the compiler that it started."""
    python, warning = tmp_path / "python", "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'"
    lost = "" if "KILL" in end else "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2\n"
    python.write_text(f'#!/bin/sh\n{lost}echo "{warning}" >&2\n{end}\n')
    python.chmod(0o700)
    monkeypatch.setattr(module.sys, "executable", str(python))
    with pytest.raises(CompilationError) as raised:
        LibraryFolder(tmp_path / "steps").find_or_compile(TASK)
    assert str(raised.value) == reason


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


def test_a_link_to_the_folder_is_followed_once(tmp_path: Path) -> None:
    """Whoever can change the link later changes nothing, and where it leads has to be closed."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    steps = FakeFolder(tmp_path / "link")
    (tmp_path / "link").unlink()
    assert steps.find_or_compile(TASK).path.parent == tmp_path / "real"
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(CompilationError, match=f"but {tmp_path / 'real'} has mode 0777"):
        FakeFolder(tmp_path / "link").find(TASK)
