import math
import warnings
from pathlib import Path

import matplotlib
import optuna
import pandas as pd
import pytest
from matplotlib import pyplot
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState

from sweeper.report import study_charts as study_figures
from sweeper.report.studies import MIN_TRIALS, copy_for_figures, importances, write
from sweeper.spec.metric import Metric
from sweeper.storage.files import Files
from tests.sweeper.report.studies.examples import KNN, NLL, SECONDS, SPACE, STATES, random_study, study_of


def pictures(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.png")}


def test_one_objective_has_these_files(tmp_path: Path) -> None:
    summary = write(Files(tmp_path), "studies/s/all", "s / all", random_study(35, KNN), [KNN])
    folder = tmp_path / "studies/s/all"
    assert pictures(folder) == {"importance.png", "parallel.png", "history.png", "contour_lr_beta.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    assert {path.name for path in folder.glob("*.parquet")} == {"trials.parquet", "front.parquet", "importance.parquet"}
    assert summary.splitlines()[0] == "s / all, 35 trials: 21 complete, 7 pruned, 7 failed"
    assert "importance: " in summary and len(summary.splitlines()) == 2


def test_two_objectives_have_a_picture_each_and_a_front(tmp_path: Path) -> None:
    study = random_study(40, KNN, SECONDS, space={key: SPACE[key] for key in ("lr", "width", "act")})
    summary = write(Files(tmp_path), "f", "s", study, [KNN, SECONDS], [("act", "lr")])
    each = {f"{kind}_{metric}.png" for kind in ("importance", "parallel", "history") for metric in ("knn", "seconds")}
    assert pictures(tmp_path / "f") == each | {"contour_act_lr_knn.png", "contour_act_lr_seconds.png", "pareto.png"}
    assert len(summary.splitlines()) <= 12
    assert "importance: for knn lr " in summary and "; for seconds width " in summary


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


def test_one_objective_has_the_best_trial_for_a_front_whatever_a_pruned_one_reported(tmp_path: Path) -> None:
    study = study_of([0.2, 0.5, 0.3], {"lr": SPACE["lr"]})
    trial = study.ask({"lr": SPACE["lr"]})
    trial.report(0.9, 1)
    study.tell(trial, state=TrialState.PRUNED)
    write(Files(tmp_path), "f", "s", study, [KNN])
    assert pd.read_parquet(tmp_path / "f/front.parquet")["number"].tolist() == [1]


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


@pytest.mark.parametrize("case", POOR)
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


def test_few_complete_trials_have_neither_importance_nor_contours_and_a_line_says_so(tmp_path: Path) -> None:
    summary = write(Files(tmp_path), "f", "s", random_study(20, KNN), [KNN], [("lr", "beta")])
    assert pictures(tmp_path / "f") == LINES and pd.read_parquet(tmp_path / "f/importance.parquet").empty
    assert summary.splitlines()[-1] == "no importance and no contours: they need 20 complete trials, but there are 12"
    assert "no importance" not in write(Files(tmp_path), "f", "s", random_study(35, KNN), [KNN])


def test_pictures_say_how_many_trials_they_show_and_which_they_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions: set[str] = set()

    def png(figure: object, title: str, text: str) -> bytes:
        captions.add(text)
        return b""

    monkeypatch.setattr(study_figures, "png", png)
    write(Files(tmp_path), "f", "s", random_study(35, KNN), [KNN])
    assert captions == {"21 complete trials; left out: 7 pruned, 7 failed"}


def test_a_study_all_of_whose_trials_diverged_says_so(tmp_path: Path) -> None:
    study = study_of([0.0] * 5, SPACE, "pruned")
    diverged = optuna.create_study(direction="maximize")
    for trial in study.trials:
        trial.user_attrs["status"] = "diverged"
        diverged.add_trial(trial)
    summary = write(Files(tmp_path), "f", "s", diverged, [KNN])
    assert summary.splitlines() == ["s, 5 trials: 5 diverged", "all 5 trials diverged, so none is best"]
    assert set(pd.read_parquet(tmp_path / "f/trials.parquet")["state"]) == {"diverged"}


def test_two_objectives_with_few_trials_are_no_error(tmp_path: Path) -> None:
    for count in range(3):
        summary = write(Files(tmp_path), "f", "s", random_study(count, KNN, SECONDS), [KNN, SECONDS])
        assert ".png" not in summary
        assert ("pareto.png" in pictures(tmp_path / "f")) == (count == 2)


def test_requested_contours_are_drawn_if_the_study_has_their_parameters(tmp_path: Path) -> None:
    study = random_study(35, NLL)
    write(Files(tmp_path), "f", "s", study, [NLL], [("nu", "act"), ("beta", "width"), ("absent", "lr")])
    assert {name for name in pictures(tmp_path / "f") if name.startswith("contour")} == {
        "contour_nu_act.png",
        "contour_beta_width.png",
    }


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


def test_a_front_of_any_length_is_ten_lines_at_most(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for number in range(25):
        params, space = {"lr": 0.01}, {"lr": SPACE["lr"]}
        study.add_trial(optuna.trial.create_trial(values=[number / 50, number], params=params, distributions=space))
    lines = write(Files(tmp_path), "f", "s", study, [KNN, SECONDS]).splitlines()[1:]
    assert len(lines) == 10 and lines[-1] == "and 18 more on the front"
    assert lines[2].split() == ["24", "48%", "24", "0.01"] and lines[-2].split() == ["0", "0%", "0", "0.01"]


def test_a_front_of_a_metric_on_validation_images_is_a_table(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    for value, seconds in ((0.75, 3.0), (0.5, 2.0)):
        params, space = {"lr": 0.01}, {"lr": SPACE["lr"]}
        study.add_trial(optuna.trial.create_trial(values=[value, seconds], params=params, distributions=space))
    objectives = [Metric("val_auroc", "maximize"), SECONDS]
    lines = write(Files(tmp_path), "f", "s", study, objectives).splitlines()
    assert lines[1].split() == ["trial", "val_auroc", "seconds", "lr"]
    assert [line.split() for line in lines[3:5]] == [["0", "0.75", "3", "0.01"], ["1", "0.5", "2", "0.01"]]


def test_a_picture_that_cannot_be_drawn_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        pyplot.figure()
        raise ValueError("no\nway")

    monkeypatch.setattr(study_figures, "history", broken)
    summary = write(Files(tmp_path), "f", "s", random_study(35, NLL), [NLL])
    assert summary.splitlines()[-1] == "no history.png: ValueError: no way"
    assert {"parallel.png", "importance.png"} < pictures(tmp_path / "f") and not pyplot.get_fignums()


def test_no_figure_stays_open_and_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mine, before, level = pyplot.figure(), dict(matplotlib.rcParams), optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(Files(tmp_path), "f", "s", random_study(10, KNN, SECONDS, space=TWO), [KNN, SECONDS])
    assert pyplot.get_fignums() == [mine.number] and optuna.logging.get_verbosity() == level
    assert {key: value for key, value in matplotlib.rcParams.items() if key != "backend"} == {
        key: value for key, value in before.items() if key != "backend"
    }
    assert capfd.readouterr() == ("", "")
    pyplot.close(mine)
