"""The parts of a step are observed, in their order, and only while somebody asks."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.trainables.methods.method_configs import CPU, HERE, config_of
from trainables.learners.phases import PARTS, observed
from trainables.training.cohort import TrainingCohort


@pytest.mark.parametrize(("method", "parts"), [("simclr", list(PARTS)), ("gmje_em", ["data", "forward"])])
def test_every_step_has_its_parts_once(method: str, parts: list[str]) -> None:
    cohort, seen = TrainingCohort([config_of(method)], HERE, CPU, None), list[str]()

    @contextlib.contextmanager
    def noted(part: str) -> Iterator[None]:
        seen.append(part)
        yield

    with observed(noted):
        cohort.step(0, 0, cohort.orders(0), 1.0)
    assert seen == parts
    cohort.step(0, 0, cohort.orders(0), 1.0)
    assert seen == parts
