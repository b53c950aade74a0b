"""The page in a real browser: opened from a file, without a network."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.report.heatmaps import pivot
from sweeper.report.page import publish
from sweeper.report.selections import labelled
from sweeper.results.sentences import Over, described
from sweeper.storage.layout import log_path
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored import ERROR, NAME, SELECTIONS, SWEEP, add_sample_grids, fill

pytestmark = pytest.mark.slow  # a browser starts, and the library of charts is bundled


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def store(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = fill(tmp_path_factory.mktemp("store"), repeat=4)
    add_sample_grids(store)
    for trial in load(NAME, store.files).query("status == 'failed'")["trial_id"]:
        store.files.write(log_path(NAME, trial), f"{ERROR}\n\x1b[2J".encode())
    publish.write(store.files, NAME)
    return store


@pytest.fixture(scope="module")
def rows(store: Store) -> pd.DataFrame:
    return load(NAME, store.files).set_index("trial_id")


@pytest.fixture
def page(chromium: Any, store: Store) -> Iterator[Watched]:
    """The page, which must not complain nor load anything whatever a test does with it."""
    with tab(chromium) as watched:
        address = f"file://{store.files.local_folder}/reports/{NAME}.html"
        watched.open(address)
        yield watched
        assert watched.complaints == []
        assert [url for url in watched.requests if not url.startswith(("data:", "blob:"))] == [address]


def cell_paths(page: Watched) -> Any:
    page.tab.wait_for_selector("#heatmap path[role=button]")
    return page.tab.locator("#heatmap path[role=button]")


def wait_for_cell(page: Watched, words: str) -> None:
    """Wait until the first cell of the heatmap says so."""
    says = "(words) => document.querySelector('#heatmap path[role=button]')?.getAttribute('aria-label').includes(words)"
    page.tab.wait_for_function(says, arg=words)


def drawn(page: Watched, section: str, field: str, data: str = "cells") -> list[Any]:
    """Values of a field in the data of a section's first chart."""
    chart = f"document.querySelector('#{section} .chart').vega"
    return page.tab.evaluate(f"() => {chart}.data('{data}').map((datum) => datum.{field})")


def numbers(page: Watched, selector: str) -> list[float]:
    texts = page.tab.locator(selector).evaluate_all("all => all.map(each => each.dataset.value)")
    return [math.nan if text == "" else float(text.replace("Infinity", "inf")) for text in texts]


def test_the_cells_are_the_means_of_the_rows(page: Watched, rows: pd.DataFrame) -> None:
    cells = pivot(rows, "auroc_joint", ("beta", "nu"), share=True)
    cell_paths(page)
    assert drawn(page, "heatmap", "mean") == pytest.approx(cells["mean"].tolist(), abs=1e-15)
    assert drawn(page, "heatmap", "x") == ["0.5", "3", "∞"] * 3
    for end in ("low", "high"):
        assert drawn(page, "heatmap", end) == pytest.approx(cells[end].tolist(), abs=1e-12)
    assert drawn(page, "heatmap", "iqm") == pytest.approx(cells["iqm"].tolist(), abs=1e-12)
    assert cell_paths(page).nth(6).get_attribute("aria-label").endswith("paper 0.7500")


def test_a_click_on_a_cell_shows_its_trials(page: Watched, rows: pd.DataFrame) -> None:
    cell_paths(page).nth(4).click()
    inside = rows[(rows["beta"] == 0.5) & (rows["nu"] == 3.0)]
    page.tab.wait_for_selector("#trials svg")
    shown = page.tab.locator("#trials tbody tr[data-trial]").evaluate_all("all => all.map((row) => row.dataset.trial)")
    assert sorted(shown) == sorted(inside.index) and len(shown) == 8
    assert numbers(page, "#trials tbody tr[data-trial] td:last-child") == inside["auroc_joint"].tolist()
    page.tab.get_by_role("button", name=shown[3], exact=True).first.click()
    pairs = page.tab.locator("#trials dl div:has([data-value])")
    names = pairs.locator("dt").all_text_contents()
    details = dict(zip(names, numbers(page, "#trials dl [data-value]"), strict=True))
    assert {name.removesuffix(" (%)") for name in details} >= {"loss", "knn_z", "auroc_joint", "seed"}
    for name, value in details.items():
        assert value == inside.loc[shown[3], name.removesuffix(" (%)")]


def test_the_keyboard_reaches_every_cell(page: Watched) -> None:
    cell_paths(page).first.focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        page.tab.keyboard.press(key)
    page.tab.wait_for_selector("#trials tbody tr")
    assert page.tab.inner_text("#heatmap [role=status]").startswith("beta=0.5, nu=3; ")
    page.tab.keyboard.press("ArrowUp")
    assert page.tab.evaluate("document.activeElement.getAttribute('aria-label')").startswith("beta=0, nu=3")


