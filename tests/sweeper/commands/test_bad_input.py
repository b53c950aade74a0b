"""A wrong request, data that are missing or damaged, and a store that cannot be used end with exit status 2 and one
line, before any Ray process starts.
"""

import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Never
from urllib.error import URLError

import pytest

from sweeper.commands import run
from sweeper.definition import Metric, registry
from sweeper.definition.figures import Table, Trajectory
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.image_files import write_imagenet
from tests.published_files import write_cifar10
from tests.sweeper.commands.refusals import CommandLine, command_line_of


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@for_each(
    ("name", "law"),
    [
        ("simclr", "'simclr' is a method, not a sweep; sweeps with it, which --axis method=simclr selects, are: "),
        (
            "digits",
            "'digits' is a preset, not a sweep; sweeps with it, which --preset digits selects, are: anoma",
        ),
        (
            "cifar10",
            "'cifar10' is a data set, not a sweep; sweeps with it, which --axis dataset=cifar10 selects, are",
        ),
        ("anomaly_grid:digits", "a sweep that ships has one value, SWEEP, but got 'anomaly_grid:digits'; its presets "),
    ],
)
def test_the_name_of_something_else(command_line: CommandLine, name: str, law: str) -> None:
    assert command_line.refuse(name=name).error.startswith(law)


def test_an_unknown_sweep_or_preset(command_line: CommandLine) -> None:
    assert command_line.refuse(name="anomaly_gird").error.startswith(
        "no sweep 'anomaly_gird' (did you mean 'anomaly_grid'?); --list shows all"
    )
    presets = ", ".join(registry.find("anomaly_grid").presets)
    assert (
        command_line.refuse(preset="digit").error == f"no preset 'digit' (did you mean 'digits'?); there are: {presets}"
    )


