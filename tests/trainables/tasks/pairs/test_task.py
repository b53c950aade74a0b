"""What the task of pairs accepts, and which pairs its trials have."""

import re
from typing import cast

import pytest
import torch

from tests.trainables.small import HERE
from tests.trainables.tasks.pairs.methods import BayesianRegression, GaussianMLP
from trainables.config import resolve
from trainables.learners.data_parallel import SINGLE_PROCESS
from trainables.sections import Value
from trainables.tasks.pairs import PairsStream, PairsTrial, SyntheticPairs, training_pairs
from trainables.training.checks import check_trials

pytestmark = pytest.mark.usefixtures("pairs")


class Silent(GaussianMLP):
    """It cannot predict."""

    capabilities = frozenset()


def _trial(method: str = "gaussian_mlp", **changes: Value) -> PairsTrial:
    return cast(PairsTrial, resolve({"method": method, **changes}))


def test_a_method_that_does_not_predict_is_refused_by_name() -> None:
    methods = {"gaussian_mlp": Silent, "bayesian_regression": BayesianRegression}
    message = (
        "gaussian_mlp predicts no conditional density, which trials on pairs are judged by; those that do are: "
        "bayesian_regression"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        SyntheticPairs().check(_trial(), methods)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^batch_size must not exceed the 60 training pairs, but got batch_size=64$"):
        _trial(examples=60)
    assert _trial("bayesian_regression", examples=60).steps == 1


def test_steps_are_known_without_data() -> None:
    configs = [_trial(batch_size=700), _trial("bayesian_regression")]
    assert [result.steps for result in check_trials(configs, None)] == [4, 1]


def test_every_seed_draws_its_own_pairs() -> None:
    trials = (_trial(), _trial(hidden=3), _trial(seed=1), _trial(examples=100))
    first, again, other, more = map(training_pairs, trials)
    assert torch.equal(first.y_N, again.y_N) and not torch.equal(first.y_N, other.y_N) and len(more.y_N) == 100


def test_an_epoch_is_a_pass_in_an_order_of_its_own() -> None:
    stream = PairsStream(_trial(examples=100, batch_size=25), torch.device("cpu"), SINGLE_PROCESS)
    orders = [stream.order(epoch) for epoch in (0, 0, 1)]
    assert orders[0].shape == (4, 25) and sorted(orders[0].flatten().tolist()) == [*range(100)]
    assert torch.equal(orders[0], orders[1]) and not torch.equal(orders[0], orders[2])
    batch, pairs = stream.batch(orders[0][1], 0, 1), training_pairs(_trial(examples=100))
    torch.testing.assert_close(batch["x"][:, 0].double(), pairs.x_N[orders[0][1]])
    torch.testing.assert_close(batch["y"].double(), pairs.y_N[orders[0][1]])


def test_methods_are_built_from_what_is_known_of_the_targets() -> None:
    config = _trial(examples=101, batch_size=25, epochs=3)
    statistics = SyntheticPairs().networks(config)
    levels = torch.tensor([0.0, 0.5, 1.0])
    expected = training_pairs(config).y_N.sort().values[[0, 50, 100]].float()
    assert (statistics.count, statistics.steps) == (101, 12)
    assert torch.equal(statistics.target_quantiles(levels), expected)


def test_pairs_need_no_files() -> None:
    SyntheticPairs().keep_data(_trial(), HERE / "nowhere")
