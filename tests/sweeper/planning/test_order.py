"""The order in which cohorts start: coarse, shuffled or as the grid has them; and that nothing else depends on it."""

import itertools
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.commands import run
from sweeper.commands.arguments import parse
from sweeper.definition import Grid, Metric, Sweep
from sweeper.definition.figures import Heatmap
from sweeper.errors import SpecError
from sweeper.option_values import Order
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cohort, Cut, Trial
from sweeper.planning.order import in_order
from sweeper.planning.plan import Plan
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import rows, small_grid
from trainables.worker.messages import CohortTask

SWEEP = Sweep("about it", {"paper": Grid({}, {})}, (Heatmap(Metric("auroc", "maximize"), "beta", "nu"),))


def plan_of(*grids: Grid) -> Plan:
    trials = tuple(Trial(str(index), config) for index, config in enumerate(c for g in grids for c in g.combinations()))
    return Plan("grid", "paper", SWEEP, trials, [[trials]], [1], space=grids)


def cohorts_of(plan: Plan, size: int = 1) -> tuple[Cohort, ...]:
    return cohorts.cut(plan.groups, [Cut(size, size)])


@given(st.lists(st.integers(3, 9), min_size=1, max_size=3), st.randoms())
def test_every_other_value_comes_first_and_of_these_again_every_other(lengths: list[int], random: object) -> None:
    """The trials whose places on all axes are multiples of 2**k are the first, for every k."""
    axes = {f"axis{index}": list(map(float, range(length))) for index, length in enumerate(lengths)}
    for values in axes.values():
        random.shuffle(values)  # type: ignore[attr-defined]  # a paper may print them in any order
    plan = plan_of(Grid({}, {key: tuple(values) for key, values in axes.items()}))
    started = [cohort.trials[0].config for cohort in in_order(cohorts_of(plan), plan, Order("coarse"))]
    for stride in (2, 4, 8):
        coarse = {*itertools.product(*(range(0, length, stride) for length in lengths))}
        if min(lengths) > stride:
            assert {tuple(config.values()) for config in started[: len(coarse)]} == coarse


def test_replicates_and_texts_are_no_axes_of_a_heatmap() -> None:
    grid = Grid({}, {"method": ("a", "b", "c"), "lr": (0.1, 0.2, 0.3), "seed": (0, 1, 2), "normalise": (False, True)})
    plan = plan_of(grid)
    started = [cohort.trials[0].config for cohort in in_order(cohorts_of(plan), plan, Order("coarse"))]
    kept = [config for config in grid.combinations() if config["lr"] != 0.2]
    assert started == [*kept, *(config for config in grid.combinations() if config["lr"] == 0.2)]


def test_a_cohort_starts_by_its_coarsest_trial_then_by_the_mean() -> None:
    plan = plan_of(Grid({}, {"lr": tuple(range(9))}))
    started = in_order(cohorts_of(plan, 2), plan, Order("coarse"))
    assert [[trial.config["lr"] for trial in cohort.trials] for cohort in started] == [
        [0, 1], [7, 8], [4], [2, 3], [5, 6]
    ]  # fmt: skip
    parted = cohorts.cut([[plan.grid_trials[:5]], [plan.grid_trials[8:]]], [Cut(5, 5), Cut(1, 1)])
    started = in_order(parted, plan, Order("coarse"))
    assert [len(cohort.trials) for cohort in started] == [1, 5], "the one that is coarse on average"


def test_a_shuffled_order_depends_on_its_seed_alone() -> None:
    plan = plan_of(Grid({}, {"lr": tuple(range(20))}), Grid({}, {"beta": (1, 2, 3)}))
    every = cohorts_of(plan)
    first = in_order(every, plan, Order("shuffled", 1))
    assert first == in_order(every[::-1], plan, Order("shuffled", 1)) != in_order(every, plan, Order("shuffled", 2))
    assert sorted(first, key=every.index) == list(every) == in_order(every, plan, Order())
    assert [cohort for cohort in first if cohort in every[5:]] == in_order(every[5:], plan, Order("shuffled", 1))


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_a_sweep_that_is_continued_in_another_order_has_the_same_rows(tmp_path: Path) -> None:
    tasks: list[CohortTask] = []

    def interrupt(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) == 2:
            raise KeyboardInterrupt

    def arguments(store: str, order: str) -> list[str]:
        words = [word if word != "seed=0,1" else "seed=0" for word in small_grid(tmp_path / store)]
        return [*words, "--cohort", "1", "--order", order]

    with without_ray(tmp_path):
        assert run.main(arguments("whole", "given")) == 0
    with without_ray(tmp_path, interrupt):
        assert run.main(arguments("store", "coarse")) == 130
    assert [task.spec.configs()[0].flat()["beta"] for task in tasks] == [0.5, 1.5]
    with without_ray(tmp_path):
        assert run.main(arguments("store", "shuffled:3")) == 0
    pd.testing.assert_frame_equal(rows(tmp_path / "store", "anomaly_grid"), rows(tmp_path / "whole", "anomaly_grid"))


def test_the_command_line_takes_an_order_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["grid", "--order", "shuffled:7"]).order == Order("shuffled", 7)
    assert parse(["grid"]).order == Order() == parse(["grid", "--order", "given"]).order
    for text, law in [
        ("fine", "no value of --order 'fine'; there are: given, coarse, shuffled"),
        ("coarse:1", "only --order shuffled has a seed, but got coarse:1"),
        ("shuffled:x", "the seed of --order shuffled:SEED must be a whole number of at least 0, but got x"),
    ]:
        with pytest.raises(SpecError, match=law):
            parse(["grid", "--order", text])
    assert run.main(["vje_search", "--preset", "digits", "--order", "coarse", "--plan"]) == 2
    assert "vje_search (digits) is a search, whose sampler orders its trials" in capsys.readouterr().err
