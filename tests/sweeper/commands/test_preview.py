"""What `--plan` shows: axes, fixed values, changes by the request, and what an allocation lets expect; what errors say
of keys that the preset has set; and `--fresh`, which archives rows, and prints the command that brings them back.
"""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.commands import restore
from sweeper.commands.arguments import Restoration, parse
from sweeper.commands.command_line import EXIT_OK
from sweeper.commands.preview import (
    distribution_text,
    expectation,
    limits,
    outline_distribution,
    outline_plan,
    outline_space,
    outline_text,
    space_lines,
    text,
)
from sweeper.commands.restore import archive, preview_archive
from sweeper.definition import Grid, Heatmap, Metric, Search, Selection, SpecError, Sweep, Value, registry
from sweeper.option_values import NodePrice
from sweeper.packing.compilation import StudySteps, record_steps, recorded_steps
from sweeper.packing.workloads import COHORT_START_SECONDS
from sweeper.planning.changes import Change, Changes
from sweeper.planning.cohorts import Cut, cut
from sweeper.planning.plan import Plan
from sweeper.planning.prepare import explain_preset_keys, prepare
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.sweeper.commands.test_conclusion import COLUMNS, store_of
from tests.sweeper.packing.fake_cluster import FakeMeasure
from tests.sweeper.packing.test_allocate import CPU, allocated, grid
from tests.sweeper.planning.test_cohorts import SWEEP, make
from tests.sweeper.search.test_search_plan import continued, plan
from tests.sweeper.search.toy_waves import study_run


def test_hours_and_cost_are_those_of_the_remaining_trials(tmp_path: Path) -> None:
    """32 members in stacks of 8 on 4 cores: ten thousand steps of sqrt(8) hundredths of a second."""
    plan = grid()
    allocation = allocated(tmp_path, FakeMeasure(CPU), plan, "--plan", "--node-price", "3")
    seconds = COHORT_START_SECONDS + 10_000 * 0.01 * 8**0.5
    plain = expectation(allocation, plan, NodePrice({"": 3.0}))
    assert plain["hours"] == pytest.approx(seconds / 3600) and plain["cost"] == pytest.approx(3 * seconds / 3600)
    assert (plain["at_a_time"], plain["stack_widths"]) == (4, [8]) and json.loads(json.dumps(plain)) == plain
    (cohort, *_) = cut(plan.groups, allocation.cuts)
    assert allocation.cohort_seconds()(cohort) == pytest.approx(seconds) and allocation.price == 3.0
    half = replace(plan, grid_statuses=dict.fromkeys(plan.ids[:16], "finished"))
    assert expectation(allocation, half, NodePrice({"": 3.0}))["hours"] == pytest.approx(seconds / 7200)
    assert expectation(allocated(tmp_path, FakeMeasure(CPU), plan), half, None)["cost"] is None


def test_a_plan_says_whether_it_fits_its_limits() -> None:
    request = parse(["grid", "--hours", "2", "--cost", "9", "--node-price", "3"])
    lines = text({**outline_plan(grid(), None, "one"), **limits(request, grid(), {"hours": 4.0, "cost": 12.0})})
    assert "--hours 2: what is left does not fit: about 50% of it does" in lines and "--cost 9: what is left" in lines
    assert [limit["fits"] for limit in limits(request, grid(), {"hours": 1.0, "cost": 9.0})["limits"]] == [True, True]
    assert [limit["fits"] for limit in limits(request, grid(), {"hours": None})["limits"]] == [None, None]
    assert limits(parse(["grid"]), grid(), {"hours": 1.0}) == {}


def test_a_price_for_all_nodes_is_a_number() -> None:
    by_kind = {"": 1.0, "H100": 9.0}
    plain = [expectation(None, grid(), NodePrice(prices))["node_price"] for prices in ({"": 3.0}, by_kind)]
    assert plain == [3.0, by_kind]


def strict(plain: object) -> Any:
    """Convert to JSON and back, refusing NaN and Infinity, which are not valid JSON."""
    return json.loads(json.dumps(plain, allow_nan=False))


def test_a_grid_has_its_axes_its_constants_and_its_changes() -> None:
    grid = Grid({"method": "vje", "epochs": 5}, {"nu": (0.5, math.inf), "seed": (0, 1)})
    outline = strict(outline_space(grid, Changes("digits", {"epochs": Change((5,), (50,)), "lr": Change((0.1,), ())})))
    assert outline["axes"] == {"nu": [0.5, "inf"], "seed": [0, 1]} and outline["fixed"] == {
        "method": "vje",
        "epochs": 5,
    }
    assert outline["changed"]["epochs"] == {"values": [5], "preset": [50]} and outline["parts"] == []
    assert [line.split(maxsplit=1) for line in space_lines(outline)] == [
        ["axes", "nu: 0.5, inf"], ["seed:", "0, 1"], ["fixed", "method=vje epochs=5"],
        ["changed", "epochs: 5 (preset: 50)"], ["lr:", "0.1"],
    ]  # fmt: skip


