"""The sweep of a function or a command that is run without a sweep's file."""

from pathlib import Path

import pandas as pd
import pytest

import sweeper
from sweeper.commands import run
from sweeper.commands.arguments import parse
from sweeper.commands.sweep_run import SweepRun
from sweeper.definition import Metric, Table, registry
from sweeper.definition.function_sweep import name_of_command
from sweeper.errors import SpecError
from tests.cases import for_each
from tests.user_files import user_folder

__all__ = ["user_folder"]

OWN = '''
def train(lr: float = 0.1, seed: int = 0, epochs: int = 2):
    """Numbers.

    More of them.
    """
    print("begins", lr)
    for epoch in range(epochs):
        yield {"loss": lr + seed + epoch, "other": 1}


def taken(status: str = "new") -> dict:
    return {"loss": 1.0}


class Other: ...
'''


@pytest.fixture
def folder(user_folder: Path) -> Path:
    (user_folder / "own_numbers.py").write_text(OWN)
    return user_folder


def test_its_table_has_the_axes_and_the_metric_of_the_request(folder: Path) -> None:
    axes = ["--axis", "lr=1,2", "--axis", "seed=0..2"]
    request = parse(["own_numbers:train", *axes, "--metric", "loss", "--mode", "min"])
    sweep = request.find_sweep()
    assert (sweep.name, sweep.about, [*sweep.presets]) == ("own_numbers.train", "Numbers.", ["all"])
    assert sweep.figures == (Table("results", ("lr",), (Metric("loss", "minimize"),), others=True),)
    assert parse(["own_numbers.py:train"]).find_sweep().headline("all") == Metric("seconds", "minimize")


@for_each(("options", "law"), [
    (["--metric", "loss"], "--metric loss needs --mode max or --mode min"),
    (["--mode", "max"], "--mode says whether a metric is to be high or low, so it needs --metric"),
])  # fmt: skip
def test_a_metric_and_its_direction_belong_together(options: list[str], law: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=law):
        parse(["own_numbers:train", *options]).find_sweep()


def test_a_sweep_has_its_metric_in_its_figures() -> None:
    with pytest.raises(SpecError, match="--metric, --mode and --metrics-from are for a function or a command"):
        parse(["anomaly_grid", "--metric", "loss", "--mode", "min"]).find_sweep()


def test_a_class_is_no_sweep(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"must define Other, a sweeper\.Sweep"):
        registry.find("own_numbers:Other")


@for_each(("line", "name"), [
    ("python train.py --lr {lr}", "train"),
    ("/usr/bin/Rscript --vanilla fit.model.R {lr}", "fit.model"),
    ("awk -f a/b/run.awk -v x={x}", "run"),
    ("./bin/train {lr}", "train"),
    ("{program} -x", "command"),
])  # fmt: skip
def test_a_command_has_the_name_of_its_script(line: str, name: str) -> None:
    assert name_of_command(line) == name == registry.find(line).name


def test_python_and_the_command_line_train_the_same_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second finds the rows of the first, and trains nothing."""
    store = str(folder / "results")
    axes = ["--axis", "lr=1,2", "--axis", "seed=0..2", "--metric", "loss", "--mode", "min", "--store", store, "--debug"]
    assert run.main(["own_numbers:train", *axes]) == 0
    printed = capsys.readouterr().out
    assert printed.count("begins") == 6 and "best loss: 3.00 [0.52, 5.48] (mean [95 % interval]" in printed
    assert "chosen by the reported" in printed and "training data" not in printed
    rows = sweeper.run(
        *("own_numbers:train",),
        axis={"lr": (1, 2), "seed": "0..2"},
        metric="loss",
        mode="min",
        store=store,
        debug=True,
    )
    assert "begins" not in capsys.readouterr().out
    assert isinstance(rows, pd.DataFrame) and rows["loss"].tolist() == [2.0, 3.0, 4.0, 3.0, 4.0, 5.0]
    assert rows["other"].tolist() == [1.0] * 6 and set(rows["method"]) == {"own_numbers:train"}


def test_to_set_a_key_to_its_default_changes_no_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a pruner a grid is trained as a study, whose rows the request finds."""
    options = ["--axis", "lr=1,2", "--pruner", "halving", "--metric", "loss", "--mode", "min", "--debug"]
    options += ["--store", str(folder / "results")]
    assert run.main(["own_numbers:train", *options, "--set", "epochs=2"]) == 0
    assert "best loss: 2.00" in (printed := capsys.readouterr().out) and "begins" in printed
    assert run.main(["own_numbers:train", *options]) == 0
    assert "best loss: 2.00" in (printed := capsys.readouterr().out) and "begins" not in printed


def test_a_metric_that_nothing_reports_is_named_at_the_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--metric", "acc", "--mode", "max", "--store", str(folder / "results"), "--debug"]
    run.main(["own_numbers:train", *options])
    assert (
        "no trial has reported acc, which the table results shows; they report: loss, other" in capsys.readouterr().out
    )


@for_each(("options", "law"), [
    (["--compile", "always"], "--compile always is for methods of this project and not for a function"),
    (["--cohort", "2", "--stack", "2"], "--stack above 1 is for methods of this project"),
    (["--keep", "best,best-epoch"], "--keep best-epoch is for methods of this project"),
    (["--set", "momentum=1"], "no key 'momentum'"),
    (["--set", "lr=low"], "lr must be a number, but got lr=low"),
    (["--set", "workers=2", "--set", "patience=3"], "patience must be 0, but got workers=2, patience=3"),
])  # fmt: skip
def test_what_cannot_hold_is_said_before_anything_starts(options: list[str], law: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=law):
        sweeper_plan(["own_numbers:train", *options, "--plan"])


def test_a_parameter_must_not_be_named_as_a_column(folder: Path) -> None:
    law = "the function own_numbers:taken must not have a parameter named as a column of every row, but got status"
    with pytest.raises(SpecError, match=law):
        sweeper_plan(["own_numbers:taken", "--plan"])


def sweeper_plan(arguments: list[str]) -> None:
    SweepRun.planned(parse(arguments))
