"""Compiled steps: the folder, who may write it and what makes a library out of date; what a step is compiled from; and
the whole way: traced, compiled by a process of its own, loaded, trained, stopped and resumed.
"""

import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError

from tests.trainables.small import HERE, metrics_of, state_of
from tests.trainables.training.judged import task_of
from trainables.config import resolve, resolve_sent
from trainables.contract import Batch, Losses
from trainables.methods.pairs.jepa_pairs import JEPAPairs
from trainables.methods.variational.vje import VJE
from trainables.reports import Stopped
from trainables.sections import Value
from trainables.training import compiled_steps as module
from trainables.training.compile_step import OPERATIONS, RECORD, StepTask, build, file_hash, is_unchanged, loaded_code
from trainables.training.compiled_steps import CompilationError, LibraryFolder, StepCompiler, default_folder
from trainables.training.train import Callbacks, Checkpointing, train

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
    assert lines == [f"the compiled step {library.path} is damaged, so it is compiled again"]
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


PAIRS: dict[str, Value] = {"method": f"{__name__}:DecorrelatedPairs", "examples": 128, "batch_size": 32, "epochs": 3}


class DecorrelatedPairs(JEPAPairs):
    """Has an operation that PyTorch's compiler has no code for, and calls by its name: the Cholesky decomposition."""

    loss_parts = ("volume",)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        error = super().losses(batch, noise).total
        joint_B2 = torch.cat([batch["x"], self.predictor(batch["x"])], 1)
        covariance_22 = joint_B2.T @ joint_B2 / len(joint_B2) + torch.eye(joint_B2.shape[1])
        volume = torch.linalg.cholesky(covariance_22).diagonal().log().sum()
        return Losses(error - 0.1 * volume, {"volume": volume})


