from collections.abc import Iterator

import pytest

from tests.trainables.tasks.pairs_methods import registered


@pytest.fixture
def pairs() -> Iterator[None]:
    """The catalog has two small methods of the task `pairs`, too."""
    with registered():
        yield
