import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from sweeper.report.studies import copy_for_figures, importances, pareto_front, trials_dataframe
from sweeper.spec.metric import Metric
from tests.sweeper.report.studies.examples import KNN, NLL, SECONDS, SPACE, random_study, study_of


def test_choices_of_several_types_become_text_and_gaps_keep_whole_numbers() -> None:
    study = study_of(
        [0.1] * 12, {"a": CategoricalDistribution([1, "two", None]), "b": CategoricalDistribution([1, None])}
    )
    table = trials_dataframe(study, [KNN])
    assert set(table["a"].dropna()) == {"1", "two"} and table["b"].dtype == "Int64"
    assert table["a"].isna().any() and table["b"].isna().any()


@pytest.mark.parametrize("objectives", [(NLL,), (KNN, SECONDS), (KNN, NLL, SECONDS)])
def test_no_trial_is_better_in_all_than_one_on_the_front(objectives: tuple[Metric, ...]) -> None:
    study = random_study(30, *objectives)
    signs = np.array([1 if metric.direction == "maximize" else -1 for metric in objectives])
    values = {
        trial.number: signs * np.array(trial.values) for trial in study.trials if trial.state == TrialState.COMPLETE
    }
    expected = [
        number
        for number, mine in values.items()
        if not any((other >= mine).all() and (other > mine).any() for other in values.values())
    ]
    assert pareto_front(copy_for_figures(study, objectives)) == expected


def test_importances_are_shares_of_the_variance_where_a_log_parameter_is_taken_by_its_logarithm() -> None:
    """A step in the middle of the decades of lr has variance 1/4, and a uniform beta has 1/12.

    On a linear scale lr would almost always be above the step, and beta would have nine tenths of the variance.
    """
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(200):
        trial = study.ask({"lr": SPACE["lr"], "beta": SPACE["beta"], "act": SPACE["act"]})
        study.tell(trial, (trial.params["lr"] < 1e-3) + trial.params["beta"])
    shares = importances(study)
    assert list(shares) == ["lr", "beta", "act"] and sum(shares.values()) == pytest.approx(1.0)
    assert shares["lr"] == pytest.approx(0.75, abs=0.07) and shares["act"] < 0.02


def test_trials_of_another_range_are_weighed_with_the_others() -> None:
    study = random_study(35, NLL)
    other = {**SPACE, "lr": FloatDistribution(1e-6, 1e-2, log=True)}
    params = {"lr": 1e-6, "beta": 0.5, "width": 64, "act": "gelu", "nu": None}
    study.add_trial(optuna.trial.create_trial(value=9.0, params=params, distributions=other))
    assert set(importances(study)) == set(SPACE)
