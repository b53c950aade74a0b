"""Fixtures for all tests of this folder: sweeps in processes of their own, and sweeps in this process."""

from collections.abc import Iterator

import pytest

from tests.end_to_end import shared_ray as in_process
from tests.end_to_end import sweeps as processes


@pytest.fixture(scope="module")
def sweeps() -> Iterator[processes.Sweeps]:
    """Starts sweeps. Those that still run are ended with the module."""
    yield from processes.sweeps()


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[in_process.SharedRay]:
    """Runs sweeps on a Ray of one core that ends with the module."""
    with in_process.shared_ray() as ray:
        yield ray
