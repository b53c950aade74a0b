"""The initial models of a cohort: one for all members with equal data and seeds."""

import pytest
import torch

from trainables.config import resolve
from trainables.sections import TrialConfig, Value
from trainables.training.stacks import build_models

SHAPES = {"views": (1, 8, 8)}


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**given, **changes})


def test_members_of_one_stream_share_one_model() -> None:
    first, second, third = build_models([_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)], SHAPES)
    assert first is second
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True) if a.ndim > 1)


def test_weights_do_not_depend_on_the_cohort_or_on_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = build_models([_config(seed=1), _config()], SHAPES)[1]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    (alone,) = build_models([_config()], SHAPES)
    assert all(torch.equal(a, b) for a, b in zip(together.parameters(), alone.parameters(), strict=True))


def test_the_generators_of_accelerators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    build_models([_config()], SHAPES)
    assert not seeded
