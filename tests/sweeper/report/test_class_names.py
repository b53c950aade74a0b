import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeper.report import curve_figure, publish, trajectories
from sweeper.report.formatting import DASH, read_class_names, text_with_class_names
from sweeper.report.heatmap_figure import draw
from sweeper.report.heatmaps import pivot
from sweeper.spec import Grid, Heatmap, Metric, Sweep, Table, Trajectory
from sweeper.storage.files import Files
from sweeper.storage.layout import class_names_path

AUROC = Metric("auroc", "maximize")
HEATMAP = Heatmap(AUROC, "beta", "normal_class")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.write(class_names_path("own", "abc"), json.dumps(["cat", "dog", "fox|red"]).encode())
    return files


@pytest.fixture
def rows() -> pd.DataFrame:
    grid = [(beta, index, beta / (1 + index)) for beta in (0.5, 1.0) for index in range(3)]
    frame = pd.DataFrame(grid, columns=["beta", "normal_class", "auroc"])
    return frame.assign(image_digest="abc", trial_id=[f"t{index}" for index in range(6)])


def test_classes_of_the_users_images_have_names(files: Files, rows: pd.DataFrame) -> None:
    text = text_with_class_names(files, "own", rows)
    values = (1, np.int64(2), 0.0, 7, None, np.nan)
    assert [text("normal_class", value) for value in values] == ["dog", "fox|red", "cat", "7", DASH, DASH]
    assert text("beta", 1) == "1"


@pytest.mark.parametrize("digests", [["abc", "other"], ["abc", None], ["other"], [None]])
def test_classes_have_numbers_where_rows_have_different_or_other_images(
    files: Files, rows: pd.DataFrame, digests: list[str | None]
) -> None:
    rows["image_digest"] = pd.Series(digests * 6, dtype=object).head(len(rows))
    assert text_with_class_names(files, "own", rows)("normal_class", 1) == "1"


def test_a_damaged_file_of_names_is_left_out(files: Files, rows: pd.DataFrame) -> None:
    files.write(class_names_path("own", "abc"), b"[")
    assert read_class_names(files, "own", rows) == {}
    assert text_with_class_names(files, "own", rows)("normal_class", 1) == "1"


def test_tables_and_the_terminal_have_names_and_parquet_files_have_numbers(files: Files, rows: pd.DataFrame) -> None:
    tables = (Table("by_class", ("normal_class",), (AUROC,)), Table("across", ("beta",), (AUROC,), "normal_class"))
    heatmaps = (Heatmap(AUROC, "beta", "nu"),)
    sweep = Sweep("own", {"own": Grid({}, {})}, heatmaps=heatmaps, tables=tables, breakdown="normal_class")
    text = publish.write(files, "own", sweep, "own", rows.assign(nu=1.0))
    breakdown, _, by_class, _, across, sentence = text.split("\n\n")
    names = ["cat", "dog", "fox|red"]
    assert [line.split()[:3] for line in breakdown.splitlines()[3:]] == [["1", "1", name] for name in names]
    assert [line.split()[0] for line in by_class.splitlines()[-3:]] == names
    assert "normal_class=dog: auroc" in across and sentence.startswith("best auroc: ")
    markdown = (files.read("tables/own/own/by_class.md") or b"").decode()
    assert "| cat " in markdown and "| fox\\|red " in markdown
    stored = pd.read_parquet(f"{files.display_uri}/tables/own/own/by_class.parquet")
    assert stored["normal_class"].tolist() == [0, 1, 2]


def test_figures_have_names(files: Files, rows: pd.DataFrame) -> None:
    text = text_with_class_names(files, "own", rows)
    figure = draw(pivot(rows, "auroc", HEATMAP.axes), HEATMAP, value_text=text)
    texts = [item.get_text() for item in figure.texts]
    assert {"cat", "dog", "fox|red", "0.5"} <= set(texts)
    history = pd.concat([rows.assign(epoch=epoch, metric="auroc", value=rows["auroc"]) for epoch in (1, 2)])
    history = history[["trial_id", "epoch", "metric", "value"]]
    for by in (("normal_class",), ("beta", "normal_class")):
        view = Trajectory("curves", (AUROC,), by)
        points = trajectories.average(history, rows, view, text)
        panel = curve_figure.draw(points, view, value_text=text).axes[0]
        named = {item.get_text() for item in panel.texts}
        assert {"dog", "1, dog"} & named, by
