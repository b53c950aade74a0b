from collections.abc import Iterator

import pytest

from tests.trainables.tasks.pairs.registered import registered


@pytest.fixture
def pairs() -> Iterator[None]:
    """The catalog has the task `pairs` and its methods, too."""
    with registered():
        yield
