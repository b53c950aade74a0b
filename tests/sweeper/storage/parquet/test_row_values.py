"""Values of rows are equal, whatever they come from."""

import numpy as np
import pandas as pd
import pytest

from sweeper.storage.rows import plain_value


@pytest.mark.parametrize("null", [None, float("nan"), np.float32("nan"), pd.NaT, pd.NA, np.datetime64("NaT")])
def test_every_null_is_none(null: object) -> None:
    assert plain_value(null) is None


@pytest.mark.parametrize("value", [np.int64(3), np.bool_(True), np.float64(0.5), "NaT", 0, False, pd.Timestamp(0)])
def test_a_value_is_one_of_python(value: object) -> None:
    plain = plain_value(value)
    assert plain == value and not isinstance(plain, np.integer | np.bool_) and type(plain) is not np.float64
