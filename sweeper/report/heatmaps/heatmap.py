"""Heatmaps: the cells of two axes (`sweeper.report.heatmaps.heatmap_cells`) as Parquet and as a figure."""

from collections.abc import Sequence

import pandas as pd

from sweeper.plan.best_settings import BestSetting, sentences
from sweeper.report.class_names import ValueText, plain_text
from sweeper.report.heatmaps.figure import draw
from sweeper.report.heatmaps.heatmap_cells import pivot, positions, selection_metric
from sweeper.report.style import fitted_png
from sweeper.spec.views import Heatmap
from sweeper.storage.files import Files

MAX_BEST = 4
"""Most data sets whose best setting a caption names."""


def write(
    files: Files,
    folder: str,
    rows: pd.DataFrame,
    heatmap: Heatmap,
    preset: str,
    *,
    over: str = "trials",
    about: str = "",
    value_text: ValueText = plain_text,
    best: Sequence[BestSetting] = (),
    so_far: bool = False,
) -> pd.DataFrame:
    """Write `heatmaps/FOLDER/METRIC.parquet` and `.png`. Returns the cells.

    If the paper has figures for the preset, the cells have a column `published`, which is a share in [0, 1] if the
    metric is `percent`. If the rows have the metric on validation images, too, the cells have a column `validation`,
    its mean. `over` names what the mean is over, e.g. "classes". `about` is a line below the title.
    `value_text` is how the figure writes values of the axes. `best` are the best settings, whose cells are framed, and
    `so_far` is whether trials are still to come.
    """
    cells = pivot(rows, heatmap.metric.name, heatmap.axes)
    if published := heatmap.published.get(preset):
        keys = zip(cells[heatmap.rows], cells[heatmap.columns], strict=True)
        cells["published"] = pd.array([published.get(key) for key in keys], dtype="float64")
        if heatmap.metric.percent:
            cells["published"] /= 100.0
    if (criterion := selection_metric(rows, heatmap.metric.name)) != heatmap.metric.name:
        cells["validation"] = pivot(rows, criterion, heatmap.axes)["mean"]
    path = f"heatmaps/{folder}/{heatmap.metric.name}"
    files.write(f"{path}.parquet", cells.to_parquet(index=False))
    framed = positions(cells, rows, heatmap.axes, best)
    lines = sentences(best, MAX_BEST, so_far=so_far)
    figure = draw(cells, heatmap, over=over, about=about, value_text=value_text, framed=framed, best=lines)
    files.write(f"{path}.png", fitted_png(figure))
    return cells
