"""Sweeps from Python: the same checks and rows as from the command line, and exceptions instead of exit statuses."""

import ast
import doctest
import importlib
import json
import pkgutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeper
from sweeper import api, definition
from sweeper.commands.arguments import parse
from sweeper.definition import registry
from sweeper.errors import ClusterError, SpecError, StoreError
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY, rows
from trainables.worker.messages import CohortTask

pytestmark = pytest.mark.usefixtures("undrawn")


def run(folder: Path, before: Callable[[CohortTask], None] = lambda task: None, **options: Any) -> pd.DataFrame:
    """Run the tiny sweep."""
    with without_ray(folder, before):
        return sweeper.run(TINY, name="tiny", store=folder / "store", cohort=2, **options)


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_examples_of_the_package_are_right() -> None:
    results = doctest.testmod(sweeper)
    assert results.attempted == 2 and results.failed == 0


def test_importing_the_package_imports_none_of_its_modules_and_nothing_large() -> None:
    code = (
        "import sys, sweeper\n"
        "dir(sweeper)\n"
        "ours = {name for name in sys.modules if name.startswith(('sweeper', 'trainables', 'search_spaces'))}\n"
        "assert ours == {'sweeper'}, ours\n"
        "assert not {'torch', 'ray', 'pandas', 'pyarrow', 'numpy', 'optuna'} & sys.modules.keys()"
    )
    python(code)


def test_each_public_name_is_what_its_module_defines() -> None:
    assert sorted(sweeper.MODULE_OF) == sorted(sweeper.__all__) and {*sweeper.__all__} <= {*dir(sweeper)}
    for name in sweeper.__all__:
        assert getattr(sweeper, name) is getattr(importlib.import_module(sweeper.MODULE_OF[name]), name), name


def test_an_earlier_name_is_refused_with_the_new_one() -> None:
    for name, now in sweeper.RENAMED.items():
        assert now in sweeper.__all__
        with pytest.raises(AttributeError, match=rf"sweeper\.{name} is now sweeper\.{now}$"):
            getattr(sweeper, name)


