"""The reason why a cohort was lost, as far as the driver can know it."""

import os
from pathlib import Path

import pytest

from sweeper.execution.backend import failure_of, read_exit_file
from sweeper.storage.files import Files
from trainables.reports import OutOfMemory, Stopped
from trainables.worker.messages import EXIT_SUFFIX, Failure, write_failure

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
    (tmp_path / f"c.pt{EXIT_SUFFIX}").write_bytes(b"\xff{")
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file; run the tests as another user")
def test_an_exit_file_that_cannot_be_read_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / f"c.pt{EXIT_SUFFIX}").write_bytes(b"{}")
    (tmp_path / f"c.pt{EXIT_SUFFIX}").chmod(0)
    assert read_exit_file(Files(tmp_path), "c.pt", "now") is None


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ValueError("no luck\nmore about it"), Failure("error", "ValueError: no luck")),
        (KeyError(), Failure("error", "KeyError")),
        (OutOfMemory("needs more"), Failure("memory", "OutOfMemory: needs more")),
        (Stopped("it makes room"), Failure("machine", "stopped: it makes room")),
    ],
)
def test_an_exception_of_a_training_says_why_in_its_first_line(error: Exception, failure: Failure) -> None:
    assert failure_of(error) == failure
