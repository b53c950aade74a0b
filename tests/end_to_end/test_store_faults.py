"""The store while others read it, when its writer is killed, and on S3."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from pyarrow import fs

from sweeper.errors import StoreError
from sweeper.runtime import Runtime
from sweeper.storage.archive import TrialSelection, archive, restore
from sweeper.storage.files import Files
from sweeper.storage.load import load
from sweeper.storage.local_disk import STALE_SECONDS
from sweeper.storage.retry import LONG_RETRIES, RetryPolicy
from sweeper.storage.store import Store, check_writable
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.mark.slow
def test_a_reader_never_fails_while_rows_are_written_and_rewritten(tmp_path):
    """Files of changing length are added, replaced and emptied under a plain pandas reader."""
    store = Store(tmp_path)
    store.prepare("grid", COLUMNS)
    store.write("grid", "c0", [row("first")], COLUMNS)
    stop, errors, reads, turns = threading.Event(), list[Exception](), 0, 0

    def write() -> None:
        nonlocal turns
        try:
            while not stop.is_set():
                turns += 1
                names = [f"t{i}" for i in range(turns % 40 + 1)]
                store.write(
                    "grid", f"c{turns % 3}", [row(t, auroc=turns / 7, error="x" * (turns % 50)) for t in names], COLUMNS
                )
        except Exception as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while writer.is_alive() and (reads < 60 or turns < 40):
            frame = pd.read_parquet(tmp_path / "trials" / "sweep=grid")
            assert "first" in set(frame["trial_id"]) and frame["status"].eq("finished").all()
            assert len(load("grid", store.files)["trial_id"]) >= 1
            reads += 1
    finally:
        stop.set()
        writer.join()
    assert not errors


KILLED = """
import sys
sys.path.insert(0, {root!r})
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row
store = Store({uri!r})
store.prepare("grid", COLUMNS)
print("go", flush=True)
for turn in range(10**9):
    store.write("grid", f"c{{turn % 20}}", [row(f"{{turn}}-{{i}}", error="x" * 20000) for i in range(20)], COLUMNS)
"""


@pytest.mark.slow
def test_kill_9_leaves_only_whole_files(tmp_path):
    code = KILLED.format(root=os.getcwd(), uri=str(tmp_path))
    for files in (4, 9):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"go\n"
        while len(list(tmp_path.glob("trials/sweep=grid/[!._]*.parquet"))) < files and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        frame = pd.read_parquet(tmp_path / "trials" / "sweep=grid")
        assert len(frame) % 20 == 0 and len(frame) > 0
        assert len(Store(tmp_path).statuses("grid")) == len(frame)


@pytest.fixture
def s3():
    """The URI of a store in a bucket of a real S3 server, and that server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    options = f"endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    fs.FileSystem.from_uri(f"s3://KEY:SECRET@?{options}&allow_bucket_creation=true")[0].create_dir("bucket1")
    yield f"s3://KEY:SECRET@bucket1/store?{options}", server
    server.stop()


@pytest.mark.slow
def test_s3(s3):
    uri, _ = s3
    store = Store(uri)
    store.prepare("grid", COLUMNS)
    store.write("grid", "c0", [row("a"), row("b", "failed")], COLUMNS)
    store.write("grid", "c1", [row("b", nu=math.inf)], COLUMNS)
    assert load("grid", uri)["nu"].tolist() == [3.0, math.inf]
    key, query = uri.split("?")
    assert len(pd.read_parquet(f"{key}/trials/sweep=grid?{query}")) == 2
    store.compact("grid")
    assert len(store.files.list("trials/sweep=grid")) == 1
    store.files.write("heatmaps/grid/digits, epochs=5/a.png", b"png")
    store.write_sample_grids("grid", "a", {"samples.png": b"grid"})
    moved = archive(store.files, "grid", TrialSelection(["a"], paths=["heatmaps/grid/digits, epochs=5"]), COLUMNS)
    assert moved and moved.rows == 1 and store.statuses("grid") == {"b": "finished"}
    assert not store.files.list("heatmaps/grid") and not store.files.list("sheets/grid")
    restore(store.files, "grid", moved.folder.split("/")[1])
    assert set(store.statuses("grid")) == {"a", "b"} and load("grid", uri)["nu"].tolist() == [3.0, math.inf]
    assert store.files.read("heatmaps/grid/digits, epochs=5/a.png") == b"png"
    assert store.files.read("sheets/grid/a/samples.png") == b"grid"
    with pytest.raises(StoreError, match=r"store s3://bucket2/store\?endpoint_override=[^ ]*: cannot write") as caught:
        check_writable(Files(uri.replace("bucket1", "bucket2"), LONG_RETRIES))
    assert "SECRET" not in str(caught.value) and "\n" not in str(caught.value)


def test_old_probes_of_killed_drivers_go_from_a_bucket_and_new_ones_of_others_stay(s3):
    store, names = Store(s3[0]), (".write-check-0f", ".other")
    for name in names:
        store.files.write(name, b"write check")
    store.prepare("grid", COLUMNS)
    assert [store.files.read(name) for name in names] == [b"write check"] * 2, (
        "another driver may be about to read its own"
    )
    later = Runtime(now=lambda: datetime.now(UTC) + timedelta(seconds=STALE_SECONDS + 60))
    Store(Files(s3[0], runtime=later)).prepare("grid", COLUMNS)
    assert [store.files.read(name) for name in names] == [None, b"write check"]


@pytest.mark.slow
def test_s3_that_goes_away_for_a_while(s3):
    """It is away until the client of S3 gives up, which takes 6 s."""
    uri, server = s3
    _, port = server.get_host_and_port()
    restarted = type(server)(ip_address="127.0.0.1", port=port, verbose=False)
    lines = list[str]()

    def notify(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            restarted.start()

    store = Store(Files(uri, RetryPolicy(600.0), notify))
    store.prepare("away", COLUMNS)
    server.stop()
    try:
        store.write("away", "c0", [row("a")], COLUMNS)
        assert load("away", uri)["trial_id"].tolist() == ["a"]
        assert "NETWORK_CONNECTION" in lines[0] and "trying again" in lines[0] and "works again" in lines[1], lines
        assert len(lines) == 2 and "SECRET" not in "".join(lines)
    finally:
        restarted.stop()
