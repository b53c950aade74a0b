"""Trials whose matrix is not positive definite, through the whole training loop: each fails alone."""

from collections.abc import Mapping

import pytest

from tests.trainables.methods.method_configs import config_of
from tests.trainables.small import HERE
from tests.trainables.training.judged import assert_near
from trainables.sections import Value
from trainables.training.train import train

NO_JITTER = 1e-30
"""Lost in float32. The moment of 60 images in more than 60 dimensions is then singular."""
SINGULAR: Mapping[str, Mapping[str, Value]] = {
    "gje": {"projection": 64},
    "hsic": {"projection": 128},
    "gmje_mdn": {"projection": 128},
    "gpje": {"random_features": 128},
}
"""Method with a fusible jitter -> what makes its matrix singular."""


@pytest.mark.parametrize("method", SINGULAR)
@pytest.mark.parametrize("width", [None, 2])
def test_a_matrix_that_is_not_positive_definite_fails_its_own_member(method: str, width: int | None) -> None:
    """The others of its stack train as they do without it; with `width=2` it is in the first of two stacks."""

    def reports(*epsilons: float) -> list:
        configs = [config_of(method, epochs=2, epsilon=epsilon, **SINGULAR[method]) for epsilon in epsilons]
        return list(train(configs, HERE, width=width))

    spoilt, clean = reports(0.1, NO_JITTER, 0.3), reports(0.1, 0.3)
    bad = spoilt[-1].members[1]
    assert (bad.status, bad.error) == ("diverged", "loss was not finite in epoch 1")
    for member, alone in ((0, 0), (2, 1)):
        assert spoilt[-1].members[member].status == "finished"
        assert_near(spoilt, clean, member, alone)
