import gc
from collections.abc import Iterator

import pytest

from sweeper.execution.startup import begin_collection, delay_collection


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