def test_several_grids_have_common_and_separate_keys() -> None:
    grids = Grid({"method": "a", "lr": 0.1}, {"seed": (0, 1)}), Grid({"method": "b", "lr": 0.1}, {"seed": (0,)})
    outline = strict(outline_space(grids, Changes("paper", {})))
    assert outline["fixed"] == {"lr": 0.1} and outline["axes"] == {} and outline["changed"] == {}
    assert outline["parts"] == [
        {"fixed": {"method": "a"}, "axes": {"seed": [0, 1]}, "trials": 2},
        {"fixed": {"method": "b"}, "axes": {"seed": [0]}, "trials": 1},
    ]
    assert space_lines(outline)[-2].split() == ["each", "of", "method=a", "seed=0,1"]


def test_distributions_are_objects_and_read_as_ranges() -> None:
    distributions = [
        FloatDistribution(0.03, 3, log=True), FloatDistribution(0, 1, step=0.25), IntDistribution(8, 64, log=True),
        CategoricalDistribution((32, None, math.inf)),
    ]  # fmt: skip
    plain = strict(list(map(outline_distribution, distributions)))
    assert plain[0] == {"name": "FloatDistribution", "low": 0.03, "high": 3.0, "log": True, "step": None}
    assert plain[3] == {"name": "CategoricalDistribution", "choices": [32, None, "inf"]}
    expected = ["0.03 to 3, log", "0 to 1, in steps of 0.25", "8 to 64, log", "one of 32, none, inf"]
    assert list(map(distribution_text, plain)) == expected


def test_the_distributions_of_a_study_are_aligned() -> None:
    space = {"x": FloatDistribution(0, 1), "a_key_of_many_letters": FloatDistribution(0, 1)}
    search = Search(space, {"method": "vje"}, trials=2, metric=Metric("auroc", "maximize"), wave=2)
    runs = [study_run(study) for study in search.studies()]
    plan = Plan("s", "digits", Sweep("about", {"digits": search}), study_runs=runs)
    steps: dict[str, StudySteps | None] = {runs[0].id: StudySteps(4, every=True)}
    lines = outline_text(outline_plan(plan, None, "one core", steps)).splitlines()
    assert sum(line.endswith(", tpe, with compiled steps") for line in lines) == len(runs)
    columns = [line.index("0 to 1") for line in lines if "0 to 1" in line]
    assert len(columns) == 2 and columns[0] == columns[1]


def test_a_description_is_json_and_says_what_would_run() -> None:
    plan = make(statuses={"t0": "finished", "t2": "finished", "t4": "failed"})
    plain = outline_plan(plan, [Cut(2, 2)] * 2, "one core")
    assert json.loads(json.dumps(plain)) == plain
    expected = {"trials": 6, "finished": 2, "failed": 1, "to run": 3, "groups": 2, "cohorts": 4, "cohorts_to_run": 3}
    assert plain | expected == plain and plain["cohort_sizes"] == [1, 2]
    text = outline_text(plain)
    assert "6: 2 finished, 0 diverged, 1 failed, 3 to run" in text and "4 of 1 or 2 trials, 3 to run" in text


def test_a_plan_that_is_not_yet_cut_says_so() -> None:
    plain = outline_plan(make(), None, "one core")
    assert plain["cohorts"] is None and plain["cohort_sizes"] is None
    assert "cut by measurement when the run begins" in outline_text(plain)


GRID = Grid({"method": "vje", "bottleneck": 64, "epochs": 5}, {"nu": (1.0, 2.0)})
SEARCH = Search(
    {"nu": FloatDistribution(0, 1)}, {"method": "vje", "bottleneck": 64}, 4, Metric("m", "minimize"), wave=2
)


@pytest.mark.parametrize("space", [GRID, (GRID,), SEARCH, (SEARCH,)])
def test_a_key_that_only_the_preset_sets_is_named_before_the_choices(space: Any) -> None:
    request = parse(["x", "--set", "method=simclr"])
    explained = explain_preset_keys("no key 'bottleneck'; simclr has: tau, nu, lr", request, "digits", space)
    assert explained == "no key 'bottleneck' (bottleneck is set by preset 'digits'); simclr has: tau, nu, lr"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--set nu=-1", "`nu > 0` must hold, but got nu=-1.0"),
        ("--axis nu=-1", "`nu > 0` must hold, but got nu=-1.0"),
        ("--set nuu=1", "no key 'nuu' (did you mean 'nu'?); there are: nu"),
        ("", "no method 'vja'; there are: vje, nu"),
        ("", "cifar10 is absent from /data/epochs/nu and its download failed"),
    ],
)
def test_an_error_about_nothing_that_the_preset_sets_stays(arguments: str, error: str) -> None:
    assert explain_preset_keys(error, parse(["x", *arguments.split()]), "digits", GRID) == error


