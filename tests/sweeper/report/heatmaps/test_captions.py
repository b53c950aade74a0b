import math

import numpy as np
import pandas as pd
import pytest

from sweeper.report.heatmaps import ColourScale, cell_texts, colour_scale, decimals_of, noise_text, pivot, ticks
from tests.sweeper.report.grid_cells import AXES


def test_a_cell_has_the_mean_its_deviation_and_the_papers_figure():
    cell = {"mean": 0.815, "std": 0.0129, "published": 0.903}
    assert cell_texts(cell, 3) == ["0.815", "± 0.013", "paper 0.903"]
    assert cell_texts({"mean": math.nan, "std": math.nan}, 3) == ["\N{EN DASH}"]
    assert cell_texts({"mean": 123456789.0, "std": 2e6}, 0) == ["1.23e+08", "± 2.00e+06"]


@pytest.mark.parametrize(
    ("values", "decimals"), [([0.5, 0.98], 3), ([81.5, math.inf], 2), ([5.0], 3), ([123456.0], 0), ([1e-9], 6), ([], 3)]
)
def test_decimals_show_the_largest_value_to_three_or_four_figures(values, decimals):
    assert decimals_of(np.array(values)) == decimals


def scale(low: float, high: float) -> ColourScale:
    return ColourScale(low, high, math.nan, math.nan, widened=False)


@pytest.mark.parametrize(
    ("low", "high", "most", "texts"),
    [
        (0.42, 0.99, 7, ["0.5", "0.6", "0.7", "0.8", "0.9"]),
        (-1.3, 1.2, 7, ["\N{MINUS SIGN}1.0", "\N{MINUS SIGN}0.5", "0.0", "0.5", "1.0"]),
        (49.0, 83.0, 7, ["50", "55", "60", "65", "70", "75", "80"]),
        (0.0, 1.1e-9, 4, ["0.00", "5.00e\N{MINUS SIGN}10", "1.00e\N{MINUS SIGN}09"]),
        (-1e7, 1.1e7, 7, ["\N{MINUS SIGN}1.00e+07", "\N{MINUS SIGN}5.00e+06", "0.00", "5.00e+06", "1.00e+07"]),
    ],
)
def test_ticks_are_round_values_within_the_scale(low, high, most, texts):
    found = ticks(scale(low, high), most)
    assert list(found.values()) == texts and all(low <= value <= high for value in found)


def test_a_low_bar_has_few_ticks():
    assert len(ticks(scale(0.0, 1.0), 4)) < len(ticks(scale(0.0, 1.0), 7))


def test_one_trial_a_cell_says_that_noise_is_not_known(rows: pd.DataFrame):
    cells = pivot(rows[rows["class"] == 0], "auroc", AXES)
    assert noise_text(colour_scale(cells), cells) == "one trial a cell, so what differences are noise is not known"
