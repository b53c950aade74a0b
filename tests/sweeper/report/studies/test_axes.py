from itertools import pairwise

import pytest
from optuna.study import StudyDirection

from sweeper.report.study_charts import log_ticks, with_direction


@pytest.mark.parametrize("low", [1e-7, 2.3e-4, 0.7, 40.0])
@pytest.mark.parametrize("ratio", [1.05, 1.6, 3.0, 16.0, 1e3, 1e7, 1e14])
def test_ticks_of_logarithms_are_few_and_lie_within(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 1 <= len(ticks) <= 7 and all(low <= tick <= low * ratio for tick in ticks)
    assert ratio < 3 or len(ticks) >= 2
    assert all(first < second for first, second in pairwise(ticks))


def test_a_label_says_which_values_are_better() -> None:
    assert with_direction("auroc", StudyDirection.MAXIMIZE) == "auroc, higher is better"
    assert with_direction("loss", StudyDirection.MINIMIZE) == "loss, lower is better"
