import math

import numpy as np
import pandas as pd
import pytest

from sweeper.report.formatting import (
    DASH,
    MINUS,
    format_metric,
    format_significant,
    format_value,
    text_table,
)


def test_a_value_is_shown_as_in_a_request_and_a_null_as_a_dash():
    assert [format_value(v) for v in (1.0, 0.25, 1e-5, 1e-10, 1e300, 30, True, "cat")] == [
        *("1", "0.25", "1e-5", "1e-10", "1e+300", "30", "True", "cat")
    ]
    assert [format_value(v) for v in (math.inf, None, math.nan, pd.NA)] == ["∞", DASH, DASH, DASH]
    assert [format_metric(v, 3) for v in (0.9, 0.00001, 0.0)] == ["0.900", "1e-05", "0.000"]
    assert [format_metric(v, 2) for v in (math.inf, -math.inf, -0.5)] == ["∞", f"{MINUS}∞", f"{MINUS}0.50"]


def test_numpy_scalars_are_shown_as_plain_values():
    assert [format_value(v) for v in (np.float64(0.5), np.int64(3), np.True_, -math.inf, -2.0)] == [
        *("0.5", "3", "True", f"{MINUS}∞", f"{MINUS}2")
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (1.2345, "1.23"),
        (-123456.7, f"{MINUS}123457"),
        (1.234e6, "1.23e+06"),
        (1.2e-6, f"1.20e{MINUS}06"),
    ],
)
def test_three_significant_figures(value, text):
    assert format_significant(value) == text


def test_a_text_table_aligns_each_column():
    lines = text_table({"name": ["vje", "simclr"], "k": ["5", "200"]}, right=["k"]).splitlines()
    assert lines[0].index("name") == lines[2].index("vje") and len(lines[2]) == len(lines[3])
    assert len(text_table({"name": [], "k": []}).splitlines()) == 2
