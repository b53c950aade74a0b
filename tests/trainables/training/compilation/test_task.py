"""What a step is compiled from: nothing that two trials may differ in without another code, and all else."""

import pytest

from tests.trainables.training.compilation.steps import task_of
from trainables.sections import Value
from trainables.training.compile_step import StepTask

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
