import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_spaces import anomaly_grid, collapse_ablation, ssl_cifar10, vje_search
from sweeper.report.figures import figures_of, read_figures, write_figures
from sweeper.spec import Grid, Metric, Sweep, Table
from sweeper.storage.files import Files
from tests.sweeper.report.page.stored import SWEEP


@pytest.mark.parametrize("sweep", [SWEEP, *(module.SWEEP for module in (anomaly_grid, collapse_ablation, vje_search))])
def test_what_is_written_is_read(sweep: Sweep, tmp_path: Path) -> None:
    files = Files(tmp_path)
    for preset in sweep.presets:
        write_figures(files, "mine", figures_of(sweep, preset))
    found, problems = read_figures(files, "mine")
    assert not problems
    for preset in sweep.presets:
        views = figures_of(sweep, preset)
        assert [grid.axes for grid in found[preset].grids] == [grid.axes for grid in views.grids]
        for field in ("about", "over", "headline", "heatmaps", "tables", "trajectories", "objectives", "parameters"):
            assert getattr(found[preset], field) == getattr(views, field), field


def test_views_of_other_presets_are_left_out() -> None:
    first, *_ = ssl_cifar10.SWEEP.presets
    views = figures_of(ssl_cifar10.SWEEP, first)
    assert views.tables and all(set(table.published) <= {first} for table in views.tables)


def test_values_of_axes_keep_their_types(tmp_path: Path) -> None:
    axes: dict[str, tuple[Any, ...]] = {"nu": (0.5, math.inf), "beta": (1.0, None), "flip": (True, False)}
    axes |= {"k": (1, 2), "seed": (np.int64(3),)}
    table = Table("any", ("nu",), (Metric("loss", "minimize"),), published={"a/b": {(math.inf,): {"loss": 1.0}}})
    sweep = Sweep("", {"a/b": Grid({"method": "vje"}, axes)}, tables=(table,))
    files = Files(tmp_path)
    write_figures(files, "mine", figures_of(sweep, "a/b"))
    (grid,) = read_figures(files, "mine")[0]["a/b"].grids
    assert grid.axes == axes and [type(value) for value in grid.axes["beta"]] == [float, type(None)]
    assert read_figures(files, "mine")[0]["a/b"].tables == (table,)
