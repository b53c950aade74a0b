"""`sweeper trial`: one trial in this process."""

import pdb
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import sweeper
from sweeper.commands import trial
from sweeper.errors import SpecError
from sweeper.option_values import Text
from sweeper.planning.cohorts import trial_id
from sweeper.request import Request
from sweeper.storage.layout import log_path
from sweeper.storage.load import load
from sweeper.storage.logs import LARGEST_LOG
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.user_files import DENOISE, user_folder
from trainables.config import column_types, resolve

__all__ = ["user_folder"]

SWEEP = """
from sweeper import Grid, Metric, Sweep, Table

KEYS = {"method": "own_method:Denoise", "dataset": "digits", "epochs": 2, "knn": 5, "encoder": "mlp", "width": 8}
TABLE = Table("knn", ("sigma",), (Metric("knn_z", "maximize"),))
SWEEP = Sweep("mine", {"tiny": Grid(KEYS, {"sigma": (0.1, 0.2), "seed": (0, 1)})}, figures=(TABLE,))
"""
RAISES = DENOISE.replace("first, second", "assert not getattr(self, 'epoch', 0), 'here'\n        first, second")
"""A method that raises in its second epoch."""
DIVERGES = DENOISE.replace("error.square().mean()", "error.square().mean() / (1 - getattr(self, 'epoch', 0))")
"""A method whose loss is infinite in its second epoch."""


@pytest.fixture
def folder(user_folder: Path) -> Path:
    (user_folder / "own_method.py").write_text(DENOISE)
    (user_folder / "own_sweep.py").write_text(SWEEP)
    return user_folder


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The only line of the error."""
    assert trial.main(["own_sweep.py", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.removeprefix("error: ").strip()


@pytest.mark.slow
def test_it_computes_what_a_sweep_does_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trial.main(["own_sweep.py", "sigma=0.2", "seed=1"]) == 0
    out = capsys.readouterr().out
    assert "method=own_method:Denoise dataset=digits seed=1 sigma=0.2" in out and "epoch 1 of 2  loss" in out
    assert not (folder / "results").exists()
    with without_ray(folder):
        sweeper.run("own_sweep.py", cohort=1, axis={"sigma": [0.2], "seed": [1]})
    (row,) = load("own_sweep", "results").to_dict("records")
    assert f"trial {row['trial_id']} of" in out
    for metric in ("loss", "knn_z"):
        assert re.search(rf"^  {metric} +{re.escape(f'{row[metric]:.4g}')}$", out, re.M)


@pytest.mark.usefixtures("folder")
def test_what_matches_none_or_several_is_answered_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys) == (
        "one trial must be chosen, but 4 of own_sweep (tiny) are; add KEY=VALUE of what they differ in: "
        "seed=0,1; sigma=0.1,0.2"
    )
    assert refused(capsys, "sigma=0.1") == (
        "one trial must be chosen, but 2 of own_sweep (tiny) are; add KEY=VALUE of what they differ in: seed=0,1"
    )
    assert refused(capsys, "seed=1", "sigma=7") == (
        "no trial of own_sweep (tiny) has sigma=7; those that fit the rest have sigma=0.1,0.2"
    )
    assert refused(capsys, "deadbeef").startswith("no trial of own_sweep (tiny) has the id 'deadbeef'")
    assert refused(capsys, "sgma=0.1").startswith("no key 'sgma' (did you mean 'sigma'?)")
    assert refused(capsys, "seed=1", "--out", "trace.json").startswith("--out requires --profile")


@for_each("sweep", ["one_class_benchmark", "ssl_benchmark", "anomaly_grid"])
def test_many_matches_are_answered_in_a_short_line(sweep: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys that it names tell all matches apart."""
    assert trial.main([sweep, "--preset", "digits", "seed=0"]) == 2
    line = capsys.readouterr().err
    assert len(line) < 300 and re.search(r"method=.*,\.\.\. \(\d+ values\)|normal_class=.*,\.\.\. \(10 values\)", line)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_written_trial_is_one_of_its_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert trial.main(["own_sweep.py", "sigma=0.1", "seed=0", "--write"]) == 0
    (row,) = load("own_sweep", "results", preset="tiny").to_dict("records")
    assert (row["status"], row["sigma"], row["seed"]) == ("finished", 0.1, 0)
    capsys.readouterr()
    assert "has a row in the store already" in refused(capsys, row["trial_id"][:6], "--write")
    with without_ray(Path()):
        assert sweeper.run("own_sweep.py", cohort=2)["status"].tolist() == ["finished"] * 4
    (kept,) = load("own_sweep", "results").query(f"trial_id == '{row['trial_id']}'").to_dict("records")
    assert kept["started"] == row["started"]  # it is not trained again


