"""A worker with compiled steps: what its reports say of them, and what happens where they cannot be had."""

from pathlib import Path

import pytest
import torch

from tests.trainables.small import HERE, content_of, three
from tests.trainables.traced import TracingCompiler
from tests.trainables.worker.alone import FolderCheckpoints, settings
from trainables.training.checkpoint import unpack
from trainables.training.train import train
from trainables.worker import worker
from trainables.worker.messages import CohortReport, CohortSpec, CohortTask, Message


def reports(folder: Path, compiled: bool) -> list[CohortReport]:
    """The reports of three members in stacks of two."""
    task = CohortTask("c0", CohortSpec.of([config.flat() for config in three(epochs=2)], 2, "c", compiled))
    sent: list[Message] = []
    worker.train_cohort(task, settings(folder), None, torch.device("cpu"), sent.append)
    return [message for message in sent if isinstance(message, CohortReport)]


def test_reports_say_whether_steps_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "StepCompiler", lambda notify: TracingCompiler())
    compiled, eager = reports(tmp_path / "a", True), reports(tmp_path / "b", False)
    assert [report.origin.compiled for report in compiled + eager] == [True] * len(compiled) + [False] * len(eager)
    for one, other in zip(compiled[-1].report.members, eager[-1].report.members, strict=True):
        assert one.metrics["auroc_joint"] == pytest.approx(other.metrics["auroc_joint"], abs=0.01)


def test_without_a_compiler_it_trains_with_eager_steps_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "/nowhere/g++")
    sent = reports(tmp_path, True)
    reasons = [report.about_steps for report in sent if report.about_steps]
    assert reasons == ["steps are not compiled: there is no C++ compiler (g++) on this machine"]
    assert not any(report.notice for report in sent)
    assert not any(report.origin.compiled for report in sent)
    assert sent[-1].report.done and {member.status for member in sent[-1].report.members} == {"finished"}


@pytest.mark.parametrize("compiled", [False, True])
def test_a_cohort_goes_on_from_its_checkpoint_with_the_other_kind_of_steps(tmp_path: Path, compiled: bool) -> None:
    saved: list[bytes] = []
    compiler = TracingCompiler() if compiled else None
    list(train(three(), HERE, width=2, compiler=compiler, save=saved.append, save_every=0.0))
    (tmp_path / "c").write_bytes(saved[-1])
    spec = CohortSpec.of([config.flat() for config in three()], 2, "c", not compiled)
    resumed = worker.checkpoint_to_resume(CohortTask("c0", spec), FolderCheckpoints(tmp_path), pytest.fail)
    assert resumed
    found = unpack(resumed, three(), 2, pytest.fail, not compiled)
    assert found and found[0].epoch == content_of(saved[-1])["standing"]["epoch"] > 0
