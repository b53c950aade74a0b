import math

import numpy as np
import pytest
from optuna.trial import TrialState

from sweeper.report import study_charts
from sweeper.report.studies import copy_for_figures
from tests.sweeper.report.studies.examples import KNN, random_study


def test_history_shows_complete_trials_in_percent_and_the_best_so_far() -> None:
    study = random_study(20, KNN, warm=1)
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    with study_charts.drawing():
        axis = study_charts.history(copy_for_figures(study, [KNN], KNN), "knn (%)").axes[0]
        points, line = np.asarray(axis.collections[0].get_offsets()), axis.get_lines()[0]
        assert points[:, 0].tolist() == [trial.number for trial in complete]
        assert points[:, 1] == pytest.approx([100 * trial.values[0] for trial in complete])
        best = np.maximum.accumulate([trial.values[0] if trial in complete else -math.inf for trial in study.trials])
        assert np.asarray(line.get_ydata()) == pytest.approx(100 * best)


def test_the_colour_bar_is_beside_the_last_axis_of_parallel_coordinates() -> None:
    study = copy_for_figures(random_study(20, KNN), [KNN], KNN)
    with study_charts.drawing():
        figure = study_charts.parallel(study, ["beta", "lr"], "knn (%)")
        main, bar = (axis.get_position() for axis in figure.axes[:2])
        assert 0.5 < (bar.x0 - main.x1) * figure.get_size_inches()[0] < 1.2