@pytest.mark.slow
@for_each(
    ("arguments", "law"),
    [
        ("--set nuu=1", "no key 'nuu' (did you mean 'nu'?); --describe keys lists all"),
        ("--axis bata=1,2", "no key 'bata' (did you mean 'beta'?); --describe keys lists all"),
        ("--set nu=-1", "`nu > 0` must hold, but got nu=-1"),
        ("--axis nu=1,0", "`nu > 0` must hold, but got nu=0"),
        ("--set nu=nan", "nu must be a number, but got nu=nan"),
        ("--set beta=abc", "beta must be a number, but got beta=abc"),
        ("--set beta=inf", "beta must be finite, but got beta=inf"),
        ("--set epochs=2.5", "epochs must be a whole number, but got epochs=2.5"),
        ("--set small_stem=maybe", "small_stem must be true or false, but got small_stem=maybe"),
        ("--set normal_class=10", "normal_class must be one of 0..9 for digits, but got 10"),
        ("--axis normal_class=0,-1", "`normal_class >= 0` must hold, but got normal_class=-1"),
        ("--set epochs=-1", "`epochs >= 0` must hold, but got epochs=-1"),
        ("--set momentum=1", "`momentum < 1` must hold, but got momentum=1"),
        ("--set batch_size=200", "batch_size must not exceed the 100 training images of digits"),
        ("--set method=vja", "no method 'vja' (did you mean 'vje'?); --describe methods lists all"),
        (
            "--set dataset=digit",
            "no dataset 'digit' (did you mean 'digits'?); --describe datasets lists all",
        ),
        ("--set encoder=resnet19", "no encoder 'resnet19' (did you mean 'resnet18'?); there are: "),
        ("--axis nu=", "axis nu must have at least one value and no empty one, but got 'nu='"),
        ("--axis nu=1,,2", "axis nu must have at least one value and no empty one, but got 'nu=1,,2'"),
        ("--axis nu=1,1.0", "the values of axis nu must differ, but 1.0 is there twice"),
        ("--axis nu=1 --set nu=2", "nu must be either set or an axis, but it is asked to be both"),
        ("--set nu=1 --set nu=2", "--set must be given once per key, but got nu=1 and nu=2"),
        ("--axis nu", "--axis takes KEY=VALUE, but got 'nu'"),
        ("--set normal_class=none", "these trials do not report auroc_joint; they report: loss, "),
        ("--set knn=30", "knn needs trials on all classes, but got knn=30 with a normal_class"),
        ("--set probe_epochs=1", "probe_epochs needs trials on all classes, but got probe_epochs=1 with a "),
        ("nu_ablation --set knn=2000", "knn must not exceed the 1260 labelled training images of digits, but got knn="),
        ("nu_ablation --set knn=0", "these trials do not report knn_z; they report: loss, "),
        (
            "nu_ablation --set outliers=fog",
            "no outliers 'fog'; there are: blurred, celeba, cifar10, ",
        ),
        ("nu_ablation --set held_out=10", "each held-out class must be one of 0..9 for digits, but got 10"),
        ("nu_ablation --set workers=7", "batch_size must be a multiple of workers, at least 2 for each, but got "),
        ("nu_ablation --set tau=0.2", "no key 'tau'; --describe vje lists its keys"),
        ("nu_ablation --set method=simclr", "no key 'bottleneck' (bottleneck is set by preset 'digits'); --desc"),
        ("nu_ablation --preset paper --set tau=0.2", "no method of these trials has the key 'tau'"),
        ("nu_ablation --preset paper --set method=simclr", "no method in this sweep 'simclr'; there are: vje"),
        ("ssl_cifar10 --set method=random --set epochs=5", "epochs stays as it is in trials of random, where another "),
        ("ssl_cifar10 --set method=simclr --set outliers=noise", "simclr has no anomaly scores for outliers; methods "),
        ("ssl_cifar10 --set method=simclr --set workers=2", "simclr compares the examples of a batch, so workers "),
        ("ssl_cifar10 --axis method=vje,vje", "the values of axis method must differ, but vje is there twice"),
        ("--gpu-fraction 1.5", "`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction 1.5"),
        ("--gpu-fraction 0", "`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction 0"),
        ("--gpu-fraction 0.00001", "`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction 0.00001"),
        ("--gpu-fraction x", "--gpu-fraction must be a number, but got x"),
        ("--cohort 0", "--cohort must be a whole number of at least 1, but got 0"),
        ("--stack 3", "--stack must not exceed --cohort, but got --stack 3 --cohort auto"),
        ("--retries -1", "--retries must be a whole number of at least 0, but got -1"),
        ("--save-every soon", "--save-every must be a number, but got soon"),
        ("--restore x --fresh", "--restore cannot be combined with --fresh or --plan"),
        ("--restore ../trials", "store "),
        (
            "--describe vja",
            "no method, data set, key, metric, column or sweep 'vja' (did you mean 'vje'?); --list shows the sweeps, ",
        ),
        ("--fast 3", "unrecognized arguments: --fast 3; --help shows all options"),
        ("--axis beta=0,05", "beta must be a number without leading zeros, but got beta=05; a decimal number has a po"),
        ("--set beta=0,5", "beta must be a number, but got beta=0,5; several values need --axis, and a decimal number"),
        ("--axis seed=0-4", "seed must be a whole number, but got seed=0-4; a range is 0..4"),
        ("--axis seed=range(5)", "seed must be a whole number, but got seed=range(5); a range is A..B for whole numb"),
        ("--axis lr=[0.1,0.01]", "lr must be a number, but got lr=[0.1; several values are listed without brackets"),
        ("--axis lr=0.1;0.2", "lr must be a number, but got lr=0.1;0.2; several values are separated by commas"),
        ("--set Lr=0.1", "no key 'Lr' (did you mean 'lr'?); --describe keys lists all"),
        ("--set learning_rate=0.1", "no key 'learning_rate' (did you mean 'lr'?); --describe keys lists all"),
        ("--set method=SimCLR", "no method 'SimCLR' (did you mean 'simclr'?); --describe methods lists all"),
        ("--set dataset=CIFAR-10", "no dataset 'CIFAR-10' (did you mean 'cifar10'?); "),
        ("--pruner asha", "no pruner 'asha' (did you mean 'halving'?); "),
        ("--seeds 5", "unrecognized arguments: --seeds 5; five seeds are --axis seed=0..4"),
        ("--num-gpus 2", "unrecognized arguments: --num-gpus 2; a sweep trains on all GPUs that it sees"),
        (
            "--learning-rate 0.1",
            "unrecognized arguments: --learning-rate 0.1; a hyperparameter is given by --set lr=0.1",
        ),
        ("--epochs=5,10", "unrecognized arguments: --epochs=5,10; a hyperparameter is given by --axis epochs=5,10"),
        ("anomaly_grid lr=0.1", "unrecognized arguments: lr=0.1; a hyperparameter is given by --set lr=0.1"),
        ("--axis seed=0 1", "unrecognized arguments: 1; an option takes one word: --set KEY=VALUE, --axis KEY=V1,V2"),
        ("--n-trials 5", "unrecognized arguments: --n-trials 5; did you mean --trials?"),
        ("--output-dir x", "unrecognized arguments: --output-dir x; did you mean --store?"),
        ("--alarm-rate 100%", "`0 < alarm-rate < 1` must hold, but got --alarm-rate 100%"),
        ("--address nowhere", "--address must be host:port, ray://host:port, auto or local, but got 'nowhere'"),
        ("--address host:port", "--address must be host:port, ray://host:port, auto or local, but got 'host:port'"),
    ],
)
def test_a_wrong_argument(command_line: CommandLine, arguments: str, law: str) -> None:
    name, *options = (arguments if arguments[0] != "-" else f"anomaly_grid {arguments}").split()
    assert command_line.refuse(*options, name=name).error.startswith(law)


