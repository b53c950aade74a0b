"""The line with which an incomplete data set is refused."""

from pathlib import Path

import pytest

from trainables.data.datasets.catalog import load
from trainables.data.errors import DataError


def imagenet_refusal(folder: Path) -> str:
    with pytest.raises(DataError) as error:
        load("imagenet", folder.parent)
    assert "\n" not in str(error.value)
    return str(error.value)
