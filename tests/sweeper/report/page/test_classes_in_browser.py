"""Classes of a user's own images have their names on the page."""

import json
from pathlib import Path

import pytest

from sweeper.definition import Grid, Heatmap, Metric, Sweep, Table
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page import publish
from sweeper.storage.layout import class_names_path
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import browser, tab
from tests.sweeper.report.page.stored import BEGIN

AUROC = Metric("auroc_joint", "maximize")
SWEEP = Sweep(
    "own images",
    {"own": Grid({"method": "vje"}, {"beta": (0.5, 1.0), "normal_class": (0, 1, 2)})},
    figures=(
        Heatmap(AUROC, "beta", "normal_class"),
        Table("classes", ("normal_class",), (AUROC,)),
    ),
)
COLUMNS = Columns(
    {"method": str, "dataset": str, "image_digest": str, "beta": float, "normal_class": int}, ("auroc_joint",)
)


def fill(folder: Path) -> Store:
    store = Store(folder)
    store.prepare("own", COLUMNS)
    write_figures(store.files, "own", figures_of(SWEEP, "own"))
    store.files.write(class_names_path("own", "abc123"), json.dumps(["cat", "dog", "fox"]).encode())
    run = {"status": "finished", "cohort": "c", "cohort_size": 6, "epochs_run": 1, "seconds": 1.0, "preset": "own"}
    fixed = {**run, "changes": "", "started": BEGIN, "ended": BEGIN, "method": "vje", "dataset": "folder"}
    rows = [
        {**fixed, "trial_id": f"t{beta}{index}", "image_digest": "abc123", "beta": beta, "normal_class": index}
        | {"auroc_joint": beta / (1 + index)}
        for beta in (0.5, 1.0)
        for index in (0, 1, 2)
    ]
    store.write("own", "c", rows, COLUMNS)
    return store


@pytest.mark.slow
def test_classes_have_names(tmp_path: Path) -> None:
    store = fill(tmp_path)
    publish.write(store.files, "own")
    with browser() as chromium, tab(chromium) as page:
        page.open(f"file://{tmp_path}/reports/own.html")
        page.tab.wait_for_selector("#heatmap path[role=button]")
        page.tab.locator("#heatmap path[role=button]").nth(4).click()
        assert page.tab.inner_text("#heatmap [role=status]").startswith("beta=1, normal_class=dog; ")
        page.see_everything()
        assert page.tab.locator("#tables tbody th").all_inner_texts() == ["cat", "dog", "fox"]
        for condition, count in {"normal_class=fox": 2, "normal_class=2": 2, "dog": 2, "normal_class!=fox": 4}.items():
            page.tab.get_by_label("filter").fill(condition)
            assert page.tab.inner_text("#rows [role=status]").startswith(f"{count} of 6 trials"), condition
        assert "normal_classdog" in page.tab.text_content("#trials details")
        assert page.complaints == []
