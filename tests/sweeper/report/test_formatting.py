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
    format_values,
    text_table,
)


def test_a_value_is_shown_as_it_is():
    assert [format_value(v) for v in (1.0, 0.25, math.inf, 1e-5, 30, True, "cat", None, math.nan)] == [
        "1.0",
        "0.25",
        "∞",
        "1e-5",
        "30",
        "True",
        "cat",
        DASH,
        DASH,
    ]
    assert [format_metric(v, 3) for v in (0.9, 0.00001, 0.0)] == ["0.900", "1e-05", "0.000"]
    assert [format_metric(v, 2) for v in (math.inf, -math.inf, -0.5)] == ["∞", f"{MINUS}∞", f"{MINUS}0.50"]


def test_numpy_scalars_are_shown_as_plain_values():
    assert [format_value(v) for v in (np.float64(0.5), np.int64(3), np.True_, -math.inf, -2.0)] == [
        *("0.5", "3", "True", f"{MINUS}∞", f"{MINUS}2.0")
    ]


def test_labels_show_whole_numbers_that_nulls_made_floats():
    assert format_values(pd.Series([30.0, None])) == ["30", DASH] and format_values(pd.Series([30.0, 1.0])) == [
        "30.0",
        "1.0",
    ]
    assert format_values(pd.Series([3.0, None, math.inf])) == ["3.0", DASH, "∞"]
    assert format_values(pd.Series([True, None, "a"], dtype=object)) == ["True", DASH, "a"]


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