def test_metric_axes_and_filters_are_chosen(page: Watched, rows: pd.DataFrame) -> None:
    cell_paths(page)
    page.tab.get_by_label("metric", exact=True).select_option("loss")
    page.tab.get_by_label("seed", exact=True).select_option("3")
    wait_for_cell(page, "loss")
    wait_for_cell(page, "1 trial")
    cells = pivot(rows[rows["seed"] == 3], "loss", ("beta", "nu"))
    means = drawn(page, "heatmap", "mean")
    assert means == pytest.approx(cells["mean"].tolist(), abs=1e-15)
    page.tab.get_by_label("rows", exact=True).select_option("nu")
    wait_for_cell(page, "nu=0.5, beta=0")


def test_the_deviation_stands_beside_means_on_demand(page: Watched, rows: pd.DataFrame) -> None:
    cells = pivot(rows, "auroc_joint", ("beta", "nu"), share=True)
    cell_paths(page)
    low, high = cells.loc[0, ["low", "high"]]
    assert f"[{low:#.3g}, {high:#.3g}]" in page.tab.locator("#heatmap svg").text_content()
    assert f"auroc_joint: {described(cells, Over('seeds'))}." in page.tab.inner_text("#heatmap")
    page.tab.get_by_label("beside means", exact=True).select_option("deviation")
    page.tab.wait_for_function("() => document.querySelector('#heatmap').innerText.includes('± standard deviation')")
    assert f"auroc_joint: {described(cells, Over('seeds'), 'deviation')}." in page.tab.inner_text("#heatmap")
    assert f"± {cells['std'][0]:#.3g}" in page.tab.locator("#heatmap svg").text_content()
    page.see_everything()
    assert "mean ± standard deviation over 8 seeds" in page.tab.inner_text("#tables .caption")


def test_labels_of_selections_are_an_axis(page: Watched, rows: pd.DataFrame) -> None:
    cell_paths(page)
    page.tab.get_by_label("metric", exact=True).select_option("loss")
    page.tab.get_by_label("rows", exact=True).select_option("setting")
    wait_for_cell(page, "setting=no width")
    cells = pivot(labelled(rows, SELECTIONS), "loss", ("setting", "nu"))
    assert drawn(page, "heatmap", "y") == cells["setting"].tolist()
    assert [math.nan if mean is None else mean for mean in drawn(page, "heatmap", "mean")] == pytest.approx(
        cells["mean"].tolist(), abs=1e-15, nan_ok=True
    )
    cell_paths(page).nth(8).click()
    page.tab.wait_for_selector("#trials svg")
    assert page.tab.inner_text("#trials p >> nth=0") == "setting=beta 1, nu inf, nu=∞: 8 trials."
    page.tab.get_by_label("columns", exact=True).select_option("setting")
    wait_for_cell(page, "nu=0.5, setting=no width")


def test_curves_of_a_metric_in_percent_are_in_percent(page: Watched, rows: pd.DataFrame) -> None:
    cell_paths(page).nth(4).click()
    page.tab.wait_for_selector("#trials svg")
    page.tab.get_by_label("learning curve of").last.select_option("knn_z")
    page.tab.wait_for_function("() => document.querySelector('#trials .chart svg')?.textContent.includes('knn_z (%)')")
    inside = rows[(rows["beta"] == 0.5) & (rows["nu"] == 3.0)]
    assert sorted(drawn(page, "trials", "value", "points")) == pytest.approx(sorted(100 * inside["knn_z"]))


def test_all_trials_sorted_and_filtered(page: Watched, rows: pd.DataFrame) -> None:
    table = page.tab.locator("#rows table")
    head = table.locator("th button", has_text="loss")
    column = 1 + table.locator("th").evaluate_all("all => all.findIndex((head) => head.textContent === 'loss')")
    cells = f"#rows tbody td:nth-child({column})"
    head.click()
    assert numbers(page, cells) == rows["loss"].sort_values().tolist()[:50]
    head.click()
    assert numbers(page, cells) == rows["loss"].sort_values(ascending=False).tolist()[:50]
    assert table.locator("th[aria-sort=descending]").count() == 1
    page.tab.get_by_role("button", name="next").click()
    assert table.locator("tbody tr").count() == 22
    for text, count in {
        "beta=0.5 nu>=3": 16, "status=failed": 1, "nu=inf seed!=0 seed<3": 6, "width=null": 1, "trial00017": 1,
        "no such word": 0,
    }.items():  # fmt: skip
        page.tab.get_by_label("filter").fill(text)
        assert page.tab.inner_text("#rows [role=status]").startswith(f"{count} of 72 trials"), text


