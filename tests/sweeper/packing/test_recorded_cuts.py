import json
from pathlib import Path

import pytest

from sweeper.packing.recorded_cuts import (
    record_cuts,
    record_halved,
    record_paths,
    recorded_cuts,
    recorded_halves,
    recorded_threads,
)
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut
from sweeper.storage.io.files import Files
from tests.sweeper.plan.test_plan import make


def test_a_cut_is_kept_for_its_own_plan(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert recorded_cuts(files, make()) is None
    cuts = [Cut(3, 3), Cut(2, 1)]
    record_cuts(files, make(), cuts, measured=[[{"width": 1}]])
    assert recorded_cuts(files, make(statuses={"t0": "finished"})) == cuts
    assert recorded_cuts(files, make(5)) is None
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    assert json.loads(file.read_text())["measured"] == [[{"width": 1}]]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"cuts": [{"size": 3}]}', b'{"cuts": [{"size": 3, "width": 3}]}']
)
def test_a_damaged_record_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    """The last record has one cut, but the plan has two groups."""
    files = Files(tmp_path)
    record_cuts(files, make(), [Cut(3, 3)] * 2, measured=None)
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    file.write_bytes(content)
    assert recorded_cuts(files, make()) is None


def test_the_threads_of_a_process_are_kept(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert recorded_threads(files, make()) == 1
    record_cuts(files, make(), [Cut(3, 3)] * 2, measured=None, threads=4)
    assert recorded_threads(files, make()) == 4 and recorded_threads(files, make(5)) == 1


def test_halves_are_kept_and_belong_to_the_records_of_the_plan_with_their_cohort(tmp_path: Path) -> None:
    """The second cohort that is halved is of another plan of the same sweep."""
    files, cuts = Files(tmp_path), [Cut(3, 3)] * 2
    assert recorded_halves(files, "grid") == set()
    record_cuts(files, make(), cuts, measured=None)
    first, _ = cohorts.cut(make().groups, cuts)
    for cohort_id in (first.id, "another"):
        record_halved(files, "grid", cohort_id)
    assert recorded_halves(files, "grid") == {first.id, "another"} and recorded_halves(files, "other") == set()
    cut_path, *halved_paths = record_paths(files, make())
    assert [path.rpartition("/")[2] for path in halved_paths] == [first.id]
    assert files.read(cut_path) and all(files.read(path) == b"" for path in halved_paths)
