import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweeper.definition.metric import Metric
from sweeper.report import charts, studies
from sweeper.report.studies import contour_values, history_values, log_ticks, parallel_values, write
from sweeper.report.study_tables import MIN_TRIALS, copy_for_figures, importances, pareto_front, trials_dataframe
from sweeper.storage.files import Files
from tests.cases import for_each

KNN, NLL, SECONDS = Metric("knn", "maximize", percent=True), Metric("nll", "minimize"), Metric("seconds", "minimize")
SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "beta": FloatDistribution(0.0, 1.0),
    "width": IntDistribution(32, 512, log=True),
    "act": CategoricalDistribution(["relu", "gelu"]),
    "nu": CategoricalDistribution([None, 1.0, math.inf]),
}
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def accuracy(params: dict[str, Any]) -> float:
    return 0.9 - 0.05 * (math.log10(params["lr"]) + 2.5) ** 2 - 0.2 * params["beta"]


def random_study(
    count: int, *objectives: Metric, space: dict[str, BaseDistribution] = SPACE, warm: int = 0
) -> optuna.Study:
    """Return a study of `count` trials, the first `warm` of them from a warm start.

    Every fifth trial fails. With one objective, another fifth is pruned after the second report.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        directions=[metric.ranking_direction for metric in objectives], sampler=optuna.samplers.RandomSampler(seed=3)
    )
    for number in range(count):
        trial = study.ask(space)
        trial.set_user_attr("trial_id", f"t{number}")
        if number < warm:
            trial.set_user_attr("warm", True)
        value = accuracy({"lr": 1e-3, "beta": 0.5, **trial.params})
        values = {"knn": value, "nll": -math.log(value), "seconds": 1 + trial.params.get("width", 50) / 100}
        if number % 5 == 3:
            study.tell(trial, state=TrialState.FAIL)
        elif number % 5 == 4 and len(objectives) == 1:
            trial.report(0.3, 2)
            trial.report(0.4, 6)
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, [values[metric.name] for metric in objectives])
    return study


def study_of(values: list[float], space: dict[str, BaseDistribution], state: str = "complete") -> optuna.Study:
    """Return a study to be maximized, whose trials have these values and this state."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for value in values:
        trial = study.ask(space)
        study.tell(trial, value if state == "complete" else None, state=STATES[state])
    return study


