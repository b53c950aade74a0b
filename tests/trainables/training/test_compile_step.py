"""The whole way: traced, compiled by a process of its own, loaded, trained, stopped and resumed.

A step is compiled from nothing that two trials may differ in without another code, and from all else.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError

from tests.trainables.small import HERE, metrics_of, state_of
from tests.trainables.training.steps import task_of
from trainables.config import resolve_sent
from trainables.contract import Batch, Losses
from trainables.methods.pairs.jepa_pairs import JEPAPairs
from trainables.methods.variational.vje import VJE
from trainables.sections import Value
from trainables.training.compile_step import OPERATIONS, RECORD, StepTask, build, file_hash, is_unchanged, loaded_code
from trainables.training.compiled_steps import LibraryFolder, StepCompiler
from trainables.training.train import train

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


@pytest.mark.slow
def test_compiled_training_equals_eager_training_and_resumes_to_the_last_bit(tmp_path: Path) -> None:
    configs = [resolve_sent({**PAIRS, "lr": lr}) for lr in (0.01, 0.02)]
    folder, lines, saved, again = LibraryFolder(tmp_path / "steps"), list[str](), list[bytes](), list[bytes]()

    def trained(checkpoints: list[bytes], **options: Any) -> list[dict[str, float | None]]:
        compiler = StepCompiler(lines.append, folder, build=options.pop("build", True))
        reports = list(
            train(
                configs,
                HERE,
                compiler=compiler,
                save=checkpoints.append,
                save_every=0.0,
                notify=lines.append,
                **options,
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
    [{"seed": 7}, {"lr": 0.3}, {"weight_decay": 0.1}, {"beta": 4.0}, {"epochs": 9}, {"normal_class": 5}],
    ids=str,
)
def test_trials_that_differ_in_values_of_tensors_or_in_their_evaluation_share_a_step(changes: dict[str, Value]) -> None:
    assert task_of(**changes).digest([]) == DIGEST


@pytest.mark.parametrize(
    "changes",
    [{"width": 24}, {"batch_size": 30}, {"momentum": 0.5}, {"optimiser": "adam"}, {"precision": "bfloat16"}],
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
