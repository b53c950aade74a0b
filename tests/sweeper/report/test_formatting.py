import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeper.definition import Grid, Heatmap, Metric, Sweep, Table, Trajectory
from sweeper.report import publish, trajectories
from sweeper.report.formatting import (
    DASH,
    MINUS,
    aligned_decimals,
    format_metric,
    format_significant,
    format_value,
    read_class_names,
    text_table,
    text_with_class_names,
)
from sweeper.report.heatmaps import pivot, values_of
from sweeper.storage.files import Files
from sweeper.storage.layout import class_names_path


def test_numbers_of_a_column_have_as_many_decimals_as_show_each_with_three_figures():
    for values, decimals in (
        *(([0.982, 0.91], 3), ([12.3, 0.982], 3), ([1234.0, 56.0], 1), ([-0.5, 0.0, math.nan, math.inf], 3)),
        *(([1e5, 2e5], 0), ([], 2), ([0.0], 2)),
        *(([1e-4, 0.9], None), ([3e9, 1.0], None), ([1e-9], None)),
    ):
        assert aligned_decimals(np.array(values)) == decimals, values


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
    figures = (Heatmap(AUROC, "beta", "nu"), *tables)
    sweep = Sweep("own", {"own": Grid({}, {})}, figures, breakdown="normal_class")
    text = publish.write(files, publish.Subject("own", sweep, "own"), rows.assign(nu=1.0))
    _, by_class, _, across, breakdown = text.split("\n\n")
    names = ["cat", "dog", "fox|red"]
    assert [line.split()[:3] for line in breakdown.splitlines()[3:]] == [["1", "1", name] for name in names]
    assert [line.split()[0] for line in by_class.splitlines()[-3:]] == names
    assert "normal_class=dog: auroc" in across
    markdown = (files.read("tables/own/own/by_class.md") or b"").decode()
    assert "| cat " in markdown and "| fox\\|red " in markdown
    stored = pd.read_parquet(f"{files.display_uri}/tables/own/own/by_class.parquet")
    assert stored["normal_class"].tolist() == [0, 1, 2]


def test_figures_have_names(files: Files, rows: pd.DataFrame) -> None:
    text = text_with_class_names(files, "own", rows)
    shown = values_of(pivot(rows, "auroc", HEATMAP.axes), HEATMAP, value_text=text)
    assert shown["column_order"] == ["cat", "dog", "fox|red"] and shown["row_order"] == ["0.5", "1"]
    history = pd.concat([rows.assign(epoch=epoch, metric="auroc", value=rows["auroc"]) for epoch in (1, 2)])
    history = history[["trial_id", "epoch", "metric", "value"]]
    for by in (("normal_class",), ("beta", "normal_class")):
        trajectory = Trajectory("curves", (AUROC,), by)
        points = trajectories.average(history, rows, trajectory, text)
        (panel,) = trajectories.panels(points, trajectory, text)
        assert {"dog", "1, dog"} & set(panel["lines"]), by
