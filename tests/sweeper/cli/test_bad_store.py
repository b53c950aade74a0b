"""A store that cannot be opened, written or read as this sweep's is refused in one line."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

import sweeper.run as run
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.cli.refusals import CommandLine, command_line_of

PLAN = ["anomaly_grid", "--preset", "digits", "--axis", "beta=1", "--plan"]


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


def test_a_store_with_rows_of_another_schema(command_line: CommandLine) -> None:
    columns = Columns({"method": str, "dataset": str, "nu": str}, ("auroc_joint",))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    fixed = {"status": "finished", "cohort": "c", "cohort_size": 1, "epochs_run": 1, "started": moment, "ended": moment}
    store = Store(command_line.store)
    store.prepare("anomaly_grid", columns)
    store.write("anomaly_grid", "c", [{"trial_id": "t", "nu": "3", **fixed}], columns)
    error = command_line.refuse().error
    assert f"store {command_line.store} holds rows of sweep 'anomaly_grid' in another schema: column 'nu'" in error
    assert error.endswith("use another --store, or use --fresh to set all rows aside")


def test_a_file_where_the_store_should_be(command_line: CommandLine) -> None:
    command_line.store.write_text("in the way")
    assert command_line.refuse().error.startswith(f"store {command_line.store}: cannot write")
    assert command_line.refuse("--fresh").error.startswith(f"store {command_line.store}: cannot")


@pytest.mark.parametrize("uri", ["s3://", "nfs://host/x", "s3://bucket/x?nonsense=1", "s3:/typo", "s3:x", "a\0b"])
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
