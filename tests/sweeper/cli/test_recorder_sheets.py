"""Pictures of a report, which are in the store before the rows of their trials."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.storage.store import Store
from tests.sweeper.cli.test_recorder import Harness, diverged, message
from trainables.worker.messages import CohortReport

PICTURES = ({"samples.png": b"a"}, {"samples.png": b"b", "reconstructions.png": b"c"})
SHEETS = {"a0/samples.png": b"a", "a1/samples.png": b"b", "a1/reconstructions.png": b"c"}


def with_pictures(reported: CohortReport) -> CohortReport:
    members = zip(reported.report.members, PICTURES, strict=True)
    members_with_pictures = tuple(replace(member, pictures=pictures) for member, pictures in members)
    return replace(reported, report=replace(reported.report, members=members_with_pictures))


def sheets(folder: Path) -> dict[str, bytes]:
    root = folder / "sheets/grid"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.png")}


def test_each_picture_is_a_file_in_the_folder_of_its_trial(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.report("c0", message(1, [0.5, 0.6]), with_pictures(message(2, [0.7, 0.8], done=True)))
    assert sheets(tmp_path) == SHEETS


def test_a_killed_driver_leaves_no_row_without_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the changes to the store up to the row, the last is the row's, and the same report afterwards completes it."""

    class Kill(BaseException):
        """Stands for SIGKILL: no handler runs after it."""

    def kill(*arguments: object) -> None:
        raise Kill

    last = with_pictures(message(1, [0.7, 0.8], done=True))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", kill)
        with pytest.raises(Kill):
            Harness(tmp_path).report("c0", last)
    restarted = Harness(tmp_path)
    assert restarted.store.statuses("grid") == {} and sheets(tmp_path) == SHEETS
    restarted.report("c0", last)
    assert set(restarted.rows()["status"]) == {"finished"} and sheets(tmp_path) == SHEETS


def test_pictures_that_cannot_be_written_keep_their_trials_from_having_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("the disk is full")

    harness = Harness(tmp_path)
    monkeypatch.setattr(Store, "write_sheets", fail)
    with pytest.raises(OSError, match="the disk is full"):
        harness.report("c0", with_pictures(message(1, [0.7, 0.8], done=True)))
    assert harness.store.statuses("grid") == {}


def test_members_without_pictures_have_no_folder(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.report("c0", diverged(message(1, [0.7, 0.8], done=True), member=1, epoch=1))
    assert harness.store.files.list("sheets") == []
