"""Calls of a library: tensors of the state, then the inputs, in the memory order for which it was compiled."""

import pytest
import torch
from torch import Tensor

from trainables.learners.compiled import CompiledStep, Layout, Run, StepShape


class Recorded:
    """A library that returns its arguments."""

    parts = ("kl",)

    def load(self, device: str) -> Run:
        return lambda tensors: tensors


IMAGES, WEIGHT = torch.arange(6.0).view(2, 3), torch.ones(4)
INPUTS = {"views": (IMAGES,), "noise": torch.zeros(2)}


def called(images: Tensor) -> list[Tensor]:
    shape = StepShape.of("step", 1, True, (INPUTS,), torch.device("cpu"))
    return CompiledStep(Recorded(), [WEIGHT], shape)(INPUTS | {"views": (images,)})


def test_the_state_comes_first_and_is_not_copied() -> None:
    weight, images, noise = called(IMAGES)
    assert weight.data_ptr() == WEIGHT.data_ptr() and images is IMAGES and noise is INPUTS["noise"]


def test_inputs_get_the_memory_order_of_the_trace() -> None:
    turned = IMAGES.t().contiguous().t()
    assert turned.stride() != IMAGES.stride()
    _, images, _ = called(turned)
    assert Layout.of(images) == Layout.of(IMAGES) and images.equal(IMAGES)


@pytest.mark.parametrize("wrong", [torch.zeros(3, 3), torch.zeros(2, 3, dtype=torch.float64)])
def test_another_shape_or_type_is_refused(wrong: Tensor) -> None:
    """Compiled code does not check its arguments: it would read beyond them."""
    with pytest.raises(ValueError, match=r"takes torch.float32 of shape \[2, 3\], but got torch.float(32|64) of shape"):
        called(wrong)
