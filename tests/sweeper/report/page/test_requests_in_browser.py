"""What the page shows of a request: its trials alone, the frame of its best setting, and the axes of its definition."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.definition import Grid, Heatmap, Metric, Sweep, Table
from sweeper.definition.metric import SPREADS
from sweeper.report.figures import figures_of
from sweeper.report.heatmaps import heading, pivot
from sweeper.report.kinds import write_figures
from sweeper.report.page import publish
from sweeper.results.sentences import averaged_over
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored import BEGIN

pytestmark = pytest.mark.slow  # a browser starts, and the library of charts is bundled

AUROC = Metric("auroc_joint", "maximize")
AXES = {"beta": (0.5, 1.0, 2.0), "nu": (1.0, math.inf), "normal_class": (0, 1)}
SWEEP = Sweep("best", {"paper": Grid({"method": "vje"}, AXES)}, figures=(Heatmap(AUROC, "beta", "nu"),))
COLUMNS = Columns(
    {"method": str, "dataset": str, "beta": float, "nu": float, "normal_class": int, "decay": float},
    ("auroc_joint", "val_auroc_joint"),
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


def row(trial: str, auroc: float | None, **own: Any) -> dict[str, Any]:
    run = {"cohort": "c", "cohort_size": 12, "epochs_run": 1, "seconds": 1.0, "preset": "paper", "changes": ""}
    status = "finished" if auroc is not None else "failed"
    fixed = {"method": "vje", "dataset": "digits", "nu": 1.0, "decay": 0.1}
    times = {"started": BEGIN, "ended": BEGIN}
    return {**run, **times, **fixed, "trial_id": trial, "status": status, "auroc_joint": auroc, **own}


def write(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    requests: Mapping[str, Sequence[str]],
    sweep: Sweep = SWEEP,
    columns: Columns = COLUMNS,
) -> str:
    """Write a store with these rows and requests, and its page. Returns the address of the page."""
    store = Store(folder)
    store.prepare("best", columns)
    write_figures(store.files, "best", figures_of(sweep, "paper"))
    store.write("best", "c", rows, columns)
    for request, trials in requests.items():
        write_request(store.files, "best", RequestRows(request, "paper", trials))
    publish.write(store.files, "best")
    return f"file://{folder}/reports/best.html"


def framed(page: Watched) -> list[str]:
    """The cells with a frame, as a screen reader has them."""
    page.tab.wait_for_selector("#heatmap path[role=button]")
    chart = "document.querySelector('#heatmap .chart').vega"
    return page.tab.evaluate(f"() => {chart}.data('cells').filter((cell) => cell.best).map((cell) => cell.words)")


def test_the_frame_is_at_the_setting_of_the_sentence(chromium: Any, tmp_path: Path) -> None:
    rows = [
        row("a0", 0.90, beta=0.5, normal_class=0),
        row("a1", 0.80, beta=0.5, normal_class=1),
        row("b0", 0.99, beta=1.0, normal_class=0),  # the best mean, but of the easy class alone
        row("b1", None, beta=1.0, normal_class=1),
        row("c0", 0.89, beta=2.0, normal_class=0),
        row("c1", 0.79, beta=2.0, normal_class=1),
    ]
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}))
        (cell,) = framed(page)
        (sentence,) = [text for text in page.tab.locator("#header p").all_inner_texts() if text.startswith("best ")]
        assert cell.startswith("beta=0.5, nu=1") and "at beta=0.5" in sentence
        assert f"Framed: {sentence}." in page.tab.locator("#heatmap p").all_inner_texts()
        page.tab.get_by_label("normal_class", exact=True).select_option("0")
        page.tab.wait_for_function(
            "() => document.querySelector('#heatmap path[role=button]').getAttribute('aria-label').includes('1 trial')"
        )
        assert [words.split(", nu")[0] for words in framed(page)] == ["beta=0.5"], "of the request, also if filtered"
        assert page.complaints == []


@pytest.mark.parametrize(
    ("classes", "seeds", "random", "over"),
    [(2, 1, (), "trials"), (1, 3, (), "trials"), (2, 3, (), "trials"), (3, 2, ("normal_class",), "runs")],
)
def test_the_caption_is_that_of_the_picture(
    chromium: Any, tmp_path: Path, classes: int, seeds: int, random: tuple[str, ...], over: str
) -> None:
    """Of classes, of seeds, of both, and of classes that are drawn at random."""
    rows = [
        row(f"t{beta}{nu}{each}{seed}", (beta + each + nu / 9 + seed * beta) / 9, beta=beta, nu=nu, normal_class=each)
        | {"seed": seed}
        for beta in (0.5, 1.0)
        for nu in (1.0, 2.0)
        for each in range(classes)
        for seed in range(seeds)
    ]
    sweep, columns = (
        replace(SWEEP, random=random, over=over),
        Columns({**COLUMNS.hyperparameters, "seed": int}, COLUMNS.metrics),
    )
    frame = pd.DataFrame(rows)
    cells = pivot(frame, "auroc_joint", ("beta", "nu"), sweep.repeats, share=True)
    nouns = averaged_over(frame, ("beta", "nu"), sweep.repeats, over)
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}, sweep, columns))
        page.tab.wait_for_selector("#heatmap path[role=button]")
        for spread in SPREADS:
            page.tab.get_by_label("beside means", exact=True).select_option(spread)
            expected = heading(cells, "auroc_joint", nouns, spread)
            page.tab.wait_for_function(
                "(text) => document.querySelector('#heatmap').innerText.includes(text)", arg=f"{expected}."
            )
        assert page.complaints == []


def test_trials_of_an_earlier_definition_are_in_no_cell_of_the_request(chromium: Any, tmp_path: Path) -> None:
    classes = (0, 1)
    new = [row(f"n{beta}{each}", beta / 10, beta=beta, normal_class=each) for beta in (0.5, 1.0) for each in classes]
    old = [row(f"o{beta}{each}", 0.9, beta=beta, normal_class=each, decay=0.5) for beta in (1.0,) for each in classes]
    with tab(chromium) as page:
        page.open(write(tmp_path, [*old, *new], {"paper": [row["trial_id"] for row in new]}))
        cells = page.tab.locator("#heatmap path[role=button]")
        cells.first.wait_for()
        assert "2 trials" in cells.nth(1).get_attribute("aria-label"), cells.nth(1).get_attribute("aria-label")
        assert "paper: 4 of 4 trials" in page.tab.inner_text("#state")
        page.tab.get_by_label("request", exact=True).select_option("paper, earlier definition")
        page.tab.wait_for_function("() => document.querySelector('#state').textContent.includes('2 trials')")
        assert page.complaints == []


def test_what_only_the_request_varies_is_not_shown_first(chromium: Any, tmp_path: Path) -> None:
    rows = [
        row(f"t{beta}{decay}{each}", beta / 10, beta=beta, decay=decay, normal_class=each)
        for beta in (0.5, 1.0)
        for decay in (0.1, 0.5, 0.9)
        for each in (0, 1)
    ]
    name = "paper, decay=0.1,0.5,0.9"
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {name: [row["trial_id"] for row in rows]}))
        first = page.tab.locator("#heatmap path[role=button]").first.get_attribute("aria-label")
        assert first.startswith("beta=0.5, nu=1; ") or first.startswith("beta=0.5, nu=1, "), first
        heads = page.tab.locator("#rows thead th").all_inner_texts()
        assert [head for head in heads if head in AXES or head == "decay"] == ["beta", "normal_class", "decay"]
        assert page.complaints == []


def test_separators_in_names_break_no_chart(chromium: Any, tmp_path: Path) -> None:
    rows = [
        row(f"t{beta}{index}", beta / 10, beta=beta, method=method)
        for beta in (0.5, 1.0)
        for index, method in enumerate(("a\u2028b", "a\u2029b"))
    ]
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}))
        page.tab.wait_for_selector("#heatmap path[role=button]")
        page.tab.get_by_label("columns", exact=True).select_option("method")
        page.tab.wait_for_function(r"() => document.querySelector('#heatmap .chart').textContent.includes('a\\u2028b')")
        assert page.tab.locator("#heatmap path[role=button]").count() == 4
        assert page.complaints == []


def test_a_filter_that_selects_nothing_says_why(chromium: Any, tmp_path: Path) -> None:
    rows = [row(f"t{beta}", beta / 3, beta=beta) for beta in (0.5, 1.0)]
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}))
        for text, reason in {
            "betta=1": "there is no column 'betta'; there are: trial_id, status, beta",
            "beta=0.7": "no trial has beta=0.7; beta has: 0.5, 1",
            "nowhere": "no trial has the text 'nowhere'",
            "beta=1 auroc_joint<0.2": "each condition holds for some trials, but not all for one",
        }.items():
            page.tab.get_by_label("filter").fill(text)
            assert page.tab.inner_text("#rows [role=status]").startswith(f"0 of 2 trials: {reason}"), text
        assert page.complaints == []


def test_numbers_of_a_trial_are_short(chromium: Any, tmp_path: Path) -> None:
    rows = [row(f"t{beta}", beta / 3, beta=beta) for beta in (0.5, 1.0)]
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}))
        page.tab.locator("#rows").get_by_role("button", name="t0.5", exact=True).click()
        value = page.tab.locator("#trials dl [data-value='0.16666666666666666']")
        value.wait_for()
        assert value.all_inner_texts() == ["0.1667"]
        page.tab.locator("#trials summary").evaluate_all("all => all.forEach((each) => each.click())")
        page.see_everything()
        text = page.tab.inner_text("#page")
        assert text.count("0.1667") >= 2 and "0.16666" not in text, "in the details and in the table of all trials"
        assert page.complaints == []


def test_the_best_setting_of_each_data_set_is_framed(chromium: Any, tmp_path: Path) -> None:
    rows = [
        row(f"{dataset}{beta}{each}", auroc + each / 100, beta=beta, dataset=dataset, normal_class=each)
        for dataset, beta, auroc in (
            ("digits", 0.5, 0.9),
            ("digits", 1.0, 0.8),
            ("mnist", 0.5, 0.6),
            ("mnist", 1.0, 0.7),
        )
        for each in (0, 1)
    ]
    with tab(chromium) as page:
        page.open(write(tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}))
        assert [words.split(", nu")[0] for words in framed(page)] == ["beta=0.5", "beta=1"]
        said = [text for text in page.tab.locator("#header p").all_inner_texts() if text.startswith("best ")]
        assert (
            ["digits" in said[0], "at beta=0.5" in said[0]]
            == ["mnist" in said[1], "at beta=1" in said[1]]
            == [True] * 2
        )
        page.tab.get_by_label("dataset", exact=True).select_option("mnist")
        page.tab.wait_for_function(
            "() => document.querySelector('#heatmap path[role=button]').getAttribute('aria-label').includes('2 trials')"
        )
        assert [words.split(", nu")[0] for words in framed(page)] == ["beta=1"]
        assert page.complaints == []


def test_figures_are_side_by_side_on_a_wide_screen_alone(chromium: Any, tmp_path: Path) -> None:
    tables = tuple(Table(f"by_{name}", (name,), (AUROC,)) for name in ("beta", "normal_class"))
    rows = [row(f"t{beta}{each}", beta / 3, beta=beta, normal_class=each) for beta in (0.5, 1.0) for each in (0, 1)]
    address = write(
        tmp_path, rows, {"paper": [row["trial_id"] for row in rows]}, replace(SWEEP, figures=(*SWEEP.figures, *tables))
    )
    for width, beside in ((1920, True), (1280, False)):
        with tab(chromium, width=width) as page:
            page.open(address)
            page.tab.locator("#heatmap path[role=button]").first.click()
            page.tab.wait_for_selector("#trials tbody tr")
            heatmap, trials = (page.tab.locator(name).bounding_box() for name in ("#heatmap", "#trials"))
            assert (heatmap["x"] + heatmap["width"] <= trials["x"]) is beside
            assert (heatmap["y"] + heatmap["height"] <= trials["y"]) is not beside
            page.see_everything()
            first, second = (page.tab.locator("#tables > div > *").nth(index).bounding_box() for index in (0, 1))
            assert first["y"] == second["y"] and first["x"] + first["width"] <= second["x"], (
                "tables are as wide as needed"
            )
            right = max(trials["x"] + trials["width"], heatmap["x"] + heatmap["width"])
            assert right > 0.95 * width and page.tab.evaluate("document.documentElement.scrollWidth") <= width
            assert page.complaints == []
