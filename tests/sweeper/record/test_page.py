import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.definition import Value
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.record.page import REST, SECONDS_BETWEEN, PageWriter, write_page
from sweeper.report.figures import figures_of
from sweeper.report.kinds import read_figures
from sweeper.report.page import publish
from sweeper.storage.layout import trial_names_path
from sweeper.storage.load import load_trial_names
from sweeper.storage.store import Store
from tests.sweeper.planning.test_cohorts import SWEEP, make

COHORT = Cohort("c0", (), 1)


class Publisher:
    """Stands for `publish.write`: it takes a second by the clock, and can be made to fail."""

    def __init__(self) -> None:
        self.now, self.written = 0.0, list[float]()
        self.error: Exception | None = None

    def write(self, *_: object) -> str:
        self.written.append(self.now)
        self.now += 1.0
        if self.error:
            raise self.error
        return "reports/grid.html"


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Publisher:
    publisher = Publisher()
    monkeypatch.setattr(publish, "write", publisher.write)
    return publisher


def rows_at(writer: PageWriter, publisher: Publisher, now: float) -> None:
    publisher.now = now
    writer.recorded(COHORT, [])
    if writer._thread is not None:
        writer._thread.join()


def test_pages_are_written_rarely(tmp_path: Path, publisher: Publisher) -> None:
    with PageWriter(make(), Store(tmp_path).files, print, lambda: publisher.now) as writer:
        for now in (0.0, SECONDS_BETWEEN - 1, SECONDS_BETWEEN, SECONDS_BETWEEN + 2, SECONDS_BETWEEN + REST):
            rows_at(writer, publisher, now)
        assert publisher.written == [SECONDS_BETWEEN]
        rows_at(writer, publisher, SECONDS_BETWEEN + 1 + REST)
    assert publisher.written == [SECONDS_BETWEEN, SECONDS_BETWEEN + 1 + REST]


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("a\nlibrary fails"), MemoryError()])
def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, publisher: Publisher, error: Exception) -> None:
    publisher.error, lines = error, list[str]()
    with PageWriter(make(), Store(tmp_path).files, lines.append, lambda: publisher.now) as writer:
        for now in (100.0, 1000.0):
            rows_at(writer, publisher, now)
    (line,) = lines
    assert line.startswith("the page of grid is not written: ") and "\n" not in line
    assert write_page(make(), Store(tmp_path).files, lines.append) is None


def test_a_refused_page_is_tried_again_and_said_once_for_each_streak_of_failures(
    tmp_path: Path, publisher: Publisher
) -> None:
    lines = list[str]()
    with PageWriter(make(), Store(tmp_path).files, lines.append, lambda: publisher.now) as writer:
        for now, error in ((100.0, OSError("full")), (200.0, OSError("full")), (300.0, None), (400.0, OSError("gone"))):
            publisher.error = error
            rows_at(writer, publisher, now)
    assert publisher.written == [100.0, 200.0, 300.0, 400.0]
    assert [line.rpartition(": ")[2] for line in lines] == ["full", "gone"]


def test_names_that_were_refused_are_written_with_the_next_cohort(tmp_path: Path) -> None:
    blocker = tmp_path / "reports"
    blocker.write_bytes(b"a file where the folder belongs")
    store, lines = Store(tmp_path), list[str]()
    writer = PageWriter(make(), store.files, lines.append)
    writer.started(COHORT)
    blocker.unlink()
    writer.started(COHORT)
    assert store.files.read(trial_names_path("grid")) and read_figures(store.files, "grid")[0] and len(lines) == 1


def test_names_of_trials_are_written_when_there_are_new_ones(tmp_path: Path) -> None:
    store = Store(tmp_path)
    writer = PageWriter(make(3), store.files, print)
    writer.started(COHORT)
    names = json.loads(store.files.read(trial_names_path("grid")) or b"")
    assert names == {"t0": {"beta": 0, "nu": 0}, "t1": {"beta": 1, "nu": 1}, "t2": {"beta": 0, "nu": 2}}
    store.files.delete(trial_names_path("grid"))
    writer.started(COHORT)
    assert store.files.read(trial_names_path("grid")) is None


def test_names_of_trials_of_other_requests_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    facts: dict[str, Value] = {"preset": "paper", "changes": "epochs=5", "wave": 0}
    for plan in (make(3), replace(make(1), grid_trials=(Trial("t0", {"beta": 7, "nu": 0, "lr": 0.1}, facts),))):
        PageWriter(plan, store.files, print).started(COHORT)
    names = load_trial_names(store.files, "grid")
    assert names["t0"] == {"preset": "paper", "changes": "epochs=5", "beta": 7, "nu": 0}
    assert names["t2"] == {"beta": 0, "nu": 2}


def test_figures_are_written_before_there_is_a_row(tmp_path: Path) -> None:
    store = Store(tmp_path)
    PageWriter(make(), store.files, print).started(COHORT)
    assert read_figures(store.files, "grid") == ({"paper": figures_of(SWEEP, "paper")}, [])


def test_names_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "reports").write_bytes(b"a file where the folder belongs")
    lines = list[str]()
    PageWriter(make(), Store(tmp_path).files, lines.append).started(COHORT)
    assert len(lines) == 1 and lines[0].startswith("the page of grid is not written: ")
