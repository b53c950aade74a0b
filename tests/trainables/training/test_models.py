"""The initial models of a cohort: equal weights for equal data and seeds."""

import pytest
import torch

from trainables.config.trial import resolve
from trainables.config.trial_config import TrialConfig, Value
from trainables.training.models import build_models

SHAPES = {"views": (1, 8, 8)}


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**given, **changes})


def test_members_of_one_stream_start_with_equal_weights() -> None:
    first, second, third = build_models([_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)], SHAPES)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True))
    assert not any(a is b for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_each_member_has_its_own_fusible_hyperparameters() -> None:
    models = build_models([_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)], SHAPES)
    assert [model.get_buffer("beta").item() for model in models] == [0.5, 2.0, 1.0]
    assert [model.get_buffer("nu").item() for model in models] == [3.0, 7.0, 3.0]


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
