"""`--fresh` sets the rows of a plan aside, and the command that it prints brings them back."""

from pathlib import Path

import pytest

from sweeper.cli.arguments import Restoration, parse_command
from sweeper.cli.fresh import archive, preview_archive, restore
from sweeper.cli.parser import EXIT_OK
from sweeper.packing.compilation import StudySteps, record_steps, recorded_steps
from sweeper.spec import SpecError, registry
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.sweeper.cli.test_conclusion import COLUMNS, store_of
from tests.sweeper.plan.test_plan import SWEEP, make
from tests.sweeper.search.test_search_plan import continued, plan


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_of(tmp_path, make(3), {"t0": "finished", "t1": "finished", "t2": "finished"})


def restoration(printed: str) -> Restoration:
    """What the printed command asks for."""
    command = parse_command(printed.split("python -m sweeper.run ")[1].split())
    assert isinstance(command, Restoration)
    return command


def test_rows_that_a_fresh_run_replaced_are_restored(
    store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find", lambda name: SWEEP)
    plan = make(2)  # of the three trials that have rows
    before = load("grid", store.files)
    assert preview_archive(plan, store, COLUMNS).rows == 2
    archive(plan, store, COLUMNS)
    out = capsys.readouterr().out
    assert out.startswith("set aside: 2 rows, from 1 files of rows and history, in ")
    assert load("grid", store.files)["trial_id"].tolist() == ["t2"]
    assert restore(restoration(out)) == EXIT_OK
    assert load("grid", store.files).equals(before)
    assert capsys.readouterr().out.startswith("brought back: 2 rows")


def test_a_stale_checkpoint_is_out_of_the_way_when_its_cohort_starts(store: Store) -> None:
    path = checkpoint_path("grid", "c0")
    store.files.write(path, b"stale")
    path_of = archive(make(3), store, COLUMNS)
    assert store.files.read(path) == b"stale"
    assert path_of("c0") == path and store.files.read(path) is None


def test_rows_of_a_sweep_that_was_given_as_a_value_are_restored(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep `grid` is in no file."""
    before = load("grid", store.files)
    archive(make(2), store, COLUMNS)
    command = restoration(capsys.readouterr().out)
    assert command.sweep == "grid" and restore(command) == EXIT_OK
    assert load("grid", store.files).equals(before)


def test_only_a_known_sweep_is_restored(store: Store) -> None:
    with pytest.raises(SpecError, match="no sweep 'grid'"):
        restore(Restoration("grid", store.files.uri, "x"))


def test_a_fresh_search_chooses_its_steps_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    search_plan, steps = plan(continued("finished")), StudySteps(4, every=True)
    study = search_plan.study_runs[0].id
    record_steps(store.files, "search", study, steps)
    archive(search_plan, store, COLUMNS)
    assert recorded_steps(store.files, "search", study) is None
    assert restore(restoration(capsys.readouterr().out)) == EXIT_OK
    assert recorded_steps(store.files, "search", study) == steps
