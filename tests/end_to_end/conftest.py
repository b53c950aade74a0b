"""Sweeps in processes of their own, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end import sweeps as processes


@pytest.fixture(scope="module")
def sweeps() -> Iterator[processes.Sweeps]:
    """Starts sweeps; whatever is left of them ends with the module."""
    yield from processes.sweeps()
