from sweeper.cli.progress.running_cohorts import MAX_LINES, RunningCohort, RunningCohorts


def running(**cohorts: tuple[float, float | None, float | None]) -> RunningCohorts:
    """Cohorts of 8 trials and 800 epochs: epoch, loss and value of each."""
    states = RunningCohorts()
    for name, (epoch, loss, value) in cohorts.items():
        states.advance(name, RunningCohort(8, epoch, 800, loss, value))
    return states


def test_a_cohort_shows_its_epoch_its_loss_and_its_last_metric() -> None:
    (line,) = running(c0=(37.25, 1.25, 0.913)).lines("auroc")
    assert line == "cohort c0  8 trials  epoch 37.2 of 800  loss 1.25  mean auroc 0.913"


def test_a_heartbeat_keeps_the_metric_of_the_last_report_and_a_report_the_last_loss() -> None:
    states = running(c0=(2.0, 1.5, None))
    states.advance("c0", RunningCohort(8, 3.0, None, None, 0.75))
    states.advance("c0", RunningCohort(8, 3.5, 800, 1.25, None))
    assert states.lines("auroc") == ["cohort c0  8 trials  epoch 3.5 of 800  loss 1.25  mean auroc 0.75"]
    assert states.values == [0.75]


def test_the_summary_is_of_all_cohorts() -> None:
    states = running(c0=(12.0, 1.0, 0.5), c1=(37.0, 2.0, None))
    assert states.summary() == "epochs 12 to 37 of 800, loss 1.5"
    assert running(c0=(12.0, None, None)).summary() == "epoch 12 of 800"


def test_an_ended_cohort_is_no_longer_shown() -> None:
    states = running(c0=(12.0, 1.0, 0.5))
    states.end("c0")
    states.end("never started")
    assert states.lines("auroc") == [] and states.summary() == ""


def test_only_the_first_cohorts_have_a_line_of_their_own() -> None:
    lines = running(**{f"c{i}": (1.0, None, None) for i in range(MAX_LINES + 3)}).lines("auroc")
    assert len(lines) == MAX_LINES + 1 and lines[-1] == "and 3 more cohorts"


def test_training_without_epochs_is_shown_too() -> None:
    states = RunningCohorts()
    states.advance("c0", RunningCohort(1, 0.0, None, None, 0.5))
    assert states.lines("auroc") == ["cohort c0  1 trial  epoch 0  mean auroc 0.5"]


def test_half_of_the_epochs_of_eight_trials_count_as_four_trials() -> None:
    assert running(c0=(400.0, None, None), c1=(100.0, None, None)).trials_trained == 5.0
