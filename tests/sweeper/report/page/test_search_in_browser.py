"""The page of a search in a real browser."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.definition import Metric
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page import publish
from sweeper.storage.load import load
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab
from tests.sweeper.report.page.stored_search import COLUMNS, NAME, OBJECTIVE, SWEEP, fill

pytestmark = pytest.mark.slow  # a browser starts, and the library of charts is bundled
BEST = "#search h3:has-text('Best trials') + div tbody"
"""The table of the best trials of a study."""


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


def chart(page: Watched, heading: str, field: str, data: str) -> list[Any]:
    box = page.tab.locator(f"#search h3:has-text('{heading}') + .chart")
    return box.evaluate(f"(box) => box.vega.data('{data}').map((datum) => datum.{field})")


def best(page: Watched) -> list[str]:
    return page.tab.locator(f"{BEST} button").all_text_contents()


def test_history_importance_and_best_trials_of_a_study(page: Watched, complete: pd.DataFrame) -> None:
    first = complete[complete["study"] == "normal_class=0"]
    assert best(page) == first["trial_id"].tolist()[:10]
    reached = chart(page, "History", "best", "trials")
    assert len(reached) == 30 and reached[-1] == pytest.approx(100 * first["val_knn_z"].max())
    assert reached == sorted(reached)
    assert "n = 23 complete trials" in page.tab.inner_text("#search h3:has-text('Importance')")
    assert chart(page, "Importance", "share", "shares") == [0.75, 0.25]


def test_all_studies_are_in_one_chart_and_one_table(page: Watched, complete: pd.DataFrame) -> None:
    best_of = complete.groupby("study")["val_knn_z"].max().sort_values(ascending=False)
    studies, reached = (chart(page, "Best value over trials", field, "points") for field in ("study", "best"))
    for study in best_of.index:
        own = [value for name, value in zip(studies, reached, strict=True) if name == study]
        assert own == sorted(own) and own[-1] == pytest.approx(100 * best_of[study])
    table = page.tab.locator("#search h3:has-text('Best trial of each study') + div tbody")
    assert table.locator("th").all_inner_texts() == best_of.index.tolist()
    assert table.locator("button").all_inner_texts() == [
        complete[complete["study"] == study]["trial_id"].iloc[0] for study in best_of.index
    ]
    assert table.locator("tr").first.inner_text().startswith(f"{best_of.index[0]}\t{100 * best_of.iloc[0]:.2f}\t")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 1000


def test_another_study(page: Watched, complete: pd.DataFrame) -> None:
    page.tab.get_by_label("study", exact=True).select_option("normal_class=1")
    second = complete[complete["study"] == "normal_class=1"]
    assert best(page) == second["trial_id"].tolist()[:10]
    assert page.tab.locator("#search h3:has-text('Importance')").count() == 0, "those of another study are not shown"
    page.tab.locator(f"{BEST} button").first.click()
    assert second["trial_id"].iloc[0] in page.tab.inner_text("#trials h3 >> nth=0")


def test_every_complete_trial_is_a_line(page: Watched, complete: pd.DataFrame) -> None:
    first = complete[complete["study"] == "normal_class=0"]
    page.tab.wait_for_selector("#search h3:has-text('Parallel') + .chart svg")
    axes = chart(page, "Parallel", "axis", "lines")
    assert sorted(axes) == sorted(["lr", "encoder", "val_knn_z (%)"] * len(first))
    drawn = "(box) => [...box.querySelectorAll('g.mark-line path')].map((path) => path.getAttribute('d'))"
    for path in page.tab.locator("#search h3:has-text('Parallel') + .chart").evaluate(drawn):
        across = [float(point.split(",")[0]) for point in re.findall("[ML]([^ML]+)", path)]
        assert across == sorted(across), "a line goes from each axis to the next"
    assert min(chart(page, "Parallel", "place", "lines")) == 0 and max(chart(page, "Parallel", "place", "lines")) == 1


def tip(page: Watched, heading: str, mark: str) -> str:
    """The text at the pointer on the first of these marks of a chart."""
    box = page.tab.locator(f"#search h3:has-text('{heading}') + .chart")
    box.locator("svg").wait_for()
    box.scroll_into_view_if_needed()
    place = """(box, mark) => {
      const path = box.querySelector(mark);
      const { left, top, width, height } = path.getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    }"""
    page.tab.mouse.move(0, 0)
    page.tab.mouse.move(*box.evaluate(place, mark), steps=3)
    page.tab.wait_for_selector(".tip", state="visible")
    return str(page.tab.inner_text(".tip"))


def test_numbers_at_the_pointer_are_short_and_in_percent(chromium: Any, tmp_path: Path) -> None:
    store = fill(tmp_path)
    objectives = OBJECTIVE, Metric("knn_z", "maximize", percent=True)
    write_figures(store.files, NAME, replace(figures_of(SWEEP, "paper"), objectives=objectives))
    publish.write(store.files, NAME)
    short = r" \(%\): \d{1,2}\.\d{1,3}(\n|$)"
    with tab(chromium) as page:
        page.open(f"file://{tmp_path}/reports/{NAME}.html")
        page.tab.locator("#search").scroll_into_view_if_needed()
        texts = [
            tip(page, "History", "g.layer_1_marks path"),
            tip(page, "Objectives against", "g.layer_1_marks path"),
            tip(page, "Parallel", "g.mark-symbol.role-mark path"),
        ]
        for text in texts:
            assert re.search(f"val_knn_z{short}", text) and not re.search(r"[1-9][0-9.]{6}", text), texts
        assert re.search(f"(^|\n)knn_z{short}", texts[1]), texts[1]
        assert page.complaints == []


@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(page: Watched, width: int) -> None:
    page.tab.set_viewport_size({"width": width, "height": 900})
    page.tab.wait_for_timeout(500)  # the page is drawn anew for another width
    page.see_everything()
    assert page.serious_findings() == []


def test_a_proposal_of_several_trials_is_one_point_with_their_mean(chromium: Any, store: Store, tmp_path: Path) -> None:
    """Seeds of ten proposals. The first trial of each is the best, and of proposal 3 one diverged."""
    rows, seeds = load(NAME, store.files), list[pd.DataFrame]()
    first = rows[(rows["study"] == "normal_class=0") & (rows["number"] < 10)]
    for seed in range(3):
        own = first.assign(trial_id=first["trial_id"] + f"s{seed}", status="finished", seed=seed)
        seeds.append(own.assign(val_knn_z=0.5 + 0.01 * own["number"] - 0.02 * seed))
    seeds[2].loc[seeds[2]["number"] == 3, ["status", "val_knn_z"]] = ["diverged", None]
    replicated = Store(tmp_path)
    write_figures(replicated.files, NAME, figures_of(SWEEP, "paper"))
    columns = Columns({**COLUMNS.hyperparameters, "seed": int}, COLUMNS.metrics)
    replicated.prepare(NAME, columns)
    replicated.write(NAME, "c", pd.concat(seeds).drop(columns="sweep").to_dict("records"), columns)
    publish.write(replicated.files, NAME)
    with tab(chromium, width=1000) as watched:
        watched.open(f"file://{tmp_path}/reports/{NAME}.html")
        watched.tab.wait_for_selector("#search svg >> nth=1")
        assert sorted(chart(watched, "History", "number", "trials")) == list(range(10))
        assert chart(watched, "History", "status", "trials").count("diverged") == 1
        text = watched.tab.locator(f"{BEST} tr").first.inner_text()
        half = 4.302653 * 0.02 / 3**0.5 / (0.57 * 0.43)  # of the logit, by the delta method
        low, high = (100 / (1 + math.exp(-(math.log(0.57 / 0.43) + sign * half))) for sign in (-1, 1))
        assert f"57.00 [{low:.2f}, {high:.2f}]" in text, text
        assert [name[-2:] for name in best(watched)[:3]] == ["s0", "s1", "s2"]
        assert (
            "10 proposals of 3 trials each, 9 trained to the end" in watched.tab.locator("#search p").first.inner_text()
        )
