"""The reason why a cohort was lost, as far as the driver can know it."""

import os
from pathlib import Path

import pytest
import ray

from sweeper.execution.failures import NODE_LOST, failure_in, read_exit_file
from sweeper.storage.io.files import Files
from trainables.worker.exit_file import SUFFIX, write_failure
from trainables.worker.messages import Failure

HUNG = Failure("hung", "hung: at x.py:3 step")


@pytest.mark.parametrize(("run", "failure"), [("now", HUNG), ("before", None)])
def test_an_exit_file_is_read_once_and_only_if_it_is_of_this_run(
    run: str, failure: Failure | None, tmp_path: Path
) -> None:
    files = Files(tmp_path)
    write_failure(files.write, "c.pt", run, HUNG)
    assert [read_exit_file(files, "c.pt", "now") for _ in range(2)] == [failure, None]
    assert not list(tmp_path.iterdir()), "it is deleted"


def test_a_damaged_exit_file_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / f"c.pt{SUFFIX}").write_bytes(b"\xff{")
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file; run the tests as another user")
def test_an_exit_file_that_cannot_be_read_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / f"c.pt{SUFFIX}").write_bytes(b"{}")
    (tmp_path / f"c.pt{SUFFIX}").chmod(0)
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("Traceback:\n  File x\nValueError: no luck\n\n", Failure("error", "ValueError: no luck")),
        (
            "ray.exceptions.ActorDiedError: it failed\nThe actor died because its node has died. Node Id: ab\n",
            Failure("machine", "The actor died because its node has died"),
        ),
        (
            "The actor died unexpectedly before finishing this task. Pid: 3\n",
            Failure("error", "The actor died unexpectedly before finishing this task"),
        ),
        (
            "ray.exceptions.OutOfMemoryError: Task was killed\nRefer to the documentation\n",
            Failure("memory", "ray.exceptions.OutOfMemoryError: Task was killed"),
        ),
        ("", Failure("error", "the reason is unknown")),
    ],
)
def test_the_failure_is_read_from_the_end_of_tunes_error_file(text: str, failure: Failure, tmp_path: Path) -> None:
    path = tmp_path / "error.txt"
    path.write_text(text)
    assert failure_in(str(path)) == failure


def test_without_an_error_file_the_reason_is_unknown(tmp_path: Path) -> None:
    assert failure_in(None) == failure_in(str(tmp_path / "none")) == Failure("error", "the reason is unknown")


def test_ray_still_reports_a_dead_node_with_this_message() -> None:
    """Ray's control store, which is compiled, writes the message; that a retry is free depends on its words."""
    program = Path(ray.__file__).parent / "core" / "src" / "ray" / "gcs" / "gcs_server"
    assert NODE_LOST.encode() in program.read_bytes()