def test_of_two_keys_the_one_that_the_user_did_not_set_is_named() -> None:
    error = "nu must not exceed epochs, but got nu=9.0, epochs=5"
    request = parse(["x", "--set", "nu=9"])
    assert explain_preset_keys(error, request, "digits", GRID) == f"{error} (epochs is set by preset 'digits')"
    expected = f"{error} (epochs and nu are set by preset 'paper')"
    assert explain_preset_keys(error, parse(["x"]), "paper", GRID) == expected


def test_a_request_may_leave_out_all_trials_that_a_heatmap_selects(tmp_path: Path) -> None:
    """The key `objective`, by which trials of other methods are selected, is none of the untrained encoder's."""
    plan, _ = prepare(parse(["collapse_ablation", "--preset", "digits", "--axis", "method=random"]), Store(tmp_path))
    assert plan.total == 3


def test_a_selection_by_a_key_that_no_method_has_is_refused(tmp_path: Path) -> None:
    selections = (Selection({"setting": "high"}, {"nuu": 3.0}),)
    heatmap = Heatmap(Metric("auroc_joint", "maximize"), "setting", "nu", selections=selections)
    grid = Grid({"method": "vje", "dataset": "digits", "normal_class": 0}, {"nu": (1.0, 3.0)})
    request = replace(parse(["x"]), sweep=Sweep("about", {"digits": grid}, (heatmap,), name="mine"))
    with pytest.raises(SpecError, match=r"^a heatmap of auroc_joint needs the axis nuu, which these trials lack$"):
        prepare(request, Store(tmp_path))


def test_a_request_may_narrow_a_preset_to_methods_that_lack_an_axis(tmp_path: Path) -> None:
    """As that which trains the best setting again."""
    heatmap = Heatmap(Metric("knn_z", "maximize"), "method", "nu")
    fixed: dict[str, Value] = {"dataset": "digits", "knn": 5}
    grids = (Grid({**fixed, "method": "simclr"}, {"tau": (0.1,)}), Grid({**fixed, "method": "vje"}, {"nu": (1.0, 3.0)}))
    sweep = Sweep("about", {"digits": grids}, (heatmap,), name="mine")
    plan, _ = prepare(replace(parse(["x", "--set", "method=simclr"]), sweep=sweep), Store(tmp_path))
    assert len(plan.trials) == 1
    with pytest.raises(SpecError, match=r"needs the axis nu, which these trials lack"):
        prepare(replace(parse(["x"]), sweep=replace(sweep, presets={"digits": grids[:1]})), Store(tmp_path))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_of(tmp_path, make(3), {"t0": "finished", "t1": "finished", "t2": "finished"})


def restoration(printed: str) -> list[str]:
    """The arguments of the printed command."""
    return shlex.split(printed.split("sweeper restore ")[1].splitlines()[0])


def test_rows_that_a_fresh_run_replaced_are_restored(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find", lambda name: SWEEP)
    plan = make(2)  # of the three trials that have rows
    before = load("grid", store.files)
    assert preview_archive(plan, store, COLUMNS).rows == 2
    archive(plan, store, COLUMNS)
    out = capsys.readouterr().out
    assert out.startswith("archived: 2 rows, from 1 files of rows and history, in ")
    assert load("grid", store.files)["trial_id"].tolist() == ["t2"]
    assert restore.main(restoration(out)) == EXIT_OK
    assert load("grid", store.files).equals(before)
    assert capsys.readouterr().out.startswith("brought back: 2 rows")


def test_a_stale_checkpoint_is_out_of_the_way_when_its_cohort_starts(store: Store) -> None:
    path = checkpoint_path("grid", "c0")
    store.files.write(path, b"stale")
    path_of = archive(make(3), store, COLUMNS)
    assert store.files.read(path) == b"stale"
    assert path_of("c0") == path and store.files.read(path) is None


def test_rows_of_a_sweep_that_was_given_as_a_value_are_restored(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep `grid` is in no file."""
    before = load("grid", store.files)
    archive(make(2), store, COLUMNS)
    arguments = restoration(capsys.readouterr().out)
    assert arguments[0] == "grid" and restore.main(arguments) == EXIT_OK
    assert load("grid", store.files).equals(before)


def test_only_a_known_sweep_is_restored(store: Store) -> None:
    with pytest.raises(SpecError, match="no sweep 'grid'"):
        restore.restore(Restoration("grid", store.files.uri, "x"))


def test_a_fresh_search_chooses_its_steps_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    search_plan, steps = plan(continued("finished")), StudySteps(4, every=True)
    study = search_plan.study_runs[0].id
    record_steps(store.files, "search", study, steps)
    archive(search_plan, store, COLUMNS)
    assert recorded_steps(store.files, "search", study) is None
    assert restore.main(restoration(capsys.readouterr().out)) == EXIT_OK
    assert recorded_steps(store.files, "search", study) == steps
