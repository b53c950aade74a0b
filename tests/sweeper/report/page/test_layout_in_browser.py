"""Where a page puts things, on a screen and on a phone: boxes, columns and names."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sweeper.report.formatting import DASH, MINUS
from sweeper.report.page import publish
from sweeper.storage.load import load
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored import NAME, fill

pytestmark = pytest.mark.slow  # a browser starts, and the library of charts is bundled

PHONE, SCREEN = 390, 1280
LONG = f"paper, beta={','.join(f'{number / 1000}' for number in range(40))} epochs=2 {'very' * 60}_long=1"
"""The name of a request in which a browser may break no line for hundreds of characters."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """72 trials in a request of a long name, of which the two latest are also another request."""
    store = fill(tmp_path_factory.mktemp("store"), repeat=4)
    trials = list(load(NAME, store.files)["trial_id"])
    write_request(store.files, NAME, RequestRows(LONG, "paper", trials))
    write_request(store.files, NAME, RequestRows("paper, beta=1", "paper", trials[-2:]))
    publish.write(store.files, NAME)
    return store


@pytest.fixture(params=[SCREEN, 800, PHONE])
def page(chromium: Any, store: Store, request: pytest.FixtureRequest) -> Iterator[Watched]:
    with tab(chromium, width=request.param) as watched:
        watched.open(f"file://{store.files.local_folder}/reports/{NAME}.html")
        watched.tab.wait_for_selector("#heatmap path[role=button]")
        yield watched
        assert watched.complaints == []


def box(page: Watched, selector: str, index: int = 0) -> dict[str, float]:
    """The place of an element in the window."""
    place = page.tab.locator(selector).nth(index).evaluate("(each) => each.getBoundingClientRect().toJSON()")
    found: dict[str, float] = place
    return found


def lines(page: Watched, selector: str) -> int:
    """The number of lines of a paragraph."""
    height = "(each) => each.clientHeight / parseFloat(getComputedStyle(each).lineHeight)"
    return round(page.tab.locator(selector).evaluate(height))


def test_a_page_is_as_wide_as_its_window_and_names_are_short(page: Watched) -> None:
    page.tab.locator("#heatmap path[role=button]").first.click()
    page.see_everything()
    wide = page.tab.viewport_size["width"]
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= wide
    assert page.tab.get_by_label("request", exact=True).input_value() == LONG, "that with most trials, not the latest"
    name = page.tab.inner_text("#state").split(": ")[0]
    assert name.startswith("paper, beta=0.0,0.001,…,0.039 (40 values) epochs=2 ") and lines(page, "#state") <= 6
    page.tab.get_by_text("whole name").click()
    assert page.tab.inner_text("#header details p") == LONG
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= wide
    page.tab.goto(page.tab.url.replace(NAME, "index"))
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= wide


def test_the_pointer_s_text_leaves_its_cell_free(page: Watched) -> None:
    cells = page.tab.locator("#heatmap path[role=button]")
    for index in range(cells.count()):
        cells.nth(index).hover()
        page.tab.wait_for_function(
            "(text) => document.querySelector('.tip').textContent.startsWith(text)",
            arg=cells.nth(index).get_attribute("aria-label")[:8],
        )
        tip, cell = box(page, ".tip"), box(page, "#heatmap path[role=button]", index)
        beside = tip["left"] >= cell["right"] or tip["right"] <= cell["left"]
        assert beside or tip["top"] >= cell["bottom"] or tip["bottom"] <= cell["top"], (tip, cell)
        assert tip["left"] >= 0 and tip["right"] <= page.tab.viewport_size["width"], tip
        assert tip["top"] >= 0 and tip["bottom"] <= page.tab.viewport_size["height"], tip


def test_a_wide_table_keeps_its_first_column(page: Watched) -> None:
    page.see_everything()
    page.tab.get_by_label("all columns").check()
    region = "#rows .scroll"
    before = box(page, f"{region} tbody tr:first-child td:nth-child(2)")
    page.tab.locator(region).evaluate("(each) => { each.scrollLeft = 300; }")
    for row, cell in (("thead tr", "th"), ("tbody tr:nth-child(7)", "td")):
        assert box(page, f"{region} {row} {cell}:first-child")["left"] == box(page, region)["left"]
    assert box(page, f"{region} tbody tr:first-child td:nth-child(2)")["left"] == before["left"] - 300
    first = page.tab.locator(f"{region} tbody tr:nth-child(7) td:first-child")
    first.scroll_into_view_if_needed()
    place = box(page, f"{region} tbody tr:nth-child(7) td:first-child")
    on_top = "(each, [x, y]) => each.contains(document.elementFromPoint(x, y))"
    assert first.evaluate(on_top, [place["left"] + 3, place["top"] + 5]), "the others scroll below it"


def test_the_caption_of_a_table_does_not_scroll_with_it(page: Watched) -> None:
    page.see_everything()
    caption, wide = box(page, "#tables .caption"), page.tab.viewport_size["width"]
    assert caption["left"] >= 0 and caption["right"] <= wide and caption["right"] - caption["left"] > 300
    assert lines(page, "#tables .caption") <= 12


def decimals(text: str) -> int:
    return len(text.partition(".")[2])


def test_the_numbers_of_a_column_have_the_same_decimals(page: Watched) -> None:
    page.see_everything()
    heads = page.tab.locator("#rows thead th").all_inner_texts()
    for place, head in enumerate(heads, 1):
        texts = page.tab.locator(f"#rows tbody td.number:nth-child({place})").all_inner_texts()
        known = [text for text in texts if text not in (DASH, "∞") and "e" not in text]
        assert len({*map(decimals, known)}) <= 1, (head, known)
        if head in ("auroc_joint", "loss"):
            assert decimals(known[0]) == 4
    cells = page.tab.locator("#tables tbody td.number").all_inner_texts()
    found = [
        *itertools.chain.from_iterable(re.findall(r"\d+(?:\.\d+)?(?! of|\d)", cell.split("\n")[0]) for cell in cells)
    ]
    assert len(found) == 9 and {*map(decimals, found)} == {2}, "a mean and the ends of its interval"


@pytest.mark.parametrize("page", [SCREEN], indirect=True)
def test_numbers_as_text(page: Watched) -> None:
    def texts(*values: float | None, percent: bool = False) -> list[str]:
        write = "([values, percent]) => values.map(columnText(values, percent))"
        found: list[str] = page.tab.evaluate(write, [values, percent])
        return found

    assert texts(1, 20, 300) == ["1", "20", "300"]
    assert texts(0.5, 1, 10, None) == ["0.5", "1.0", "10.0", DASH]
    assert texts(0.95, 1, 0.07, percent=True) == ["95", "100", "7"]
    assert texts(0.1234567, 0.9, 0.05) == ["0.1235", "0.9000", "0.0500"]
    assert texts(0.123456, 0.9765432, percent=True) == ["12.35", "97.65"]
    assert texts(0.0123456, 0.00071234, 0.0034567) == ["1.235e-2", "7.123e-4", "3.457e-3"]
    assert texts(1e-6, 0.001, 0.1) == ["1e-6", "1e-3", "1e-1"]
    assert texts(5.3318, -5.4321, 1.5e9, 1e-7) == ["5.332", f"{MINUS}5.432", "1.500e+9", "1.000e-7"]


def test_a_small_heatmap_is_large_enough_and_a_large_one_fits(page: Watched) -> None:
    wide = page.tab.viewport_size["width"]
    cell, chart = box(page, "#heatmap path[role=button]"), box(page, "#heatmap svg")
    width, height = cell["right"] - cell["left"], cell["bottom"] - cell["top"]
    assert width >= (140 if wide > PHONE else 75) and width / 3 < height < width
    assert chart["right"] <= wide
    page.tab.get_by_label("columns", exact=True).select_option("seed")
    page.tab.wait_for_function("() => document.querySelectorAll('#heatmap path[role=button]').length === 24")
    assert box(page, "#heatmap svg")["right"] <= wide
