import math

import pandas as pd
import pytest


@pytest.fixture
def rows() -> pd.DataFrame:
    """Rows of a grid of two hyperparameters, with four classes in each cell."""
    grid = [(b, n, c) for b in (0.0, 1.0) for n in (0.5, 3.0, math.inf) for c in range(4)]
    frame = pd.DataFrame(grid, columns=["beta", "nu", "class"])
    frame["auroc"] = 0.5 + 0.1 * frame["beta"] + 0.01 * frame["class"] + (frame["nu"] == 3.0) * 0.2
    return frame
