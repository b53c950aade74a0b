import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeper.definition import Metric, SpecError
from sweeper.definition.figures import Table
from sweeper.report.figures import PresetFigures, Shown
from sweeper.report.table_documents import caption, html_table, markdown, text
from sweeper.report.tables import average, has_trials, on_page, write
from sweeper.results.replicates import MEASURED
from sweeper.results.sentences import Over
from sweeper.storage.files import Files
from tests.cases import for_each

KNN, NLL = Metric("knn", "maximize", percent=True), Metric("nll", "minimize")
TABLE = Table("probe", rows=("method", "nu"), metrics=(KNN, NLL), columns="dataset")
DASH = "\N{EN DASH}"


@pytest.fixture
def rows() -> pd.DataFrame:
    methods = (("vje", 3.0), ("vje", math.inf), ("simclr", None))
    grid = [(*m, d, s) for m in methods for d in ("svhn", "cifar10") for s in range(3)]
    frame = pd.DataFrame(grid, columns=["method", "nu", "dataset", "seed"])
    draws = np.random.default_rng(0).normal(size=(len(frame), 2))
    return frame.assign(knn=0.8 + 0.02 * draws[:, 0], nll=-150 + 30 * draws[:, 1])


def published(figures: dict) -> Table:
    return replace(TABLE, published={"paper": figures})


def parsed(source: str) -> list[list[str]]:
    """Return the cells of a Markdown table as rendered on GitHub, heading first."""
    lines = [line for line in source.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in lines]
    assert set("".join(cells.pop(1))) <= set("- ")
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in line] for line in cells]


