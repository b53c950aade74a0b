"""What the task of pairs accepts, and which pairs its trials have. Trials without images go all the way, by gradients
and without: resolved, trained, resumed, pruned and moved."""

import itertools
import re
from collections.abc import Mapping
from typing import cast

import pytest
import torch

from tests.trainables.small import HERE
from tests.trainables.tasks.pairs_methods import BayesianRegression, GaussianMLP
from tests.trainables.training.judged import assert_near, pruning, without_seconds
from trainables.config import keys, parse, resolve
from trainables.learners.data_parallel import SINGLE_PROCESS
from trainables.sections import TrialConfig, Value
from trainables.tasks.pairs import PairsStream, PairsTrial, SyntheticPairs, training_pairs
from trainables.training.checks import check_trials
from trainables.training.metric_names import metric_names
from trainables.training.population import PopulationRule, parse_schedule
from trainables.training.profiling import measure
from trainables.training.train import Callbacks, Checkpointing, train

pytestmark = pytest.mark.usefixtures("pairs")


class Silent(GaussianMLP):
    """It cannot predict."""

    capabilities = frozenset()


def _trial(method: str = "gaussian_mlp", **changes: Value) -> PairsTrial:
    return cast(PairsTrial, resolve({"method": method, **changes}))


def test_a_method_that_does_not_predict_is_refused_by_name() -> None:
    methods = {"gaussian_mlp": Silent, "bayesian_regression": BayesianRegression}
    message = (
        "trials on pairs need a method that predicts a conditional density, but got method=gaussian_mlp; "
        "there are: bayesian_regression"
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


# --- Training ---

METHODS: Mapping[str, Mapping[str, Value]] = {
    "bayesian_regression": {"features": 8},
    "gaussian_mlp": {"hidden": 8, "batch_size": 30, "lr": 0.03, "optimiser": "adam"},
}
ADAPTED = {"bayesian_regression": ("length_scale", 0.7), "gaussian_mlp": ("jitter", 0.1)}
"""Method -> a hyperparameter that a population adapts, and its default."""

every_method = pytest.mark.parametrize("method", METHODS)


def _config(method: str, **changes: Value) -> TrialConfig:
    return resolve({"method": method, "epochs": 4, "examples": 120, **METHODS[method], **changes})


def _three(method: str) -> list[TrialConfig]:
    """Members of two streams, which differ in a hyperparameter, the seed and the data set."""
    key, default = ADAPTED[method]
    members: list[dict[str, Value]] = [{}, {key: 2 * default, "seed": 1}, {"dataset": "synthetic_b"}]
    return [_config(method, **member) for member in members]


@every_method
def test_reports_hold_the_metrics_that_preflight_announces(method: str) -> None:
    configs = _three(method)
    reports = list(train(configs, HERE))
    assert [report.epoch for report in reports] == [1, 2, 3, 4] and reports[-1].done
    for config, result, *members in zip(
        configs, check_trials(configs, None), *(r.members for r in reports), strict=True
    ):
        assert result.steps == (4 if method == "gaussian_mlp" else 1) and result.metrics == metric_names(config, 0)
        assert all(tuple(member.metrics) == result.metrics_during_training for member in members[:-1])
        assert tuple(members[-1].metrics) == result.metrics and members[-1].status == "finished"
        undefined = [name for name, value in members[-1].metrics.items() if value is None]
        assert undefined == ["pi_error"], "they have one component"


@pytest.mark.parametrize("width", [None, 2])
@every_method
def test_fused_equals_alone(method: str, width: int | None) -> None:
    configs = _three(method)
    fused = list(train(configs, HERE, width=width))
    for index, config in enumerate(configs):
        assert_near(fused, list(train([config], HERE)), index, 0)


@pytest.mark.slow
@every_method
def test_resuming_from_any_step_is_exact(method: str) -> None:
    saved: list[bytes] = []
    reports = list(train(_three(method), HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    assert len(saved) == (3 if method == "bayesian_regression" else 4 * 4 - 1)
    for checkpoint in saved:
        resumed = train(
            _three(method),
            HERE,
            checkpointing=Checkpointing(checkpoint),
            callbacks=Callbacks(notify=pytest.fail),
        )
        assert without_seconds(list(resumed)) == without_seconds(reports)


@every_method
def test_pruned_members_leave_and_others_train_on(method: str) -> None:
    whole = list(train(_three(method), HERE))
    pruned = list(train(_three(method), HERE, callbacks=Callbacks(pruning({2: {0: "it is the worst"}}))))
    assert [member.status for member in pruned[-1].members] == ["pruned", "finished", "finished"]
    for index in (1, 2):
        assert_near(pruned, whole, index)


@every_method
def test_a_population_moves_members_to_the_best(method: str) -> None:
    """A moved member has its source's state: on equal data its next loss is that of the source's."""
    key, default = ADAPTED[method]
    configs = [_config(method, **{key: factor * default}) for factor in (1.0, 4.0, 8.0)]
    population = PopulationRule("nll_excess", "minimize", 2, 0.3, 1.01, {key: (0.0, 100.0)})
    still, moved = (
        list(train(configs, HERE)),
        list(train(configs, HERE, callbacks=Callbacks(population.judge_of(configs)))),
    )
    moves = {index: parse_schedule(moved[2].members[index].schedule) for index in range(3)}
    (index,) = [index for index, schedule in moves.items() if schedule]
    (move,) = moves[index]
    ranked = sorted(range(3), key=lambda index: still[1].members[index].metrics["nll_excess"] or 0.0)
    assert move["from"] == ranked[0] and index == ranked[-1] and move["epoch"] == 2
    losses = [member.metrics["loss"] for member in moved[2].members]
    assert losses[index] == pytest.approx(losses[move["from"]], abs=0.05)
    assert losses[index] != pytest.approx(still[2].members[index].metrics["loss"], rel=1e-3)


@every_method
def test_keys_that_choose_the_data_are_not_adapted(method: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^a population of {method} can only adapt .*{ADAPTED[method][0]}.*, but got dataset$"
    ):
        PopulationRule("nll_excess", "minimize", 2, 0.5, 1.5, {"dataset": (0.0, 4.0)}).judge_of([_config(method)])


def test_fitting_never_increases_the_loss() -> None:
    """Steps of EM do not, and each continues where the last one ended."""
    reports = train([_config("bayesian_regression", epochs=12)], HERE)
    losses = [report.members[0].metrics["loss"] or 0.0 for report in reports]
    assert all(later <= earlier + 1e-5 for earlier, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0] - 0.1


def test_a_trial_has_the_keys_of_its_own_task_alone() -> None:
    assert {"dataset", "examples", "hidden"} <= keys("gaussian_mlp").keys()
    with pytest.raises(ValueError, match=r"^no key 'encoder'; --describe gaussian_mlp lists its keys$"):
        _config("gaussian_mlp", encoder="mlp")
    with pytest.raises(ValueError, match=r"^no dataset 'digits'; there are: synthetic_a, synthetic_b$"):
        _config("gaussian_mlp", dataset="digits")
    assert parse("examples", "300") == 300


@every_method
def test_cohorts_are_measured_for_packing(method: str) -> None:
    measurements = measure(_three(method), HERE, "cpu")
    assert measurements[0].width == 1 and all(measurement.seconds > 0 for measurement in measurements)
