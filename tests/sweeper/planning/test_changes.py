"""The changes of a request in its preset: of each trial for its row, of the request for its name and its rows."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sweeper.commands.arguments import parse
from sweeper.definition import Grid, Value
from sweeper.planning import changes
from sweeper.planning.changes import Change, Changes, format_value
from sweeper.planning.plan import Plan
from sweeper.planning.prepare import prepare
from sweeper.storage.store import Store
from tests.cases import for_each

SMALL = "--axis beta=1 --axis nu=1 --axis normal_class=0"


def plan(tmp_path: Path, command: str) -> Plan:
    """Return the plan of `NAME PRESET OPTIONS`; no data are read."""
    name, preset, *options = command.split()
    request = parse([name, "--preset", preset, *options, "--store", str(tmp_path), "--data", "/nowhere", "--plan"])
    return prepare(request, Store(tmp_path))[0]


def by_trial(tmp_path: Path, command: str) -> dict[str, object]:
    """Return trial_id -> changes."""
    return {trial.id: trial.facts["changes"] for trial in plan(tmp_path, command).trials}


@pytest.mark.slow
@for_each(
    ("command", "trials", "name"),
    [
        ("anomaly_grid digits", {""}, "digits"),
        ("anomaly_grid digits --set epochs=50 --set momentum=0.9", {""}, "digits"),
        ("anomaly_grid digits --axis nu=20,10,5,3,2,1,0.5,0.25", {""}, "digits"),
        ("anomaly_grid digits --axis normal_class=0", {""}, "digits"),
        ("anomaly_grid digits --set epochs=5 --axis beta=1,0.5", {"epochs=5"}, "digits, epochs=5"),
        (f"anomaly_grid digits {SMALL} --axis seed=0,1", {"", "seed=1"}, "digits, seed=0,1"),
        ("anomaly_grid digits --set epochs=5 --set seed=1", {"epochs=5 seed=1"}, "digits, epochs=5 seed=1"),
        ("anomaly_grid digits --axis nu=0.5,inf", {"", "nu=inf"}, "digits, nu=0.5,inf"),
        ("anomaly_grid digits --set small_stem=false", {"small_stem=false"}, "digits, small_stem=false"),
        ("anomaly_grid digits --set optimiser=adam", {"optimiser=adam"}, "digits, optimiser=adam"),
        ("anomaly_grid digits --axis optimiser=sgd,adam", {"", "optimiser=adam"}, "digits, optimiser=adam,sgd"),
        ("anomaly_grid digits --set optimiser=sgd", {""}, "digits"),
        ("ssl_cifar10 digits --axis method=byol,simclr", {""}, "digits"),
        ("ssl_cifar10 digits --set epochs=5", {"epochs=5", ""}, "digits, epochs=5"),
        ("ssl_cifar10 digits --set method=simclr --set tau=0.5", {""}, "digits"),
        ("ssl_cifar10 digits --axis tau=0.5,0.7", {"", "tau=0.5", "tau=0.7"}, "digits, tau=0.5,0.7"),
        ("nu_ablation paper --axis dataset=stl10 --axis seed=0,5", {"", "seed=5"}, "paper, seed=0,5"),
        ("vje_search digits", {""}, "digits"),
        ("vje_search digits --trials 128", {""}, "digits"),
        ("vje_search digits --set lr=0.01", {"lr=0.01"}, "digits, lr=0.01"),
        ("vje_search digits --axis normal_class=0,1", {"", "normal_class=0"}, "digits, normal_class=0,1"),
        ("vje_search digits --set width=64 --sampler gp", {"sampler=gp width=64"}, "digits, sampler=gp width=64"),
        ("vje_search digits --sampler tpe --pruner halving --wave 32", {""}, "digits"),
        ("vje_search digits --pruner none", {"pruner=none"}, "digits, pruner=none"),
        ("ssl_search digits --set method=byol --set epochs=12", {"epochs=12"}, "digits, epochs=12"),
    ],
)
def test_what_a_request_changes(tmp_path: Path, command: str, trials: set[str], name: str) -> None:
    planned = plan(tmp_path, command)
    assert {trial.facts["changes"] for trial in planned.trials} == trials
    assert {trial.facts["preset"] for trial in planned.trials} == {command.split()[1]}
    assert planned.request == name and planned.request_rows.request == name
    again = " ".join([*command.split()[:2], *changes.options_of(planned.changes.text)])
    assert plan(tmp_path, again).request == name, "the text is typed as these options"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "other_command"),
    [
        (
            "anomaly_grid digits --set epochs=5 --axis seed=0,1",
            "anomaly_grid digits --axis normal_class=0,3 --axis epochs=5,50 --set seed=1 --set lr=0.002",
        ),
        ("ssl_cifar10 digits --set epochs=5", "ssl_cifar10 digits --axis method=vje,random --axis epochs=5,80"),
        ("vje_search digits", "vje_search digits --axis normal_class=0,1"),
    ],
)
def test_a_trial_has_the_same_changes_whichever_request_trains_it(
    tmp_path: Path, command: str, other_command: str
) -> None:
    first, second = by_trial(tmp_path, command), by_trial(tmp_path, other_command)
    shared = first.keys() & second.keys()
    assert shared and {trial: first[trial] for trial in shared} == {trial: second[trial] for trial in shared}


def test_of_several_grids_the_nearest_counts() -> None:
    """The second grid has the trial unchanged; the first has the same method with other values."""
    own = (Grid({"method": "a", "k": 0, "epochs": 5}, {}), Grid({"method": "a", "k": 1, "epochs": 7}, {}))
    defaults: Mapping[str, Value] = {"method": "a", "k": 0, "epochs": 3, "seed": 0}
    changed = changes.trial_changes(parse(["x", "--set", "seed=0"]), own, lambda method: defaults)
    assert changed({"method": "a", "k": 1, "epochs": 7, "seed": 0}) == ""
    assert changed({"method": "a", "k": 1, "epochs": 5, "seed": 0}) == "k=1"
    assert changed({"method": "a", "k": 0, "epochs": 6, "seed": 2}) == "epochs=6 seed=2"


def test_a_key_that_a_trial_lacks_has_its_default() -> None:
    """The keys of an optional section are no part of a trial at their defaults."""
    preset = Grid({"method": "a", "optimiser": "adam"}, {})
    defaults: Mapping[str, Value] = {"method": "a", "optimiser": "sgd", "seed": 0}
    changed = changes.trial_changes(parse(["x", "--set", "optimiser=sgd"]), preset, lambda method: defaults)
    assert changed({"method": "a", "seed": 0}) == "optimiser=sgd"
    assert changed({"method": "a", "seed": 0, "optimiser": "adam"}) == ""


@for_each(
    ("value", "text"),
    [(3.0, "3"), (0.5, "0.5"), (float("inf"), "inf"), (5e-6, "5e-06"), (None, "none"), (True, "true")],
)
def test_values_are_written_as_the_command_line_takes_them(value: Value, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("anomaly_grid digits --set epochs=5", "anomaly_grid digits --set epochs=5 --axis nu=1,3 --set normal_class=7"),
        ("ssl_cifar10 digits --set epochs=5", "ssl_cifar10 digits --set epochs=5 --axis method=byol,random"),
        ("ssl_search digits --set epochs=12", "ssl_search digits --set epochs=12 --set method=byol --trials 16"),
    ],
)
def test_a_narrower_request_has_the_name_and_the_rows_of_the_wider(tmp_path: Path, wide: str, narrow: str) -> None:
    wider, narrower = plan(tmp_path, wide), plan(tmp_path, narrow)
    assert narrower.request_rows == wider.request_rows and narrower.total < wider.total
    assert narrower.request == wider.request and narrower.request_folder == wider.request_folder
    if wider.request_rows.trials:
        assert list(wider.request_rows.trials) == list(wider.ids) and set(narrower.ids) < set(wider.ids)


def test_own_images_have_a_short_name() -> None:
    keys: dict[str, Value] = {"dataset": "folder", "image_digest": "0123456789ab", "epochs": 5}
    assert Changes("digits", {key: Change((value,), ()) for key, value in keys.items()}).name == (
        "digits, dataset=folder-012345 epochs=5"
    )
