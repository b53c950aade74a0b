"""Noise derives from its key, and nothing else.

Shapes: B examples of a batch.
"""

import pytest
import torch
from scipy import stats

from trainables.contract import Noise
from trainables.learners.data_parallel import Peers, draw_noise, seeded_generator

B = 20
NOISES = {
    "sample": Noise((2, B, 4), batch_dim=1),
    "jitter": Noise((B, 3), batch_dim=0, kind="uniform"),
    "shared": Noise((5,)),
}


def test_generators_are_known_numbers() -> None:
    """A change of the hashing would silently make every sweep on record irreproducible."""
    assert seeded_generator("order", ("digits", 3, 0), 0).initial_seed() == 10536567748675528602


def test_the_first_noise_is_what_its_generator_draws() -> None:
    """So sweeps on record, whose methods have one noise, stay reproducible."""
    first = draw_noise(NOISES, "noise", ("digits", 3, 0), 2, 1)["sample"]
    generator = seeded_generator("noise", ("digits", 3, 0), 2, 1)
    assert torch.equal(first, torch.randn(2, B, 4, generator=generator))


@pytest.mark.parametrize(
    "other", [("after_step", "key", 0, 0), ("noise", "k", 0, 0), ("noise", "key", 1, 0), ("noise", "key", 0, 1)]
)
def test_another_purpose_stream_epoch_or_step_has_other_numbers(other: tuple[object, ...]) -> None:
    drawn, again, changed = (
        draw_noise(NOISES, *key) for key in (("noise", "key", 0, 0), ("noise", "key", 0, 0), other)
    )
    assert drawn.keys() == NOISES.keys()
    assert all(torch.equal(drawn[name], again[name]) for name in NOISES)
    assert not any((drawn[name] == changed[name]).any() for name in NOISES)


def test_each_kind_has_its_distribution() -> None:
    drawn = draw_noise({"normal": Noise((4000,)), "uniform": Noise((4000,), kind="uniform")}, "kinds")
    assert stats.kstest(drawn["normal"], "norm").pvalue > 0.01
    assert stats.kstest(drawn["uniform"], "uniform").pvalue > 0.01


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_draw_what_one_draws(size: int) -> None:
    """Each has its part along the dimension of the batch, and all of what has no such dimension."""
    whole = draw_noise(NOISES, "noise", 1)
    parts = [draw_noise(NOISES, "noise", 1, peers=Peers(rank, size)) for rank in range(size)]
    assert torch.equal(torch.cat([part["sample"] for part in parts], dim=1), whole["sample"])
    assert torch.equal(torch.cat([part["jitter"] for part in parts]), whole["jitter"])
    assert all(torch.equal(part["shared"], whole["shared"]) for part in parts)


def test_draws_neither_read_nor_move_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draw_noise(NOISES, "noise")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert all(torch.equal(values, first[name]) for name, values in draw_noise(NOISES, "noise").items())