def test_the_log_of_a_trial_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, _, chosen = trial.planned(Request("own_sweep.py"), ["sigma=0.1", "seed=0"], Store("results"))
    assert trial.main(["own_sweep.py", "sigma=0.1", "seed=0", "--log"]) == 1
    assert capsys.readouterr().out.startswith(f"trial {chosen.id} of own_sweep has no log: ") and plan.trials
    files = Store("results").files
    files.write(log_path("own_sweep", chosen.id), b"epoch 1\repoch 2\r\n\x1b[2J\xff")
    for words in (["own_sweep.py", "sigma=0.1", "seed=0"], ["own_sweep", chosen.id[:6]], ["own_sweep", chosen.id]):
        assert trial.main([*words, "--log"]) == 0
        assert capsys.readouterr().out == "epoch 1\nepoch 2\n\\x1b[2J\ufffd\n"
    files.write(log_path("own_sweep", f"{chosen.id[:6]}other"), b"")
    assert "but 2 with a log begin so: " in refused(capsys, chosen.id[:6], "--log")
    assert trial.main(["own_sweep", "../x", "--log"]) == 1 and "has no log" in capsys.readouterr().out
    files.write(log_path("own_sweep", chosen.id), b"." * (LARGEST_LOG + 1))
    assert "it must have at most 4 MiB" in refused(capsys, chosen.id, "--log")


def test_debug_opens_pdb_at_the_exception(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own_method.py").write_text(RAISES)
    opened: list[Any] = []
    monkeypatch.setattr(pdb.Pdb, "interaction", lambda self, frame, traceback: opened.append(traceback))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for debug, count in (([], 0), (["--debug"], 1)):
        assert trial.main(["own_sweep.py", "sigma=0.1", "seed=0", *debug]) == 1
        assert "AssertionError: here" in capsys.readouterr().err and len(opened) == count
    frames = []
    while opened[0]:
        frames.append(opened[0].tb_frame.f_code.co_filename)
        opened[0] = opened[0].tb_next
    assert frames[-1] == str(folder / "own_method.py")


def test_debug_opens_pdb_at_the_step_that_diverges(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own_method.py").write_text(DIVERGES)
    opened: list[Any] = []
    monkeypatch.setattr(pdb.Pdb, "interaction", lambda self, frame, traceback: opened.append(traceback))
    arguments = ["own_sweep.py", "sigma=0.1", "seed=0"]
    assert trial.main(arguments) == 1
    assert "diverged: loss was not finite in epoch 2, first at step 1 of " in capsys.readouterr().out
    assert trial.main([*arguments, "--debug"]) == 1 and not opened, "nobody is there"
    assert re.search(r"step 1 of \d+ of epoch 2: loss inf; the norm of the gradient was ", capsys.readouterr().err)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert trial.main([*arguments, "--debug"]) == 1
    (last,) = opened
    while last.tb_next:
        last = last.tb_next
    names = last.tb_frame.f_locals
    assert names["method"].losses(names["batch"], names["noise"]).total.isinf()


@pytest.mark.slow
def test_a_method_that_cannot_learn_is_found_by_a_few_examples(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["own_sweep.py", "sigma=0.1", "seed=0", "--overfit", "8", "--set", "lr=0.01"]
    assert trial.main(arguments) == 0
    assert "8 training examples, 200 steps at the rate 0.01" in capsys.readouterr().out
    assert trial.main([*arguments, "--set", "accumulate=8"]) == 0  # all examples are one part of the batch
    assert trial.main([*arguments[:-1], "lr=0.00000001"]) == 1
    assert "the loss does not fall" in capsys.readouterr().out


def test_a_trial_with_a_row_needs_no_plan_of_its_preset(tmp_path: Path) -> None:
    """With so few epochs the preset's pruner has no rung."""
    config, store = resolve({"method": "vje", "epochs": 2}), Store(tmp_path)
    row = {"trial_id": trial_id(config), **config.complete(), "status": "finished"}
    store.write("vje_search", "c", [row], Columns(column_types([config]), ()))
    request = Request("vje_search", preset="digits", store=str(tmp_path), fixed={"epochs": Text("2")})
    plan, _, chosen = trial.planned(request, [trial_id(config)], store)
    assert chosen.config == config.complete() and plan.preset == "digits"
    with pytest.raises(SpecError, match="a pruner needs a report before the last epoch"):
        trial.planned(request, ["0000000000000000"], store)
