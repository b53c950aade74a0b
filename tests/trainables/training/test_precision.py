"""What `precision` sets on a GPU. `torch.backends` holds flags without one, too."""

from collections.abc import Iterator

import pytest
import torch

from tests.cases import for_each
from tests.trainables.small import HERE, config_of
from trainables.training import cohort
from trainables.training.cohort import TrainingCohort, set_precision

Flags = tuple[bool, bool, bool]


def flags() -> Flags:
    """Whether products and convolutions round to TF32, and whether cuDNN tries algorithms."""
    cudnn = torch.backends.cudnn
    return torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark


def set_flags(values: Flags) -> None:
    cudnn = torch.backends.cudnn
    torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = values


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = flags()
    yield
    set_flags(before)


@for_each(("precision", "tf32"), [("float32", False), ("tf32", True), ("bfloat16", False)])
@for_each("before", [(False, True, False), (True, False, True)])
def test_the_precision_sets_all_flags_whatever_they_were(precision: str, tf32: bool, before: Flags) -> None:
    """A process trains cohorts of several precisions, one after the other."""
    set_flags(before)
    set_precision(torch.device("cuda"), precision)
    assert flags() == (tf32, tf32, False)


def test_on_a_cpu_nothing_is_set() -> None:
    set_flags((True, False, True))
    set_precision(torch.device("cpu"), "float32")
    assert flags() == (True, False, True)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_cohort_sets_the_precision_of_its_trials(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it loads its data, of which an encoder may compute features; a measurement builds the same cohort."""
    called = list[tuple[str, str]]()
    monkeypatch.setattr(cohort, "set_precision", lambda device, precision: called.append((device.type, precision)))
    TrainingCohort([config_of(precision=precision)], HERE, torch.device("cpu"), None)
    assert called == [("cpu", precision)]


def test_on_a_cpu_tf32_trains_as_float32() -> None:
    losses = []
    for precision in ("float32", "tf32"):
        trained = TrainingCohort([config_of(precision=precision)], HERE, torch.device("cpu"), None)
        losses.append({name: values.tolist() for name, values in trained.epoch(0).items()})
    assert losses[0] == losses[1]