OPTIONS: dict[str, Value] = {"optimiser": "adamw", "adam_epsilon": 0.01, "lr_schedule": "exponential", "accumulate": 2}


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "members",
    [
        [{"lr": 0.01}, {"lr": 0.02}],
        [{"lr": 0.01, "clip_grad_norm": 0.1, "lr_gamma": 0.9, **OPTIONS}, {"lr": 0.01, "lr_gamma": 0.5, **OPTIONS}],
    ],
    ids=["SGD", "clipped, accumulated AdamW with decays of its own"],
)
def test_compiled_training_equals_eager_training_and_resumes_to_the_last_bit(
    members: list[dict[str, Value]], tmp_path: Path
) -> None:
    """`test_with_every_optimiser_precision_and_layout` of `test_compiled.py` asserts the quick part, of what is
    compiled; a compiler takes most of a minute."""
    configs = [resolve_sent({**PAIRS, **member}) for member in members]
    folder, lines, saved, again = LibraryFolder(tmp_path / "steps"), list[str](), list[bytes](), list[bytes]()

    def trained(
        checkpoints: list[bytes], resume: bytes | None = None, build: bool = True
    ) -> list[dict[str, float | None]]:
        compiler = StepCompiler(lines.append, folder, build=build)
        reports = list(
            train(
                configs,
                HERE,
                compiler=compiler,
                checkpointing=Checkpointing(resume, checkpoints.append, 0.0),
                callbacks=Callbacks(notify=lines.append),
            )
        )
        assert compiler.compiled and not lines
        return metrics_of(reports, 0) + metrics_of(reports, 1)

    compiled = trained(saved)
    reports = list(train(configs, HERE))
    for actual, expected in zip(compiled, metrics_of(reports, 0) + metrics_of(reports, 1), strict=True):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert actual[name] == (None if value is None else pytest.approx(value, rel=1e-3, abs=1e-3)), name
    assert trained(again, resume=saved[len(saved) // 2], build=False) == compiled
    assert state_of(again[-1]) == state_of(saved[-1])


@pytest.mark.slow
def test_what_is_built_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Library, file of operations and record, in this order: a crash of the machine leaves no half of a file."""
    events: list[tuple[str, ...]] = []
    replace = os.replace

    def compiled(graph: Any, arguments: Any, options: Mapping[str, Any]) -> str:
        Path(options["aot_inductor.output_path"]).write_bytes(b"machine code")
        (tmp_path / "outputs" / "calls.json").write_text('{"nodes": []}')
        return str(options["aot_inductor.output_path"])

    def replaced(source: str | Path, target: str | Path) -> None:
        events.append(("rename", str(source), str(target)))
        replace(source, target)

    monkeypatch.setattr("torch._inductor.aot_compile", compiled)
    monkeypatch.setattr(os, "fsync", lambda number: events.append(("sync", os.readlink(f"/proc/self/fd/{number}"))))
    monkeypatch.setattr(os, "replace", replaced)
    (tmp_path / "outputs").mkdir()
    library = tmp_path / "step.so"
    build(task_of(), library, tmp_path / "outputs")
    renamed = [event for event in events if event[0] == "rename"]
    assert {Path(target).suffix for _, _, target in renamed[:-1]} == {".so", OPERATIONS}
    assert Path(renamed[-1][2]) == library.with_suffix(RECORD)
    assert events == [
        event
        for _, source, target in renamed
        for event in (("sync", source), ("rename", source, target), ("sync", str(tmp_path)))
    ]
    digests = json.loads(library.with_suffix(RECORD).read_text())["digests"]
    assert digests == {name: file_hash(str(tmp_path / name)) for name in ("step.so", f"step{OPERATIONS}")}


def test_a_step_that_reads_values_leaves_a_record_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(self: VJE, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        total = self(batch["views"][0]).sum()
        return Losses(total if float(total) > 0 else -total, {})

    task = task_of()
    monkeypatch.setattr(VJE, "losses", losses)
    build(task, tmp_path / "step.so", tmp_path)
    record = json.loads((tmp_path / "step.record").read_text())
    assert record["error"].startswith("a step cannot be traced: ")
    assert "trainables.methods.variational.vje" in record["code"]
    assert not (tmp_path / "step.so").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "error"), [(1, None), (2, "PyTorch cannot compile a step: KeyError: 'buf1'")])
def test_a_step_at_which_pytorch_fails_is_compiled_again_with_fewer_fusions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, error: str | None
) -> None:
    tried: list[Mapping[str, Any]] = []

    def compile_some(graph: Any, arguments: Any, options: Mapping[str, Any]) -> str:
        tried.append(options)
        if len(tried) <= failures:
            raise InductorError(KeyError("buf1"), None).with_traceback(None)
        Path(options["aot_inductor.output_path"]).write_bytes(b"machine code")
        return str(options["aot_inductor.output_path"])

    monkeypatch.setattr("torch._inductor.aot_compile", compile_some)
    (tmp_path / "outputs").mkdir()
    build(task_of(), tmp_path / "step.so", tmp_path / "outputs")
    assert tried[0].keys() < tried[1].keys() and tried[1]["max_fusion_size"] == 3
    assert json.loads((tmp_path / "step.record").read_text()).get("error") == error
    assert (tmp_path / "step.so").exists() == (error is None)


DIGEST = task_of().digest([])


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 7},
        {"lr": 0.3},
        {"weight_decay": 0.1},
        {"beta": 4.0},
        {"epochs": 9},
        {"normal_class": 5},
        {"lr_schedule": "step"},
        {"lr_gamma": 0.5},
    ],
    ids=str,
)
def test_trials_that_differ_in_values_of_tensors_or_in_their_evaluation_share_a_step(changes: dict[str, Value]) -> None:
    assert task_of(**changes).digest([]) == DIGEST


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 24},
        {"batch_size": 30},
        {"momentum": 0.5},
        {"optimiser": "adam"},
        {"precision": "bfloat16"},
        {"optimiser": "lars"},
        {"accumulate": 2},
    ],
    ids=str,
)
def test_another_code_or_shape_is_another_step(changes: dict[str, Value]) -> None:
    assert task_of(**changes).digest([]) != DIGEST


def test_the_environment_counts() -> None:
    assert task_of().digest(["torch 2.11"]) != task_of().digest(["torch 2.15"])


def test_a_process_that_compiles_gets_the_whole_task() -> None:
    task = task_of(optimiser="adam")
    copy = StepTask.of_json(task.json())
    assert copy == task and copy.trial().optimiser.optimiser == "adam"


def test_the_code_of_a_step_includes_the_program_that_compiles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("trainables.training.compile_step")
    assert spec and spec.origin
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    code = loaded_code()
    assert code[spec.name] == file_hash(spec.origin) and is_unchanged(code)
    assert not is_unchanged({**code, spec.name: "another"})
