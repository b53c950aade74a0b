"""Sweeps in processes of their own, and sweeps in this process, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.end_to_end import shared_ray as one_ray
from tests.end_to_end import sweeps as processes


@pytest.fixture(scope="module")
def sweeps() -> Iterator[processes.Sweeps]:
    """Starts sweeps; whatever is left of them ends with the module."""
    yield from processes.sweeps()


@pytest.fixture(scope="module")
def shared_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[one_ray.SharedRay]:
    """Runs sweeps on a Ray of one core that ends with the module."""
    with one_ray.shared_ray(tmp_path_factory.mktemp("shared_ray")) as ray:
        yield ray
