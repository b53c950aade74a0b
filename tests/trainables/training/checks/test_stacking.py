"""Members of a method that cannot be stacked train one by one, with the same results as alone."""

from pathlib import Path

import pytest
import torch

from sweeper.spec.user_code import search_folder
from tests.trainables.traced import TracingCompiler
from tests.user_files import DENOISE, TWICE, user_folder
from trainables.config import resolve, resolve_sent
from trainables.sections import TrialConfig, Value
from trainables.training.checkpoint import Progress, pack, slice_checkpoint
from trainables.training.checks import stack_width, why_not_stacked
from trainables.training.cohort import Cohort
from trainables.training.train import train

__all__ = ["user_folder"]


@pytest.fixture
def trials(user_folder: Path) -> list[TrialConfig]:
    """Three trials of a method that cannot be stacked."""
    search_folder(user_folder)
    (user_folder / "unstacked_of_mine.py").write_text(DENOISE + TWICE)
    keys: dict[str, Value] = {
        "method": "unstacked_of_mine:Twice",
        "encoder": "mlp",
        "width": 8,
        "features": 4,
        "epochs": 1,
        "knn": 5,
    }
    return [resolve_sent({**keys, "sigma": sigma}) for sigma in (0.1, 0.2, 0.4)]


def test_only_methods_of_the_user_are_tried(trials: list[TrialConfig]) -> None:
    assert why_not_stacked(trials[0]) and stack_width(trials, None) == stack_width(trials, 2) == 1
    shipped = [resolve({"method": "vje", "seed": seed}) for seed in range(3)]
    assert not why_not_stacked(shipped[0]) and stack_width(shipped, None) == 3 and stack_width(shipped, 2) == 2


def test_they_train_together_as_alone(trials: list[TrialConfig], tmp_path: Path) -> None:
    (*_, together) = train(trials, tmp_path)
    for trial, member in zip(trials, together.members, strict=True):
        (*_, alone) = train([trial], tmp_path)
        assert member.status == "finished" and member.metrics.keys() == alone.members[0].metrics.keys()
        for name, value in member.metrics.items():
            assert value == pytest.approx(alone.members[0].metrics[name], rel=1e-5)


def test_their_steps_are_not_compiled(trials: list[TrialConfig], tmp_path: Path) -> None:
    """They may have numbers of their own that are no tensors, which one code for all would not have."""
    compiler = TracingCompiler()
    (*_, report) = train(trials, tmp_path, compiler=compiler)
    assert not compiler.traced and not compiler.compiled
    assert {member.status for member in report.members} == {"finished"}


def test_a_checkpoint_of_them_can_be_cut(trials: list[TrialConfig], tmp_path: Path) -> None:
    cohort = Cohort(trials, tmp_path, torch.device("cpu"), None)
    whole = pack(trials, None, Progress.initial(3), cohort.state())
    cut = slice_checkpoint(whole, trials, None, trials[1:], 2)
    (*_, resumed) = train(trials[1:], tmp_path, width=2, resume=cut, notify=pytest.fail)
    (*_, whole_report) = train(trials, tmp_path)
    assert [member.metrics for member in resumed.members] == [member.metrics for member in whole_report.members[1:]]
