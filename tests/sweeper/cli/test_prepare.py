"""An error points out those of its keys that the preset has set; and what a heatmap needs of the trials."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from sweeper.cli.arguments import parse
from sweeper.plan.prepare import explain_preset_keys, prepare
from sweeper.spec import Grid, Heatmap, Metric, Search, Selection, SpecError, Sweep
from sweeper.storage.store import Store

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
