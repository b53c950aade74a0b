"""The page of a search in a real browser."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from sweeper.report.page import publish
from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored_search import NAME, fill

pytestmark = pytest.mark.slow  # a browser starts, and the library of charts is bundled


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = fill(tmp_path_factory.mktemp("store"))
    publish.write(store.files, NAME)
    return store


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def page(chromium: Any, store: Store) -> Iterator[Watched]:
    with tab(chromium, width=1000) as watched:
        watched.open(f"file://{store.files.local_folder}/reports/{NAME}.html")
        watched.tab.wait_for_selector("#search svg >> nth=2")
        yield watched
        assert watched.complaints == []


@pytest.fixture(scope="module")
def complete(store: Store) -> pd.DataFrame:
    """The trials that were trained to the end, best first."""
    rows = load(NAME, store.files)
    return rows[rows["status"] == "finished"].sort_values("val_knn_z", ascending=False)


def chart(page: Watched, heading: str, field: str, data: str = "source_0") -> list[Any]:
    box = page.tab.locator(f"#search h3:has-text('{heading}') + .chart")
    return box.evaluate(f"(box) => box.vega.data('{data}').map((datum) => datum.{field})")


def best(page: Watched) -> list[str]:
    return page.tab.locator("#search tbody button").all_text_contents()


def test_history_importance_and_best_trials_of_a_study(page: Watched, complete: pd.DataFrame) -> None:
    first = complete[complete["study"] == "normal_class=0"]
    assert best(page) == first["trial_id"].tolist()[:10]
    reached = chart(page, "History", "best")
    assert len(reached) == 30 and reached[-1] == pytest.approx(100 * first["val_knn_z"].max())
    assert reached == sorted(reached)
    assert "n = 23 complete trials" in page.tab.inner_text("#search h3:has-text('Importance')")
    assert chart(page, "Importance", "share") == [0.75, 0.25]


def test_another_study(page: Watched, complete: pd.DataFrame) -> None:
    page.tab.get_by_label("study", exact=True).select_option("normal_class=1")
    second = complete[complete["study"] == "normal_class=1"]
    assert best(page) == second["trial_id"].tolist()[:10]
    assert page.tab.locator("#search h3:has-text('Importance')").count() == 0, "those of another study are not shown"
    page.tab.locator("#search tbody button").first.click()
    assert second["trial_id"].iloc[0] in page.tab.inner_text("#trials h3 >> nth=0")


def test_every_complete_trial_is_a_line(page: Watched, complete: pd.DataFrame) -> None:
    first = complete[complete["study"] == "normal_class=0"]
    page.tab.wait_for_selector("#search h3:has-text('Parallel') + .chart svg")
    axes = chart(page, "Parallel", "axis", "lines")
    assert sorted(axes) == sorted(["lr", "encoder", "val_knn_z"] * len(first))
    assert min(chart(page, "Parallel", "place", "lines")) == 0 and max(chart(page, "Parallel", "place", "lines")) == 1


@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(page: Watched, width: int) -> None:
    page.tab.set_viewport_size({"width": width, "height": 900})
    page.tab.wait_for_timeout(500)  # the page is drawn anew for another width
    page.see_everything()
    assert page.serious_findings() == []