def numbers(cell: str) -> list[float]:
    plain = cell.replace("\N{MINUS SIGN}", "-").replace("∞", "inf")
    return [float(number) for number in re.findall(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf)", plain)]


def test_a_cell_is_the_mean_and_its_interval_over_the_replicates(rows):
    cells = average(rows, TABLE, "paper")
    assert cells.columns.tolist() == [*("method", "nu", "dataset", "metric", *MEASURED, "published", "difference")]
    assert len(cells) == 3 * 2 * 2 and (cells["count"] == 3).all() and (cells["missing"] == 0).all()
    for cell in cells.to_dict("records"):
        nu = rows["nu"].isna() if math.isnan(cell["nu"]) else rows["nu"] == cell["nu"]
        selected = rows[(rows["method"] == cell["method"]) & nu & (rows["dataset"] == cell["dataset"])][cell["metric"]]
        assert cell["mean"] == pytest.approx(sum(selected) / 3)
        assert cell["std"] ** 2 == pytest.approx(sum((selected - sum(selected) / 3) ** 2) / 2)
        interval = tuple(stats.ttest_1samp(selected, 0).confidence_interval(0.95))
        if cell["metric"] == "knn":  # a share: by the delta method on the logit scale
            p = sum(selected) / 3
            half = stats.t.ppf(0.975, 2) * stats.sem(selected) / (p * (1 - p))
            interval = tuple(stats.logistic.cdf(stats.logistic.ppf(p) + sign * half) for sign in (-1, 1))
        assert (cell["low"], cell["high"]) == pytest.approx(interval)


def test_rows_and_columns_are_in_the_order_of_the_trials_and_the_papers_own_come_last(rows):
    table = published({("byol", None, "stl10"): {"knn": 90.0}, ("vje", 3, "svhn"): {"knn": 86.0}})
    cells = average(rows, table, "paper")
    assert list(dict.fromkeys(cells["method"])) == ["vje", "simclr", "byol"]
    assert cells["dataset"][::2].tolist() == ["svhn", "cifar10", "stl10"] * 4
    assert cells["metric"].tolist() == ["knn", "nll"] * 12
    alone = cells[cells["method"] == "byol"]
    assert (alone["count"] == 0).all() and alone["mean"].isna().all() and alone["published"].notna().sum() == 1
    backwards = average(rows[::-1], table, "paper")
    assert list(dict.fromkeys(backwards["method"])) == ["simclr", "vje", "byol"]


@for_each(
    ("values", "key"),
    [
        *[([1.0, 2.0], 1), ([1, 2], 1.0), ([math.inf, 1.0], math.inf), ([True, False], True), (["a", "b"], "a")],
        *[
            ([None, 1.0], None),
            ([None, 1.0], math.nan),
            ([None, "a"], None),
            ([True, None], True),
            ([-math.inf], -math.inf),
        ],
    ],
)
def test_a_published_key_finds_its_row_whatever_its_type(values, key):
    """The first value is the one for which the paper has a figure."""
    rows = pd.DataFrame({"k": values, "m": 0.5})
    table = Table("t", ("k",), (Metric("m", "maximize", percent=True),), published={"paper": {(key,): {"m": 40.0}}})
    cells = average(rows, table, "paper")
    assert len(cells) == len(values) and cells["published"].notna().tolist() == [True, *[False] * (len(values) - 1)]
    assert cells["difference"][0] == pytest.approx(0.1) and cells["k"].dtype == rows["k"].dtype
    assert average(rows, table, "other")["published"].isna().all()


def test_missing_is_counted_and_one_value_has_no_deviation(rows):
    rows.loc[[0, 1], "knn"] = np.nan
    rows.loc[6:8, "knn"] = math.inf
    cells = average(rows, TABLE, "paper")
    cell = cells.iloc[0]
    assert (cell["count"], cell["missing"]) == (1, 2) and cell["mean"] == rows["knn"][2] and math.isnan(cell["std"])
    infinite = cells[(cells["nu"] == math.inf) & (cells["metric"] == "knn")].iloc[0]
    assert infinite["mean"] == math.inf and math.isnan(infinite["std"])
    table_cells = parsed(markdown(cells, TABLE))
    assert table_cells[1][2] == f"{100 * rows['knn'][2]:.2f}, 1 of 3" and table_cells[2][2] == "∞"


def test_a_metric_that_no_row_has_is_null(rows):
    table = Table("t", ("method", "eta"), (KNN, Metric("entropy", "minimize")), "width")
    cells = average(rows, table, "paper")
    assert cells[["eta", "width"]].isna().all(axis=None) and len(cells) == 4
    entropy = cells[cells["metric"] == "entropy"]
    assert entropy["mean"].isna().all() and (entropy["count"] == 0).all() and entropy["missing"].tolist() == [12, 6]
    assert parsed(markdown(cells, table))[1][3] == DASH
    nothing = average(rows[:0], TABLE, "paper")
    assert nothing.empty and caption(nothing, TABLE) == "no value yet" and text(nothing, TABLE)


@pytest.mark.parametrize(
    ("figures", "law"),
    [
        ({("vje", "svhn"): {"knn": 1.0}}, r"table probe must be a tuple of length 3, but got \('vje', 'svhn'\)"),
        ({"vje": {"knn": 1.0}}, "must be a tuple of length 3, but got 'vje'"),
        ({("vje", 3.0, "svhn"): {"knm": 1.0}}, "table probe has a published knm for .*, but its metrics are: knn, nll"),
    ],
)
def test_a_published_figure_for_no_cell_is_refused(figures, law):
    with pytest.raises(SpecError, match=law):
        published(figures)


def test_listed_metrics_have_a_row_each_of_the_same_cells(rows):
    across, listed = TABLE, replace(TABLE, listed=True)
    cells = average(rows, across, "paper")
    assert average(rows, listed, "paper").equals(cells)
    wide, long = parsed(markdown(cells, across)), parsed(markdown(cells, listed))
    assert long[0] == ["method", "nu", "metric", "svhn", "cifar10"] and len(long) == 1 + 2 * (len(wide) - 1)
    for row, line in enumerate(wide[1:]):
        for offset, metric in enumerate(("knn (%)", "nll")):
            assert long[1 + 2 * row + offset] == [*line[:2], metric, line[2 + offset], line[4 + offset]]


def test_markdown_reads_back_as_the_numbers(rows):
    """The numbers agree to the digits shown: 2 decimals of a percentage, 3 significant figures of other values."""
    rows["nll"] *= np.repeat([1.0, 1e-4, 3e7], 6)
    rows.loc[rows["nu"] == math.inf, "nll"] += 0.02
    figures: dict = {("vje", math.inf, "svhn"): {"knn": 78.93, "nll": 0.0131}, ("byol", 1, "svhn"): {"knn": 91.2}}
    table = published(figures)
    cells = average(rows, table, "paper")
    heading, *lines = parsed(markdown(cells, table))
    assert heading == ["method", "nu", *(f"{d}: {m}" for d in ("svhn", "cifar10") for m in ("knn (%)", "nll"))]
    assert [line[:2] for line in lines] == [["vje", "3"], ["vje", "∞"], ["simclr", DASH], ["byol", "1"]]
    table_cells = [cell for line in lines for cell in line[2:]]
    for cell, printed in zip(cells.to_dict("records"), map(numbers, table_cells), strict=True):
        true = [cell[name] for name in ("mean", "low", "high", "published", "difference") if not math.isnan(cell[name])]
        if cell["metric"] == "knn":
            assert printed == pytest.approx([100 * value for value in true], abs=0.00501)
        else:
            assert printed == pytest.approx(true, rel=0.00501)
    mean = 100 * cells["mean"][4]
    assert lines[1][2].endswith(f"(paper 78.93, {mean - 78.93:+.2f})".replace("-", "\N{MINUS SIGN}"))
    assert lines[3][2:] == [f"{DASH} (paper 91.20)", DASH, DASH, DASH]


def test_the_source_of_the_markdown_is_aligned_and_escaped(rows):
    rows["method"] = rows["method"].map({"vje": "a|b\\|c", "simclr": "x*y <z>`"})
    cells = average(rows, TABLE, "paper")
    source = markdown(cells, TABLE)
    title, _, caption_line, _, *lines = source.splitlines()
    assert title == "# probe" and caption_line == "mean [95 % interval] over 3 replicates"
    assert len({len(line) for line in lines}) == 1
    assert [line[0] for line in parsed(source)[1:]] == ["a|b\\|c", "a|b\\|c", "x*y <z>`"]


class _Cells(HTMLParser):
    """Collects the text of the cells of an HTML table, row by row."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def test_html_has_the_cells_of_the_markdown_and_no_markup_of_a_value(rows):
    rows["method"] = rows["method"].map({"vje": "<script>", "simclr": "a&b"})
    table = published({("<script>", 3.0, "svhn"): {"knn": 78.93}})
    cells = average(rows, table, "paper").assign(mark="", criterion="knn")
    cells.loc[cells["count"] > 0, "mark"] = "*"
    source = html_table(cells, table)
    assert "<script>" not in source and "<b>" in source and "<caption>probe: mean [95 % interval] over" in source
    expected, found = parsed(markdown(cells, table)), _Cells(source).rows
    assert [row[:2] for row in found] == [row[:2] for row in expected] and found[0] == expected[0]
    assert [[numbers(cell) for cell in row[2:]] for row in found[1:]] == [
        [numbers(cell) for cell in row[2:]] for row in expected[1:]
    ]


def test_a_value_that_rounds_to_zero_is_written_as_zero():
    rows = pd.DataFrame({"k": [1, 2], "knn": [0.80000001, 0.5]})
    table = Table("t", ("k",), (KNN,), published={"paper": {(1,): {"knn": 80.0}, (2,): {"knn": 50.001}}})
    table_cells = parsed(markdown(average(rows, table, "paper"), table))
    assert table_cells[1][1] == "80.00 (paper 80.00, +0.00)" and numbers(table_cells[2][1]) == [50.0, 50.0, 0.0]
    below = pd.DataFrame({"k": [1], "knn": [-1e-7]})
    assert parsed(markdown(average(below, table, "other"), table))[1][1] == "0.00"


def test_text_is_one_aligned_block_where_it_fits(rows):
    table = replace(TABLE, columns=None)
    heading, block = text(average(rows, table, "paper"), table).split("\n\n")
    assert heading == "probe\nmean [95 % interval] over 3 replicates, each the mean of several trials"
    heading, rule, *lines = block.splitlines()
    assert heading.split() == ["method", "nu", "knn", "(%)", "nll"] and set(rule) == {"-", " "} and len(lines) == 3
    assert len({line.index("[") for line in lines}) == 1 and "|" not in block


@pytest.mark.parametrize("width", [100, 60, 40])
def test_wide_text_is_cut_into_blocks_that_repeat_the_row_keys(rows, width):
    many = pd.concat([rows.assign(dataset=rows["dataset"] + str(i)) for i in range(4)], ignore_index=True)
    cells = average(many, TABLE, "paper")
    _, *blocks = text(cells, TABLE, width).split("\n\n")
    assert len(blocks) > 1 and all(len(line) <= width for block in blocks for line in block.splitlines())
    assert all(block.split()[:2] == ["method", "nu"] for block in blocks)
    headings = [part for block in blocks for part in re.findall(r"\w+\d: \w+", block.splitlines()[0])]
    assert headings == [f"{d}: {m}" for d in dict.fromkeys(many["dataset"]) for m in ("knn", "nll")]
    if width > 40:  # a dataset is never torn apart where its metrics fit beside each other
        assert all(len(re.findall(": knn", block)) == len(re.findall(": nll", block)) for block in blocks)


def test_written_files_are_a_table_and_its_markdown(tmp_path: Path, rows):
    table = published({("vje", 3, "svhn"): {"knn": 86.18}, ("other", "none", "svhn"): {"knn": 50}})
    cells = average(rows, table, "paper")
    write(Files(tmp_path), "grid", cells, table, Over("seeds"))
    stored = pd.read_parquet(tmp_path / "tables/grid/probe.parquet")
    pd.testing.assert_frame_equal(stored, cells)
    assert stored["published"][0] == pytest.approx(0.8618) and stored[stored["metric"] == "knn"]["mean"].max() < 1
    assert stored["nu"].dropna().unique().tolist() == ["3", "∞", "none"]  # text, as the paper's is
    assert (tmp_path / "tables/grid/probe.md").read_text() == markdown(cells, table, Over("seeds"))


def test_a_table_of_more_cells_than_anyone_reads_is_refused() -> None:
    """Every trial has a row and a column of its own."""
    rows = pd.DataFrame({"method": map(str, range(1000)), "nu": 1.0, "dataset": map(str, range(1000)), "knn": 0.5})
    with pytest.raises(ValueError, match="at most 200000 cells, but has 1000 rows, 1000 columns and 2 metrics"):
        average(rows, TABLE, "paper")


def test_the_papers_rows_are_left_out_that_were_not_asked_for(rows) -> None:
    figures = {
        ("vje", 3.0, "cifar10"): {"knn": 86.0},
        ("byol", None, "cifar10"): {"knn": 90.0},
        ("vje", 3.0, "mnist"): {"knn": 99.0},
    }
    table, asked = published(figures), rows[rows["method"] == "vje"]
    everything = average(asked, table, "paper")
    assert {"byol"} < set(everything["method"]) and "mnist" in set(everything["dataset"])
    without_byol = average(asked, table, "paper", {"method": {"vje"}})
    assert set(without_byol["method"]) == {"vje"} and "mnist" in set(without_byol["dataset"])
    neither = average(asked, table, "paper", {"method": {"vje"}, "dataset": {"svhn", "cifar10"}})
    assert set(neither["method"]) == {"vje"} and set(neither["dataset"]) == {"svhn", "cifar10"}
    assert neither["published"].dropna().tolist() == pytest.approx([0.86])


def test_a_table_has_trials_if_any_cell_has_one_with_or_without_a_value(rows) -> None:
    table = published({("byol", None, "cifar10"): {"knn": 90.0}})
    assert has_trials(average(rows, table, "paper"))
    assert has_trials(average(rows[:1].assign(knn=math.nan, nll=math.nan), table, "paper"))
    assert not has_trials(average(rows[:0], table, "paper")), "only the paper has figures"
    assert not has_trials(average(rows[:0], TABLE, "paper"))


def test_cells_that_are_not_told_apart_from_the_best_are_marked() -> None:
    """Of each metric with a direction and each column by itself."""
    knn = {"a": [0.90, 0.91, 0.92], "b": [0.89, 0.92, 0.91], "c": [0.50, 0.51, 0.52], "d": [0.9, 0.91, math.nan]}
    rows = pd.DataFrame(
        {"trial_id": f"{data}{method}{seed}", "status": "finished", "method": method, "dataset": data, "seed": seed}
        | {"knn": value - (data == "svhn") * (method == "a") * 0.3, "nll": seed + value, "rank": value}
        for data in ("digits", "svhn")
        for method, values in knn.items()
        for seed, value in enumerate(values)
    )
    table = Table("probe", ("method",), (KNN, Metric("rank")), columns="dataset")
    preset = PresetFigures("p", "about", "seeds", KNN, (table,), (), (), ())
    shown = Shown(preset, rows, pd.DataFrame, ("method", "dataset", "seed"), is_in_order=True)
    found = on_page(shown, table)
    assert found
    cells = pd.DataFrame(found["cells"]).set_index(["metric", "dataset", "method"])["mark"].sort_index()
    assert dict(cells["knn", "digits"]) == {"a": "*", "b": "°", "c": "", "d": ""}, "d lacks a replicate"
    assert dict(cells["knn", "svhn"]) == {"a": "", "b": "*", "c": "", "d": ""}
    assert set(cells["rank"]) == {""}, "a metric without a direction has no best value"
    assert (
        "* the best of its column, chosen on test images; ° not told apart from the best"
        in found["captions"]["interval"]
    )
