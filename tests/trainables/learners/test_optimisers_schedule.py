"""Warm-up and half cosine."""

import math

import pytest
import torch

from trainables.learners.optimisers import cosine


def test_half_cosine_is_that_of_torch() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50)
    for step in range(50):
        assert cosine(step, 50) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        reference.step()


def test_values_without_warmup() -> None:
    actual = [cosine(step, 4) for step in range(5)]
    assert actual == pytest.approx([1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0])


def test_warmup_rises_linearly_to_the_peak_then_the_cosine_takes_over() -> None:
    assert [cosine(step, 14, 10) for step in range(11)] == pytest.approx([step / 10 for step in range(11)])
    assert [cosine(10 + step, 14, 10) for step in range(5)] == pytest.approx([cosine(step, 4) for step in range(5)])
