"""Whatever a writer does between any two operations of a reader, each row that was there is read, whole and once."""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.storage import parquet_files
from sweeper.storage.files import Files
from sweeper.storage.load import load, take_snapshot
from sweeper.storage.store import Store
from tests.sweeper.storage.interleaved import Interleaving
from tests.sweeper.storage.rows import COLUMNS, row

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Few files are merged, and the disk is not waited for."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet_files, "MANY", 3)
        patched.setattr(os, "fsync", lambda _: None)
        yield


def in_turn(files: Files) -> Files:
    """The files, whose operations come one after the other, as drivers give way between them."""
    files.runtime = replace(files.runtime, map=lambda act, names: [act(name) for name in names])
    return files


@pytest.mark.slow
@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
def test_load_returns_what_the_store_held_at_one_moment_of_the_call(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The writer trains cohorts of two that share trials, as after another cut. Some fail, and files are merged."""
    folder = tmp_path_factory.mktemp("store")
    Store(folder).prepare("grid", COLUMNS)
    world = Interleaving(folder, seed)
    moments: list[dict[str, str]] = [{}]
    """Trial -> status after each cohort, and of the one that is being written."""
    written = 0

    def write(name: str, files: Files, choice: random.Random) -> None:
        nonlocal written
        store = Store(in_turn(files))
        for number in range(12):
            trials, status = choice.sample("abcdef", 2), choice.choice(["failed", "finished"])
            kept = {trial for trial in trials if moments[-1].get(trial) == "finished"}
            moments.append({**moments[-1], **{trial: status for trial in trials if trial not in kept}})
            ended = BEGIN + timedelta(days=number)
            store.write_history("grid", f"c{number % 4}", [(trial, 1, "auroc", 0.5) for trial in trials])
            store.write("grid", f"c{number % 4}", [row(trial, status, ended=ended) for trial in trials], COLUMNS)
            written = number + 1
            if choice.random() < 0.2:
                store.compact("grid")

    def read(name: str, files: Files, choice: random.Random) -> None:
        in_turn(files)
        while written == 0:
            world.pause(name)
        for _ in range(8):
            first = written
            if choice.random() < 0.5:
                snapshot = take_snapshot(files, "grid")
                rows = snapshot.rows
                assert {*rows["trial_id"]} <= {*snapshot.history["trial_id"]}
            else:
                rows = load("grid", files)
            assert rows["trial_id"].is_unique and rows["method"].eq("vje").all()
            assert dict(zip(rows["trial_id"], rows["status"], strict=True)) in moments[first:]

    world.run({"writer": write, "reader": read})
