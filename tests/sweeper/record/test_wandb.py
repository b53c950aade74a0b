"""What W&B keeps offline, read from its file: blocks of 32 KiB with records of a header of 7 bytes and a protobuf."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sweeper.record.tracked import FIRST, SECOND, row_of

pytestmark = pytest.mark.slow

WRITE_SECONDS = 60.0
"""Longest time, in seconds, that W&B may take to write a run that has ended."""
BLOCK, HEADER = 32768, 7
WHOLE, FIRST_PART, LAST_PART = 1, 2, 4
"""Types of the parts of a record that does not fit into a block."""


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    pytest.importorskip("wandb", reason="wandb is not installed: pip install -e '.[test]'")


def tracker() -> Any:
    from sweeper.record.wandb import WandB

    return WandB("project")


def records(file: Path) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, content = file.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        rest = BLOCK - position % BLOCK
        if rest < HEADER:
            position += rest
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + HEADER])
        part = data[position + HEADER : position + HEADER + length]
        content, position = part if kind in (WHOLE, FIRST_PART) else content + part, position + HEADER + length
        if kind in (WHOLE, LAST_PART) and position <= len(data):
            yield Record.FromString(content)


def run_of(folder: Path, trial_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], int]:
    """Configuration, history, summary and exit status of the only run of a trial, once it is written: W&B's own process
    still writes when `finish` has returned."""
    deadline = time.monotonic() + WRITE_SECONDS
    while (status := (found := read(folder, trial_id))[3]) is None:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return *found[:3], status


def read(folder: Path, trial_id: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], int | None]:
    """What is written so far of the only run of a trial; the exit status is None before its end."""
    config: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    status = None
    files = list(folder.glob(f"wandb/offline-run-*-{trial_id}/*.wandb"))
    assert len(files) <= 1
    for record in (record for file in files for record in records(file)):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "history":
            history.append(values(record.history.item))
        elif kind == "summary":
            summary |= values(record.summary.update)
        elif kind == "exit":
            status = record.exit.exit_code
    return config, history, summary, status


def values(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def test_a_trial_has_its_configuration_history_summary_and_status(tmp_path: Path) -> None:
    first = tracker()
    for trial in (FIRST, SECOND):
        assert first.start(trial, anew=False) == -1
    for trial in (FIRST, SECOND):
        first.report(trial, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    first.end(FIRST, row_of(FIRST))
    first.end(SECOND, row_of(SECOND, status="failed", error="out of luck"))
    config, history, summary, status = run_of(tmp_path, FIRST.id)
    assert {key: config[key] for key in FIRST.hyperparameters} == {"beta": 0.5, "nu": "inf", "normal_class": "none"}
    assert [(point["_step"], point["loss"]) for point in history] == [(1, 2.0), (2, 1.0)]
    assert (summary["auroc"], summary["status"], status) == (0.75, "finished", 0)
    assert run_of(tmp_path, SECOND.id)[2]["error"] == "out of luck" and run_of(tmp_path, SECOND.id)[3] == 1
    assert set(tracker().ended()) == {FIRST.id, SECOND.id}


def test_a_run_that_is_started_again_is_one_run_with_all_points_once(tmp_path: Path) -> None:
    first = tracker()
    first.start(FIRST, anew=False)
    first.report(FIRST, {1: {"loss": 2.0}})
    first.close()
    assert first.ended() == {}
    second = tracker()
    assert second.start(FIRST, anew=False) == -1, "offline a run is written again as a whole"
    second.report(FIRST, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    second.end(FIRST, row_of(FIRST))
    assert [point["_step"] for point in run_of(tmp_path, FIRST.id)[1]] == [1, 2]