def test_a_wrong_value_is_refused_in_a_plan_too(command_line: CommandLine) -> None:
    assert command_line.refuse("--plan", "--set", "nu=-1") == ("`nu > 0` must hold, but got nu=-1.0", "")


def test_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 2
    assert capsys.readouterr() == ("", "error: the name of a sweep is required; --list shows all sweeps\n")


def test_an_address_without_an_answer(
    command_line: CommandLine, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{closed_port}"
    expected = f"no Ray cluster answers at {address}: [Errno 111] Connection refused"
    assert command_line.refuse("--address", address).error == expected
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert command_line.refuse().error == expected


@pytest.mark.parametrize("where", ["table", "trajectory", "correlations"])
def test_a_metric_that_no_method_reports(
    where: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, metrics = registry.find("anomaly_grid"), (Metric("auroc_joint", "maximize"), Metric("posterior_entrop"))
    changes: dict[str, dict[str, Any]] = {
        "table": {"figures": (*sweep.figures, Table("t", ("nu",), metrics))},
        "trajectory": {"figures": (*sweep.figures, Trajectory("t", metrics, ("nu",)))},
        "correlations": {"correlations": (("auroc_joint", "posterior_entrop"),)},
    }
    monkeypatch.setattr(registry, "find", lambda name: replace(sweep, **changes[where]))
    message = "no method reports posterior_entrop (did you mean 'posterior_entropy'?); these trials report: loss, "
    assert command_line.refuse().error.startswith(message)


def test_an_axis_of_the_heatmap_may_be_one_value(command_line: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["anomaly_grid", "--preset", "digits", "--store", str(command_line.store), "--plan"]
    assert run.main([*arguments, "--set", "nu=3", "--set", "beta=1"]) == 0
    out, err = capsys.readouterr()
    assert "10: 0 finished" in out and err == ""
    assert not command_line.store.exists()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Never:
        raise URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.mark.usefixtures("offline")
def test_data_that_are_missing(command_line: CommandLine) -> None:
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error.startswith(f"cifar10 is absent from {command_line.folder / 'data'} and its download failed (")
    assert error.endswith(
        "put cifar-10-python.tar.gz there, from https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    )


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        ("--set normal_class=10", "normal_class must be one of 0..9 for cifar10, but got 10"),
        ("--set batch_size=6000", "batch_size must not exceed the 5000 training images of cifar10 with normal_class=0"),
        ("ood_detection --set outliers=digits", "outliers must have as many channels as the images of cifar10, 3, but"),
        ("nu_ablation --axis dataset=stl10 --set knn=5001", "knn must not exceed the 5000 labelled training images of"),
    ],
)
def test_a_wrong_value_is_refused_before_data_are_looked_for(
    command_line: CommandLine, arguments: str, law: str
) -> None:
    name, *options = (arguments if arguments[0] != "-" else f"anomaly_grid {arguments}").split()
    assert command_line.refuse(*options, "--data", "/nowhere", name=name, preset="paper").error.startswith(law)


@pytest.mark.usefixtures("offline")
def test_data_that_are_truncated(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cifar10(command_line.folder / "data", 80, monkeypatch)
    file = folder / "data_batch_3"
    file.write_bytes(file.read_bytes()[:-1])
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error == (
        f"cifar10 is corrupt: {file} does not have its published checksum; remove {folder} to have it downloaded again"
    )
    file.unlink()
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert "data_batch_3 is missing" in error


def test_images_in_folders_that_are_missing_or_broken(command_line: CommandLine) -> None:
    data, folder = str(command_line.folder / "data"), command_line.folder / "data/imagenet"

    def error() -> str:
        return command_line.refuse("--data", data, name="imagenet_linear", preset="paper").error

    assert error().startswith(f"imagenet is absent from {data} and is not downloaded; put its images into {folder}/")
    write_imagenet(command_line.folder / "data")
    (broken := folder / "train/n01440764/n01440764_0.JPEG").write_bytes(b"\xff\xd8\xff")
    message = f"1 of 18 images of imagenet cannot be read, the first is {broken} (not an image); remove or replace them"
    assert error() == message
    (folder / "val").rename(folder / "validation")
    assert error().startswith(f"imagenet lacks the split 'val': there is no folder {folder / 'val'}; ")


def test_a_class_smaller_than_the_batch(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(command_line.folder / "data", 10, monkeypatch)
    error = command_line.refuse("--data", str(command_line.folder / "data"), preset="paper").error
    assert error == (
        "batch_size must not exceed the 10 training images of cifar10 with normal_class=0, but got batch_size=64 "
        "(batch_size and normal_class are set by preset 'paper')"
    )


PLAN = ["anomaly_grid", "--preset", "digits", "--axis", "beta=1", "--plan"]


def test_a_store_with_rows_of_another_schema(command_line: CommandLine) -> None:
    columns = Columns({"method": str, "dataset": str, "nu": str}, ("auroc_joint",))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    fixed = {"status": "finished", "cohort": "c", "cohort_size": 1, "epochs_run": 1, "started": moment, "ended": moment}
    store = Store(command_line.store)
    store.prepare("anomaly_grid", columns)
    store.write("anomaly_grid", "c", [{"trial_id": "t", "nu": "3", **fixed}], columns)
    error = command_line.refuse().error
    assert f"store {command_line.store} holds rows of sweep 'anomaly_grid' in another schema: column 'nu'" in error
    assert error.endswith("use another --store, or use --fresh to archive all rows")


def test_a_file_where_the_store_should_be(command_line: CommandLine) -> None:
    command_line.store.write_text("in the way")
    for words in ((), ("--fresh",)):
        error = command_line.refuse(*words).error
        assert error == f"store {command_line.store} cannot be opened: it must be a folder, but is a file"


@for_each("uri", ["s3://", "nfs://host/x", "s3://bucket/x?nonsense=1", "s3:/typo", "s3:x", "a\0b"])
def test_a_store_with_an_invalid_address(command_line: CommandLine, uri: str) -> None:
    assert "cannot be opened" in command_line.refuse("--store", uri).error


def test_an_empty_store_is_not_the_working_folder(command_line: CommandLine) -> None:
    assert command_line.refuse("--store", "").error == "--store must name a folder, but got ''"


def test_a_folder_of_a_store_is_no_store(command_line: CommandLine) -> None:
    Store(command_line.store).prepare("anomaly_grid", Columns({"method": str, "dataset": str}, ()))
    inner = command_line.store / "trials" / "mine"
    error = command_line.refuse("--store", str(inner)).error
    assert error.startswith(f"store {inner} must not be in the store {command_line.store}, whose folder 'trials'")
    assert run.main([*PLAN, "--store", str(command_line.store / "mine")]) == 0