def test_type_checkers_see_each_public_name_in_its_module() -> None:
    tree = ast.parse(Path(sweeper.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == sweeper.MODULE_OF


def test_the_earlier_module_of_the_names_for_a_sweeps_file_is_refused_with_the_new_one() -> None:
    with pytest.raises(ImportError, match=r"sweeper\.spec is gone; import from sweeper"):
        importlib.import_module("sweeper.spec")


def test_the_names_for_a_sweeps_file_are_all_public() -> None:
    assert {*definition.__all__} <= {*sweeper.__all__}


def test_no_module_takes_the_place_of_a_function() -> None:
    """`run.py` is what `python -m sweeper.run` starts. It cannot be imported."""
    names = {module.name for module in pkgutil.iter_modules(sweeper.__path__)}
    assert names.intersection(sweeper.__all__) == {"run"}
    with pytest.raises(ImportError, match=r"sweeper\.run is a function: from sweeper import run"):
        importlib.import_module("sweeper.run")
    assert sweeper.run is api.run


@pytest.mark.slow
def test_a_run_returns_its_rows_and_the_same_call_again_trains_nothing(tmp_path: Path) -> None:
    tasks: list[CohortTask] = []
    frame = run(tmp_path, tasks.append)
    assert list(frame["beta"]) == [0.5, 0.5, 1.5, 1.5] and set(frame["status"]) == {"finished"} and len(tasks) == 2
    again = run(tmp_path, tasks.append, axis={"seed": (1,)})
    pd.testing.assert_frame_equal(again, frame[frame["seed"] == 1].reset_index(drop=True), check_like=True)
    assert len(tasks) == 2
    assert list(sweeper.load("tiny", tmp_path / "store")["sweep"]) == ["tiny"] * 4
    assert set(sweeper.load_history("tiny", tmp_path / "store")["trial_id"]) == set(frame["trial_id"])


def test_python_and_the_command_line_make_the_same_request(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "gpu_fraction": 0.5,
        "cohort": 8,
        "fresh": True,
        "keep": "all",
        "address": "auto",
        "step_timeout": 60,
        "trials": 8,
        "search_seed": 3,
        "node_price": 2.5,
        "normal_class": 3,
        "track": ["tensorboard", "mlflow=http://127.0.0.1:5000"],
        "wait": False,
        "preset": "digits",
    }
    words = [f"--store={tmp_path}", "--fresh", "--normal-class=3", "--track=tensorboard"]
    words += [
        f"--{option.replace('_', '-')}={value}" for option, value in options.items() if type(value) in (int, float)
    ]
    words += ["--keep=all", "--address=auto", "--track=mlflow=http://127.0.0.1:5000", "--preset=digits"]
    made = api._request("anomaly_grid", None, {"lr": 0.1}, {"seed": [0, 1]}, {**options, "store": str(tmp_path)})
    typed = parse(["anomaly_grid", *words, "--set=lr=0.1", "--axis=seed=0,1"])
    assert replace(made, fixed={}, axes={}) == replace(typed, fixed={}, axes={})
    assert made.fixed == {"lr": 0.1, "normal_class": 3} and made.axes == {"seed": (0, 1)}
    assert typed.fixed == {"lr": "0.1", "normal_class": "3"} and typed.axes == {"seed": ("0", "1")}


def test_values_stay_what_they_are() -> None:
    fixed: dict[str, Any] = {"normalise": True, "nu": float("inf"), "normal_class": None, "lr": np.float32(0.5)}
    made = api._request("anomaly_grid", None, fixed, {"beta": [0.5, 2], "method": ["a,b"]}, {})
    assert made.fixed == {"normalise": True, "nu": float("inf"), "normal_class": None, "lr": 0.5}
    assert type(made.fixed["lr"]) is float and made.axes == {"beta": (0.5, 2), "method": ("a,b",)}


def test_a_sweep_that_ships_can_be_given_as_a_value() -> None:
    shipped = registry.find("anomaly_grid")
    assert api._named(shipped, None) == shipped


@for_each(
    ("options", "message"),
    [
        ({"sweep": "anomaly_gird"}, "no sweep 'anomaly_gird' (did you mean 'anomaly_grid'?)"),
        ({"preset": "digit"}, "no preset 'digit' (did you mean 'digits'?)"),
        ({"set": {"bta": 1}}, "no key 'bta' (did you mean 'beta'?)"),
        ({"set": {"beta": -1}}, "`beta >= 0` must hold"),
        ({"axis": {"beta": "0.5"}}, "axis beta must be a sequence of values, such as (0.1, 1.0), but is a str: '0.5'"),
        (
            {"axis": {"beta": {0.5, 1}}},
            "axis beta must be a sequence of values, such as (0.1, 1.0), but is a set, which has",
        ),
        ({"axis": ["beta"]}, "axis must map hyperparameters to values, such as {'lr': 0.1}, but got ['beta']"),
        ({"patience": 60}, "no option 'patience'; it is now 'step_timeout'"),
        ({"n_trials": 3}, "no option 'n_trials' (did you mean 'trials'?)"),
        ({"lr": 0.1}, "no option 'lr'; a hyperparameter is given by set={'lr': 0.1}"),
        ({"gpus": 2}, "no option 'gpus'; a sweep trains on all GPUs that it sees"),
        ({"axis": {"beta": ()}}, "axis beta must have at least one value"),
        ({"axis": {"method": ["vje,byol"]}}, "no method 'vje,byol'"),
        ({"set": {"beta": "0.5"}}, "beta must be a number, but got beta='0.5'"),
        ({"set": {"beta": [0.5, 1]}}, "beta must be a single value, but got beta=[0.5, 1]"),
        ({"set": {"epochs": True}}, "epochs must be a whole number, but got epochs=True"),
        ({"set": {"normalise": 1}}, "normalise must be true or false, but got normalise=1"),
        ({"fresh": "yes"}, "fresh must be true or false, but got 'yes'"),
        ({"gpu_fraction": "half"}, "--gpu-fraction must be a number, but got half"),
        ({"keep": "some"}, "no value of --keep 'some'; there are: best, all, none"),
        ({"cohort": 0}, "--cohort must be a whole number of at least 1"),
        ({"gpu_fractoin": 0.5}, "no option 'gpu_fractoin' (did you mean 'gpu_fraction'?); there are: "),
        ({"help": True}, "'help' is an option of the command line alone"),
        ({"version": True}, "'version' is an option of the command line alone"),
        ({"restore": "now"}, "'restore' is an option of the command line alone"),
        ({"sweep": TINY, "name": "anomaly_grid"}, "the name of a sweep of your own must not be that of one that ships"),
        ({"track": ["tensorbord"]}, "no tracker 'tensorbord' (did you mean 'tensorboard'?)"),
        ({"keep": ["best", "all"]}, "keep must be one value, but got ['best', 'all']"),
        ({"name": "mine"}, "a name is for a Sweep that is given as a value"),
        ({"sweep": TINY}, "a Sweep that is given as a value needs a name"),
        ({"sweep": TINY, "name": "../mine"}, "the name of a sweep must consist of letters"),
        ({"sweep": 3}, "a sweep must be a name or a sweeper.Sweep, but got int"),
        ({"store": ""}, "--store must name a folder"),
    ],
)
@for_each("verb", ["run", "plan"])
def test_a_wrong_request_is_an_exception_before_anything_starts(
    verb: str, options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"preset": "digits" if isinstance(options.get("sweep", ""), str) else None, **options}
    with pytest.raises(SpecError) as raised:
        getattr(sweeper, verb)(arguments.pop("sweep", "anomaly_grid"), **arguments)
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)
    shown = traceback.format_exception(raised.value)
    assert shown[-1] == f"sweeper.errors.SpecError: {raised.value}\n" and len(shown) <= 5, (
        "three frames, of which one is this test"
    )
    assert not list(tmp_path.iterdir())


def test_clusters_and_stores_that_cannot_be_used_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no Ray cluster answers at"):
        sweeper.run(TINY, name="tiny", store=tmp_path, address="127.0.0.1:1")
    with pytest.raises(StoreError, match="no trials of sweep 'tiny'"):
        sweeper.load("tiny", tmp_path)
    with pytest.raises(StoreError, match="no trial 'abc' in any of its sweeps"):
        sweeper.load_model(tmp_path, "abc")


@pytest.mark.slow
def test_an_interrupt_stops_in_order_and_the_same_call_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers, attempts = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)], 0

    def interrupt(task: CohortTask) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupt)
    assert "stopped: 2 of 4 trials are in" in capsys.readouterr().out
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    run(tmp_path)
    whole = tmp_path / "whole"
    whole.mkdir()
    run(whole)
    pd.testing.assert_frame_equal(rows(tmp_path / "store", "tiny"), rows(whole / "store", "tiny"))


