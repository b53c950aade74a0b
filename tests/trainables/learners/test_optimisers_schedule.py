"""The schedules: warm-up, then half a cosine or a constant."""

import math

import pytest
import torch

from trainables.sections import SCHEDULES, Optimiser, constant, cosine


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
    assert [constant(step, 4) for step in range(5)] == [1.0] * 5


@pytest.mark.parametrize("name", SCHEDULES)
def test_warmup_rises_linearly_to_the_peak_then_the_schedule_takes_over(name: str) -> None:
    schedule = SCHEDULES[name]
    assert [schedule(step, 14, 10) for step in range(11)] == pytest.approx([step / 10 for step in range(11)])
    assert [schedule(10 + step, 14, 10) for step in range(5)] == pytest.approx([schedule(step, 4) for step in range(5)])


def test_a_trial_can_ask_for_every_schedule_and_no_other() -> None:
    assert [Optimiser(lr_schedule=name).lr_schedule for name in SCHEDULES] == list(SCHEDULES)
    with pytest.raises(ValueError, match=rf"no lr_schedule 'linear'; there are: {', '.join(SCHEDULES)}$"):
        Optimiser(lr_schedule="linear")
