"""`--json` of the commands that read a store: the objects, and their fields as the guide names them."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeper.commands import best, claims, table
from sweeper.commands import list as list_command
from tests.sweeper.commands.test_table import BOTH, NAME, write_store

GUIDE = (Path(__file__).parents[3] / "sweeper/guides/operations.md").read_text().split("## Machine-readable output")[1]
Main = Callable[[Sequence[str]], int]


def objects(main: Main, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines of standard output, all of which are JSON without NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert main([*arguments, "--json"]) == 0
    return [json.loads(line, parse_constant=refuse) for line in capsys.readouterr().out.splitlines()]


def documented(command: str) -> set[str]:
    """The fields that the guide names for a command."""
    (line,) = re.findall(rf"^\| `sweeper {re.escape(command)} --json` \|[^|]*\|(.*)\|$", GUIDE, re.MULTILINE)
    return {*re.findall(r"`(\w+)`", line)}


def test_the_list_of_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = objects(list_command.main, [], capsys)
    sweeps = {each["sweep"]: each for each in found["sweeps"]}
    assert sweeps["anomaly_grid"]["presets"]["digits"] == 560
    assert {*found, *sweeps["anomaly_grid"]} == documented("list")


def test_the_list_of_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = objects(list_command.main, [str(write_store(tmp_path, *BOTH))], capsys)
    (sweep,) = found["sweeps"]
    (request,) = sweep["requests"]
    assert (sweep["sweep"], sweep["rows"], sweep["statuses"]) == (NAME, 9, {"finished": 9})
    assert (request["request"], request["rows"], request["total"]) == ("digits", 9, 9) and sweep["bytes"]["rows"] > 0
    assert {*found, *sweep, *request} == documented("list STORE")


def test_the_best_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [NAME, "--store", str(write_store(tmp_path, *BOTH)), "--metric", "probe_z"]
    (found,) = objects(best.main, arguments, capsys)
    (choice,) = found["choices"]
    assert (choice["at"], choice["metric"], choice["n"]) == ({"method": "vje"}, "probe_z", 3)
    assert choice["mean"] == pytest.approx(0.92) and found["text"] == choice["sentence"]
    assert {*found} == documented("best NAME")


def test_tables_are_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [NAME, "--store", str(write_store(tmp_path, *BOTH))]
    found = objects(table.main, arguments, capsys)
    assert [each["table"] for each in found] == ["accuracy", "losses"]
    cells = {cell["method"]: cell for cell in found[0]["cells"]}
    assert cells["byol"]["published"] == pytest.approx(0.79) and cells["vje"]["published"] is None
    assert cells["vje"]["mean"] == pytest.approx(0.92) and found[0]["axes"] == ["method"]
    assert all({*each} == documented("table NAME") for each in found)
    assert table.main([*arguments, "--json", "--format", "csv"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_verdicts_on_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = objects(claims.main, ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path)], capsys)
    assert found["counts"] == {"not run": len(found["claims"])} and found["page"] is None
    first = found["claims"][0]
    assert (first["sweep"], first["preset"], first["verdict"]) == ("anomaly_grid", "digits", "not run")
    assert {*found, "sweep"} == documented("claims NAME")
