import numpy as np
import pandas as pd
import pytest

from sweeper.report.heatmaps import write
from sweeper.spec import Heatmap, Metric
from sweeper.storage.files import Files
from tests.sweeper.report.grid_cells import AXES, cell

AUROC = Metric("auroc", "maximize")
HEATMAP = Heatmap(AUROC, *AXES)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (9, 12)])
def test_written_files_are_a_table_and_a_picture(tmp_path, shape):
    rows = pd.DataFrame([(b, n, b * n / 7) for b in range(shape[0]) for n in range(shape[1])], columns=["b", "n", "m"])
    heatmap = Heatmap(Metric("m", "minimize"), "b", "n", published={"paper": {(0, 0): 1.0}})
    cells = write(Files(tmp_path), "grid", rows, heatmap, "paper")
    table = pd.read_parquet(tmp_path / "heatmaps" / "grid" / "m.parquet")
    pd.testing.assert_frame_equal(table, cells)
    assert table["published"].notna().sum() == 1
    assert (tmp_path / "heatmaps" / "grid" / "m.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_paper_are_shares_where_the_metric_is_in_percent(tmp_path, rows):
    published = {"paper": {(1.0, 3.0): 90.3}}
    share = Heatmap(Metric("auroc", "maximize", percent=True), *AXES, published=published)
    cells = write(Files(tmp_path), "g", rows, share, "paper")
    assert cell(cells, 1.0, 3.0)[["mean", "published"]].tolist() == pytest.approx([0.815, 0.903])


def test_cells_have_the_mean_on_validation_images(tmp_path, rows):
    rows["val_auroc"] = np.where((rows["beta"] == 0) & (rows["nu"] == 0.5), 0.9, 0.6)
    cells = write(Files(tmp_path), "g", rows, HEATMAP, "paper")
    assert cell(cells, 0.0, 0.5)["validation"] == pytest.approx(0.9)
    assert cell(cells, 1.0, 3.0)["mean"] == cells["mean"].max()


def test_a_preset_without_published_figures_has_no_column_of_them(tmp_path, rows):
    heatmap = Heatmap(AUROC, *AXES, published={"paper": {(1.0, 3.0): 0.9}})
    assert "published" not in write(Files(tmp_path), "grid", rows, heatmap, "digits")
