"""Imports meanwhile, garbage collection and the quick exit."""

import gc
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.execution.startup import begin_collection, delay_collection, import_all, imported_meanwhile


def test_modules_are_imported_and_one_that_fails_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(tmp_path, "early_good.py").write_text("")
    Path(tmp_path, "early_bad.py").write_text("raise ValueError")
    monkeypatch.syspath_prepend(tmp_path)
    with imported_meanwhile(("early_bad", "early_missing", "early_good")):
        pass
    assert sys.modules.pop("early_good")
    assert "early_bad" not in sys.modules


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """The tests' own modules are frozen when they have been collected."""
    gc.unfreeze()
    yield
    gc.freeze()
    gc.enable()


def test_what_exists_when_the_collection_begins_is_not_looked_at_again() -> None:
    delay_collection()
    there = [object()]
    assert not gc.isenabled()
    begin_collection()
    assert gc.isenabled() and gc.get_freeze_count() > 0
    assert not any(tracked is there for tracked in gc.get_objects())


def test_a_process_whose_collection_runs_keeps_its_objects_in_view() -> None:
    begin_collection()
    assert gc.isenabled() and gc.get_freeze_count() == 0


CODE = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from sweeper.execution.startup import end_process
class Slow:
    def __del__(self): print("taken apart")
slow = Slow()
def late(): time.sleep(0.1); print("thread")
atexit.register(lambda: print("handler"))
threading.Thread(target=late).start()
idle = ThreadPoolExecutor()
idle.submit(print, "pool", end=" ").result()
print("work", end=" ")
end_process(3)
"""


def test_threads_handlers_and_output_are_waited_for_but_objects_are_not() -> None:
    """And a pool of threads that nobody closed, as that which decodes images, does not keep the process."""
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "pool work thread\nhandler\n", "")


def test_all_modules_of_a_package_are_imported_but_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job imports all of its code before it joins the cluster: its working folder may be unpacked anew after that."""
    package = tmp_path / "packed_code"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "__main__": "raise SystemExit(3)",
        "broken": "import no_such_library",
        "inner/__init__": "",
        "inner/late": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import_all(["packed_code"])
    shutil.rmtree(package)
    assert {name for name in sys.modules if name.startswith("packed_code")} == {
        "packed_code",
        "packed_code.inner",
        "packed_code.inner.late",
    }