def test_every_number_of_the_download_equals_the_files(page: Watched, rows: pd.DataFrame, tmp_path: Path) -> None:
    page.tab.get_by_label("filter").fill("status=finished")
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as stream:
        saved = {row["trial_id"]: row for row in csv.DictReader(stream)}
    finished = rows[rows["status"] == "finished"]
    assert set(saved) == set(finished.index)
    for name in ("beta", "nu", "seed", "width", "auroc_joint", "knn_z", "loss", "seconds", "epochs_run"):
        read = [float(saved[trial][name] or "nan") for trial in finished.index]
        pd.testing.assert_series_equal(
            pd.Series(read), finished[name].astype("float64"), check_names=False, check_index=False, rtol=0, atol=0
        )


def test_no_text_of_the_download_is_a_formula(page: Watched) -> None:
    saved = """(texts) => {
      const column = (name, at) => ({ name, at });
      const columns = new Map([["=name", column("=name", (row) => texts[row])]]);
      const rows = { report: { columns }, shown: () => [...texts.keys()] };
      return Rows.prototype.csv.call(rows).trimEnd().split("\\r\\n");
    }"""
    texts = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", '=HYPERLINK("x")', "-1.5e-3", "plain", -2.5, None]
    assert page.tab.evaluate(saved, texts) == [
        *("'=name", "'=1+1", "'+cmd", "'-2+3", "'@SUM(A1)", "'\t=1", '"\'=HYPERLINK(""x"")"'),
        *("-1.5e-3", "plain", "-2.5"),
    ]


def test_text_of_a_row_is_never_html(page: Watched) -> None:
    page.see_everything()
    page.tab.get_by_label("filter").fill("status=failed")
    assert ERROR in page.tab.inner_text("#rows tbody")
    page.tab.locator("#rows tbody button").click()
    assert page.tab.inner_text("#trials .note") == ERROR
    page.tab.get_by_text("What it printed").click()
    assert page.tab.inner_text("#trials pre") == f"{ERROR}\n\\x1b[2J"
    log = page.tab.get_by_text("the whole log").get_attribute("href")
    assert log and log.startswith(f"../logs/sweep={NAME}/") and log.endswith(".txt")
    assert page.tab.inner_text("#header p >> nth=0") == SWEEP.about
    assert page.tab.evaluate("window.attacked") is None


def test_tables_trajectories_sample_grids_and_runs(page: Watched, rows: pd.DataFrame) -> None:
    page.see_everything()
    means = rows.groupby(["beta", "seed"])["knn_z"].mean().groupby("beta").mean().tolist()
    assert numbers(page, "#tables td.number") == pytest.approx(means, abs=1e-15)
    assert "paper 93.00 (" in page.tab.inner_text("#tables tbody tr:last-child")
    assert page.tab.locator("#tables thead th").all_inner_texts() == ["KL weight", "k-NN"]
    assert "one" in page.tab.locator("#tables tbody th").all_inner_texts()
    points = drawn(page, "trajectories", "count", "source_0")
    assert points == [24] * 6 + [23] * 3
    assert page.tab.locator("#sheets img").count() == 1
    assert page.tab.locator("#training svg").count() == 1
    assert float(page.tab.locator("#runs [data-value]").first.get_attribute("data-value")) == pytest.approx(
        rows["seconds"].sum()
    )


def test_a_long_name_and_a_long_number_do_not_overlap(page: Watched) -> None:
    pair = """() => {
      const number = el("span", { "data-value": "0" }, "-0.30837004405286345");
      const list = values([["val_a_metric_of_a_long_name", number], ["other", "1"]]);
      document.getElementById("page").append(el("div", { class: "sides" }, list, el("div")));
      return [...list.children].map((line) => line.scrollWidth <= line.clientWidth);
    }"""
    assert page.tab.evaluate(pair) == [True, True]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_axe_finds_nothing_serious_and_nothing_is_cut_off(chromium: Any, store: Store, width: int, dark: bool) -> None:
    with tab(chromium, width=width, dark=dark) as watched:
        watched.open(f"file://{store.files.local_folder}/reports/{NAME}.html")
        cell_paths(watched).first.click()
        watched.see_everything()
        assert watched.serious_findings() == []
        assert watched.tab.evaluate("document.documentElement.scrollWidth") <= width
        watched.tab.goto(f"file://{store.files.local_folder}/reports/index.html")
        assert watched.serious_findings() == []
        assert watched.tab.evaluate("document.documentElement.scrollWidth") <= width
        assert watched.tab.locator(".card svg rect").count() >= 5, "runs of one colour of 3 x 3 cells"
        watched.tab.get_by_role("link", name=NAME).click()
        watched.tab.wait_for_selector("#rows tbody tr")
        assert watched.complaints == []
