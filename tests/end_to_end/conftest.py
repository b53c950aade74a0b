"""A fixture for all tests of this folder: sweeps in processes of their own."""

from collections.abc import Iterator

import pytest

from tests.end_to_end import sweeps as processes


@pytest.fixture(scope="module")
def sweeps() -> Iterator[processes.Sweeps]:
    """Starts sweeps. Those that still run are ended with the module."""
    yield from processes.sweeps()
