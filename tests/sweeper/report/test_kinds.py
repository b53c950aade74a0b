import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from search_spaces import anomaly_grid, collapse_ablation, ssl_cifar10, vje_search
from sweeper.definition import Grid, Metric, Sweep, Table
from sweeper.definition.figures import Figure
from sweeper.report.figures import figures_of
from sweeper.report.kinds import KINDS, read_figures, write_figures
from sweeper.storage.files import Files
from sweeper.storage.layout import FIGURES, page_figures_folder
from tests.sweeper.report.page.stored import SWEEP


@pytest.mark.parametrize("sweep", [SWEEP, *(module.SWEEP for module in (anomaly_grid, collapse_ablation, vje_search))])
def test_what_is_written_is_read(sweep: Sweep, tmp_path: Path) -> None:
    files = Files(tmp_path)
    for preset in sweep.presets:
        write_figures(files, "mine", figures_of(sweep, preset))
    found, problems = read_figures(files, "mine")
    assert not problems
    for preset in sweep.presets:
        figures = figures_of(sweep, preset)
        assert [grid.axes for grid in found[preset].grids] == [grid.axes for grid in figures.grids]
        for field in ("about", "over", "headline", "figures", "objectives", "parameters"):
            assert getattr(found[preset], field) == getattr(figures, field), field


def test_figures_of_other_presets_are_left_out() -> None:
    first, *_ = ssl_cifar10.SWEEP.presets
    figures = figures_of(ssl_cifar10.SWEEP, first)
    assert figures.figures and all(set(table.published) <= {first} for table in figures.of_kind(Table))


def test_values_of_axes_keep_their_types(tmp_path: Path) -> None:
    axes: dict[str, tuple[Any, ...]] = {"nu": (0.5, math.inf), "beta": (1.0, None), "flip": (True, False)}
    axes |= {"k": (1, 2), "seed": (np.int64(3),)}
    table = Table("any", ("nu",), (Metric("loss", "minimize"),), published={"a/b": {(math.inf,): {"loss": 1.0}}})
    sweep = Sweep("", {"a/b": Grid({"method": "vje"}, axes)}, figures=(table,))
    files = Files(tmp_path)
    write_figures(files, "mine", figures_of(sweep, "a/b"))
    (grid,) = read_figures(files, "mine")[0]["a/b"].grids
    assert grid.axes == axes and [type(value) for value in grid.axes["beta"]] == [float, type(None)]
    assert read_figures(files, "mine")[0]["a/b"].figures == (table,)


def test_every_kind_has_a_module_and_a_folder_of_its_own() -> None:
    assert set(KINDS) == set(Figure.__subclasses__())
    folders = [module.FOLDER for module in KINDS.values()]
    assert set(folders) <= set(FIGURES) and len(set(folders)) == len(folders)


def test_a_file_of_another_version_may_lack_a_kind_and_have_others(tmp_path: Path) -> None:
    files = Files(tmp_path)
    change(files, lambda plain: (plain.pop("trajectories"), plain.update(boxes=[{"name": "b"}])))
    (found,), problems = read_figures(files, "mine")[0].values(), read_figures(files, "mine")[1]
    assert not problems and found.figures == figures_of(SWEEP, "paper").figures[:-1]


@pytest.mark.parametrize(
    ("changed", "law"),
    [
        (lambda plain: plain["tables"][0].update(rows=["a"] * 501), r"tables\[0\]: it must be of at most 500 items"),
        (lambda plain: plain["tables"][0].update(published=[[[1.0], 93.0]]), r"tables\[0\]: must be object"),
        (lambda plain: plain["heatmaps"][0].update(published=[[[1.0], 0.7]]), "must be a tuple of length 2"),
        (lambda plain: plain["trajectories"][0].update(published=[[[1.0], 0.7]]), "must be array of length <= 0"),
        (lambda plain: plain.update(trajectories=[3]), r"trajectories\[0\]: must be object"),
    ],
)
def test_figures_that_cannot_be_are_refused_in_one_line(
    tmp_path: Path, changed: Callable[[dict[str, Any]], object], law: str
) -> None:
    files = Files(tmp_path)
    change(files, changed)
    found, (problem,) = read_figures(files, "mine")
    assert not found and re.search(law, problem) and "\n" not in problem


def change(files: Files, changed: Callable[[dict[str, Any]], object]) -> None:
    """Write the figures of a preset, and change the file."""
    write_figures(files, "mine", figures_of(SWEEP, "paper"))
    path = f"{page_figures_folder('mine')}/paper.json"
    plain = json.loads(files.read(path) or b"")
    changed(plain)
    files.write(path, json.dumps(plain).encode())