def test_failed_trials_are_among_the_rows(tmp_path: Path) -> None:
    def fail(task: CohortTask) -> None:
        raise RuntimeError("no training today")

    frame = run(tmp_path, fail, retries=0, axis={"seed": [0]}, set={"beta": 0.5})
    assert list(frame["status"]) == ["failed"] and list(frame["error"]) == ["RuntimeError: no training today"]


def test_a_plan_is_what_the_command_line_prints_and_writes_nothing(tmp_path: Path) -> None:
    planned = sweeper.plan(TINY, name="tiny", store=tmp_path, axis={"seed": range(3)}, cohort=3)
    assert (planned["trials"], planned["to run"], planned["cohorts"]) == (6, 6, 3)
    assert planned["axes"]["seed"] == [0, 1, 2] and not list(tmp_path.iterdir())
    assert sweeper.plan(TINY, name="tiny", store=tmp_path, axis={"seed": "0..2"}, cohort=3) == planned
    assert json.loads(json.dumps(planned)) == planned


def test_another_thread_is_refused(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def start() -> None:
        try:
            sweeper.run(TINY, name="tiny", store=tmp_path)
        except SpecError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == [
        "a sweep must run in the main thread, which gets the signals, but this is another thread"
    ]


def test_other_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(
        AttributeError, match="module 'sweeper' has no attribute 'runs'; it has: Assumption, Batch, Claim, "
    ):
        sweeper.runs  # type: ignore[attr-defined]  # noqa: B018
    assert {"run", "plan", "load_model"} <= set(dir(sweeper))