def pictures(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.png")}


@pytest.mark.slow
def test_one_objective_has_these_files(tmp_path: Path) -> None:
    summary = write(Files(tmp_path), "studies/s/all", "s / all", random_study(35, KNN), [KNN])
    folder = tmp_path / "studies/s/all"
    assert pictures(folder) == {"importance.png", "parallel.png", "history.png", "contour_lr_beta.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert {path.name for path in folder.glob("*.parquet")} == {"trials.parquet", "front.parquet", "importance.parquet"}
    assert summary.splitlines()[0] == "s / all, 35 trials: 21 complete, 7 pruned, 7 failed"
    assert "importance: " in summary and len(summary.splitlines()) == 2


@pytest.mark.slow
def test_two_objectives_have_a_picture_each_and_a_front(tmp_path: Path) -> None:
    study = random_study(40, KNN, SECONDS, space={key: SPACE[key] for key in ("lr", "width", "act")})
    summary = write(Files(tmp_path), "f", "s", study, [KNN, SECONDS], [("act", "lr")])
    each = {f"{kind}_{metric}.png" for kind in ("importance", "parallel", "history") for metric in ("knn", "seconds")}
    assert pictures(tmp_path / "f") == each | {"contour_act_lr_knn.png", "contour_act_lr_seconds.png", "pareto.png"}
    assert len(summary.splitlines()) <= 12
    assert "importance: for knn lr " in summary and "; for seconds width " in summary


@pytest.mark.usefixtures("undrawn")
def test_the_table_of_trials_has_the_values_of_the_study(tmp_path: Path) -> None:
    study = random_study(20, KNN, warm=2)
    write(Files(tmp_path), "f", "s", study, [KNN])
    table = pd.read_parquet(tmp_path / "f/trials.parquet")
    assert [table[key].dtype.kind for key in ("lr", "beta", "width", "nu")] == ["f", "f", "i", "f"]
    best = -math.inf
    for row, trial in zip(table.to_dict("records"), study.trials, strict=True):
        assert STATES[row["state"]] == trial.state and row["number"] == trial.number
        assert row["trial_id"] == f"t{trial.number}" and row["warm"] == (trial.number < 2)
        for key, value in trial.params.items():
            assert row[key] == value or (value is None and pd.isna(row[key]))
        if trial.state == TrialState.COMPLETE:
            best = max(best, trial.values[0])
            assert row["knn"] == trial.values[0] and pd.isna(row["step"])
        elif trial.state == TrialState.PRUNED:
            assert row["knn"] == 0.4 and row["step"] == 6
        else:
            assert pd.isna(row["knn"])
        assert row["best_knn"] == best


@pytest.mark.usefixtures("undrawn")
def test_one_objective_has_the_best_trial_for_a_front_whatever_a_pruned_one_reported(tmp_path: Path) -> None:
    study = study_of([0.2, 0.5, 0.3], {"lr": SPACE["lr"]})
    trial = study.ask({"lr": SPACE["lr"]})
    trial.report(0.9, 1)
    study.tell(trial, state=TrialState.PRUNED)
    write(Files(tmp_path), "f", "s", study, [KNN])
    assert pd.read_parquet(tmp_path / "f/front.parquet")["number"].tolist() == [1]


@pytest.mark.usefixtures("undrawn")
def test_a_search_that_stops_within_a_wave_has_the_figures_of_what_has_ended(tmp_path: Path) -> None:
    study = study_of([0.2, 0.5, 0.3], ONE)
    study.ask(ONE)
    assert write(Files(tmp_path), "f", "s", study, [KNN]).splitlines()[0] == "s, 3 trials: 3 complete"
    assert [trial.state for trial in copy_for_figures(study, [KNN]).trials][3:] == [TrialState.FAIL]


@pytest.mark.usefixtures("undrawn")
def test_the_same_study_has_the_same_importances(tmp_path: Path) -> None:
    write(Files(tmp_path), "f", "s", random_study(35, NLL), [NLL])
    table = pd.read_parquet(tmp_path / "f/importance.parquet")
    assert table.columns.tolist() == ["objective", "parameter", "importance"] and set(table["objective"]) == {"nll"}
    assert table["importance"].is_monotonic_decreasing and table["parameter"][0] == "lr"
    assert dict(zip(table["parameter"], table["importance"], strict=True)) == importances(random_study(35, NLL))


ONE = {"lr": SPACE["lr"]}
FIXED: dict[str, BaseDistribution] = {"act": CategoricalDistribution(["relu"]), "lr": FloatDistribution(0.5, 0.5)}
TWO: dict[str, BaseDistribution] = {"act": SPACE["act"], "nu": SPACE["nu"]}
LINES = {"history.png", "parallel.png"}
POOR: dict[str, tuple[optuna.Study, int, set[str]]] = {
    "nothing": (study_of([], SPACE), 0, set()),
    "one": (study_of([0.5], SPACE), 1, set()),
    "failed": (study_of([0.0] * 5, SPACE, "failed"), 0, set()),
    "unreported": (study_of([0.0] * 5, SPACE, "pruned"), 0, set()),
    "infinite": (study_of([math.inf, -math.inf, math.inf], SPACE), 0, set()),
    "constant": (study_of([0.5] * 9, SPACE), 1, LINES),
    "one parameter": (study_of([0.1, 0.2, 0.3, 0.4, 0.5], ONE), 1, LINES),
    "one choice": (study_of([0.1, 0.2, 0.3, 0.4, 0.5], FIXED), 1, {"history.png"}),
    "few": (study_of([0.01 * number for number in range(MIN_TRIALS - 1)], SPACE), 1, LINES),
    "no number": (study_of([0.01 * number for number in range(MIN_TRIALS)], TWO), 1, LINES | {"importance.png"}),
}
"""Name -> a study, the number of trials on its front, and the figures that it has enough trials for."""


@pytest.mark.usefixtures("undrawn")
@for_each("case", POOR)
def test_files_that_need_more_trials_are_left_out_and_deleted(case: str, tmp_path: Path) -> None:
    study, best, left = POOR[case]
    folder = tmp_path / "f"
    folder.mkdir()
    old = {"contour_lr_beta.png", "pareto.png", "importance.png", "history_knn.png", "parallel.png", "mine.png"}
    for name in old:
        (folder / name).write_bytes(b"old")
    summary = write(Files(tmp_path), "f", "s", study, [KNN], [("lr", "lr"), ("lr", "absent")])
    assert pictures(folder) == left | {"mine.png"} and ".png" not in summary
    assert not any((folder / name).read_bytes() == b"old" for name in left)
    assert len(pd.read_parquet(folder / "trials.parquet")) == len(study.trials)
    assert len(pd.read_parquet(folder / "front.parquet")) == best
    assert len(pd.read_parquet(folder / "importance.parquet")) == (2 if "importance.png" in left else 0)
    assert ("no trial is complete yet" in summary) == (best == 0)


@pytest.mark.usefixtures("undrawn")
def test_few_complete_trials_have_neither_importance_nor_contours_and_a_line_says_so(tmp_path: Path) -> None:
    summary = write(Files(tmp_path), "f", "s", random_study(20, KNN), [KNN], [("lr", "beta")])
    assert pictures(tmp_path / "f") == LINES and pd.read_parquet(tmp_path / "f/importance.parquet").empty
    assert summary.splitlines()[-1] == "no importance and no contours: they need 20 complete trials, but there are 12"
    assert "no importance" not in write(Files(tmp_path), "f", "s", random_study(35, KNN), [KNN])


def test_pictures_say_how_many_trials_they_show_and_which_they_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions: list[str] = []

    def png(chart: charts.Chart, *, title: dict[str, list[str]], **values: object) -> bytes:
        captions.extend(title["subtitle"])
        return b""

    monkeypatch.setattr(charts, "png", png)
    write(Files(tmp_path), "f", "s", random_study(35, KNN), [KNN])
    assert set(captions) == {
        "21 complete trials; left out: 7 pruned, 7 failed",
        "35 trials: 21 complete, 7 pruned, 7 failed",  # the history shows them all
    }


@pytest.mark.usefixtures("undrawn")
def test_a_study_all_of_whose_trials_diverged_says_so(tmp_path: Path) -> None:
    study = study_of([0.0] * 5, SPACE, "pruned")
    diverged = optuna.create_study(direction="maximize")
    for trial in study.trials:
        trial.user_attrs["status"] = "diverged"
        diverged.add_trial(trial)
    summary = write(Files(tmp_path), "f", "s", diverged, [KNN])
    assert summary.splitlines() == ["s, 5 trials: 5 diverged", "all 5 trials diverged, so none is best"]
    assert set(pd.read_parquet(tmp_path / "f/trials.parquet")["state"]) == {"diverged"}


@pytest.mark.usefixtures("undrawn")
def test_two_objectives_with_few_trials_are_no_error(tmp_path: Path) -> None:
    for count in range(3):
        summary = write(Files(tmp_path), "f", "s", random_study(count, KNN, SECONDS), [KNN, SECONDS])
        assert ".png" not in summary
        assert ("pareto.png" in pictures(tmp_path / "f")) == (count == 2)


@pytest.mark.usefixtures("undrawn")
def test_requested_contours_are_drawn_if_the_study_has_their_parameters(tmp_path: Path) -> None:
    study = random_study(35, NLL)
    write(Files(tmp_path), "f", "s", study, [NLL], [("nu", "act"), ("beta", "width"), ("absent", "lr")])
    assert {name for name in pictures(tmp_path / "f") if name.startswith("contour")} == {
        "contour_nu_act.png",
        "contour_beta_width.png",
    }


@pytest.mark.usefixtures("undrawn")
def test_a_value_far_off_is_cut_in_pictures_and_counted_but_kept_in_the_data(tmp_path: Path) -> None:
    study = random_study(20, NLL)
    params = {"lr": 0.1, "beta": 0.5, "width": 64, "act": "gelu", "nu": None}
    study.add_trial(optuna.trial.create_trial(value=1e9, params=params, distributions=SPACE))
    drawn_values = [trial.values[0] for trial in copy_for_figures(study, [NLL], NLL).trials if trial.values]
    values = [trial.values[0] for trial in study.trials[:-1] if trial.state == TrialState.COMPLETE]
    assert drawn_values[:-1] == values and max(values) < drawn_values[-1] < 100
    assert copy_for_figures(study, [NLL]).trials[-1].values == [1e9]
    write(Files(tmp_path), "f", "s", study, [NLL])
    assert pd.read_parquet(tmp_path / "f/trials.parquet")["nll"].max() == 1e9


@pytest.mark.usefixtures("undrawn")
def test_a_front_of_any_length_is_ten_lines_at_most(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number in range(25):
        params, space = {"lr": 0.01}, {"lr": SPACE["lr"]}
        study.add_trial(optuna.trial.create_trial(values=[number / 50, number], params=params, distributions=space))
    lines = write(Files(tmp_path), "f", "s", study, [KNN, SECONDS]).splitlines()[1:]
    assert len(lines) == 10 and lines[-1] == "and 18 more on the front"
    assert lines[2].split() == ["24", "48%", "24", "0.01"] and lines[-2].split() == ["0", "0%", "0", "0.01"]


@pytest.mark.usefixtures("undrawn")
def test_a_front_of_a_metric_on_validation_images_is_a_table(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for value, seconds in ((0.75, 3.0), (0.5, 2.0)):
        params, space = {"lr": 0.01}, {"lr": SPACE["lr"]}
        study.add_trial(optuna.trial.create_trial(values=[value, seconds], params=params, distributions=space))
    objectives = [Metric("val_auroc", "maximize"), SECONDS]
    lines = write(Files(tmp_path), "f", "s", study, objectives).splitlines()
    assert lines[1].split() == ["trial", "val_auroc", "seconds", "lr"]
    assert [line.split() for line in lines[3:5]] == [["0", "0.75", "3", "0.01"], ["1", "0.5", "2", "0.01"]]


@pytest.mark.usefixtures("undrawn")
def test_a_picture_that_cannot_be_drawn_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no\nway")

    monkeypatch.setattr(studies, "history_values", broken)
    summary = write(Files(tmp_path), "f", "s", random_study(35, NLL), [NLL])
    assert summary.splitlines()[-1] == "no history.png: ValueError: no way"
    assert {"parallel.png", "importance.png"} < pictures(tmp_path / "f")


@pytest.mark.slow
def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    level = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(Files(tmp_path), "f", "s", random_study(10, KNN, SECONDS, space=TWO), [KNN, SECONDS])
    assert optuna.logging.get_verbosity() == level and capfd.readouterr() == ("", "")


def test_the_history_has_every_trial_and_the_best_so_far_of_complete_ones() -> None:
    trials = trials_dataframe(random_study(20, KNN, warm=2), [KNN])
    _, values = history_values(trials, KNN)
    shown = pd.DataFrame(values["trials"])
    assert shown["value"].tolist() == pytest.approx((100 * trials["knn"]).tolist(), nan_ok=True)
    assert shown["best"].tolist() == pytest.approx((100 * trials["best_knn"]).tolist(), nan_ok=True)
    assert shown["status"][:2].tolist() == ["earlier", "earlier"] and values["metric"] == "knn (%), higher is better"
    assert values["statuses"] == ["finished", "earlier", "pruned", "failed"]


def test_parallel_coordinates_place_each_trial_and_have_the_best_on_top() -> None:
    study = copy_for_figures(random_study(35, NLL), [NLL], NLL)
    _, values = parallel_values(study, ["act", "beta", "lr"], NLL)
    lines = pd.DataFrame(values["lines"])
    complete = [trial for trial in study.trials if trial.values]
    assert values["axes"] == ["act", "beta", "lr", "nll"] and len(lines) == 4 * len(complete)
    assert lines["objective"].is_monotonic_decreasing, "the lowest is drawn last"
    assert values["shades"][0] == "#08306b", "the lowest is dark"
    places = lines[lines["axis"] == "lr"].set_index("trial")["place"]
    logs = {trial.number: math.log(trial.params["lr"]) for trial in complete}
    low, high = min(logs.values()), max(logs.values())
    for number, value in logs.items():
        assert places[number] == pytest.approx((value - low) / (high - low))
    assert set(lines[lines["axis"] == "act"]["place"]) == {0.0, 1.0}


def test_a_contour_agrees_with_the_trials_and_stays_within_them() -> None:
    study = copy_for_figures(random_study(60, KNN), [KNN], KNN)
    _, values = contour_values(study, ("lr", "beta"), KNN)
    grid = pd.DataFrame(values["grid"])
    objectives = [trial.values[0] for trial in study.trials if trial.values]
    assert grid["value"].between(min(objectives) - 1e-9, max(objectives) + 1e-9).all()
    best = grid.loc[grid["value"].idxmax()]
    assert best["x"] < 0.35 and 1e-4 < best["y"] < 1e-1, "a small beta, and an lr of about 3e-3"
    assert (values["first"], values["first_scale"], values["second"], values["second_scale"]) == (
        "beta", "linear", "lr", "log",
    )  # fmt: skip
    _, choices = contour_values(study, ("act", "nu"), KNN)
    assert choices["first_axis"]["labelExpr"] == '["gelu", "relu"][datum.value]'


@pytest.mark.parametrize("exponents", [(-5, -1), (-5.5, -4.9), (0, 0.1), (-1, 6)])
def test_ticks_of_a_logarithmic_axis_are_few_and_within(exponents: tuple[float, float]) -> None:
    low, high = (10.0**exponent for exponent in exponents)
    ticks = log_ticks(low, high)
    assert 1 <= len(ticks) <= 7 and all(low <= tick <= high for tick in ticks)


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


@pytest.mark.slow
def test_infeasible_trials_are_counted_by_themselves_and_never_on_the_front(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number, (knn, seconds, violation) in enumerate([(0.9, 1.0, 0.5), (0.8, 2.0, 0.0), (0.7, 1.5, -0.1)]):
        trial = study.ask(SPACE)
        trial.set_constraint("knn <= 0.8", violation)
        study.tell(trial, [knn, seconds])
        assert trial.number == number
    trials = trials_dataframe(study, [KNN, SECONDS])
    assert list(trials["state"]) == ["infeasible", "complete", "complete"]
    assert trials["best_knn"].isna()[0] and list(trials["best_knn"][1:]) == [0.8, 0.8]
    assert sorted(pareto_front(copy_for_figures(study, [KNN, SECONDS]))) == [1, 2]
    assert "3 trials: 2 complete, 1 infeasible" in write(Files(tmp_path), "f", "title", study, [KNN, SECONDS])


@pytest.mark.slow
def test_parameters_that_some_trials_lack_have_columns_and_contours_and_no_importance(tmp_path: Path) -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for number in range(40):
        trial = study.ask({key: SPACE[key] for key in ("lr", "beta")})
        if number % 2:
            trial.suggest_int("width", 32, 512, log=True)
        study.tell(trial, accuracy(trial.params))
    trials = trials_dataframe(study, [KNN])
    assert str(trials["width"].dtype) == "Int64" and list(trials["width"].isna()) == [True, False] * 20
    assert set(importances(study)) == {"lr", "beta"}
    write(Files(tmp_path), "f", "title", study, [KNN], contours=[("lr", "width")])
    assert {"importance.png", "parallel.png", "contour_lr_width.png"} <= {
        path.name for path in (tmp_path / "f").iterdir()
    }
    _, values = contour_values(study, ("lr", "width"), KNN)
    assert len(values["trials"]) == 20
