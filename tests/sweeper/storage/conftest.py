import pytest

from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS


@pytest.fixture
def store(tmp_path):
    """A store that is prepared for the sweep `grid`."""
    store = Store(tmp_path)
    assert store.prepare("grid", COLUMNS) == COLUMNS
    return store
