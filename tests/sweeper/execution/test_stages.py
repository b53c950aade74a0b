"""What a run says of its stages."""

from sweeper.execution.stages import cohorts_text


def test_cohorts_are_one_clause() -> None:
    assert cohorts_text([20] * 27 + [3]) == "28 cohorts of up to 20 trials"
    assert cohorts_text([4, 4]) == "2 cohorts of 4 trials" and cohorts_text([4]) == "1 cohort of 4 trials"
    assert cohorts_text([1, 1, 1]) == "3 cohorts of one trial" and cohorts_text([]) == "0 cohorts of one trial"
