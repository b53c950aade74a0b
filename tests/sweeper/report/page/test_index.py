"""The list of all sweeps: a card for each, from the summary that its page left."""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeper.definition import Heatmap, Metric
from sweeper.report.figures import figures_of
from sweeper.report.heatmaps import pivot
from sweeper.report.kinds import write_figures
from sweeper.report.page import document, publish
from sweeper.report.page.contents import MAX_CARD_SIDE, Summary, Thumbnail, read_summary, write_summary
from sweeper.report.page.publish import VIRIDIS, list_of_sweeps
from sweeper.storage.files import Files
from sweeper.storage.layout import request_path, summary_path
from sweeper.storage.load import load
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.store import StoreReader
from tests.cases import for_each
from tests.sweeper.report.page.stored import NAME, SWEEP, fill

COUNTED = "17 finished, 1 failed"


@pytest.fixture(autouse=True)
def small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "compressed_library", lambda: gzip.compress(b"(() => {})();", mtime=0))


def cards(text: bytes) -> dict[str, str]:
    """Name of a sweep -> its card, in the order of the list."""
    found = re.findall(r"<article .*?</article>", text.decode(), re.DOTALL)
    return {re.sub("<.*?>", "", card.split("</h2>")[0]): card for card in found}


def summary_of(store: Any) -> Summary:
    known = read_summary(store.files, NAME)
    assert known is not None
    return known


def test_a_card_says_how_far_the_latest_request_is_and_what_is_best(tmp_path: Path) -> None:
    store = fill(tmp_path)
    trials = [*load(NAME, store.files)["trial_id"], "a", "b"]
    write_request(store.files, NAME, RequestRows("paper, <i>", "paper", trials))
    publish.write(store.files, NAME)
    card = cards((tmp_path / "reports/index.html").read_bytes())[NAME]
    assert '<a href="grid.html">grid</a>' in card and "a grid of &lt;b&gt;three&lt;/b&gt; axes" in card
    assert "paper, &lt;i&gt;: 18 of 20 trials" in card and '<progress aria-label="trials that ended" max="20"' in card
    assert re.search(r"<p>best auroc_joint so far: 0\.\d+ \(mean over 2 seeds\) at beta=", card)
    assert f"{COUNTED}; last result 2026-01-01 00:00 UTC" in card
    store.files.delete(request_path(NAME, "paper, <i>"))
    write_request(store.files, NAME, RequestRows("all", "paper", trials[:18]))
    publish.write(store.files, NAME)
    assert "all: 18 of 18 trials" in (card := cards(list_of_sweeps(store.files))[NAME]) and "<progress" not in card


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_best_mean_of_the_first_heatmap_is_brightest(tmp_path: Path, direction: Any) -> None:
    store = fill(tmp_path, repeat=4)
    heatmap = Heatmap(Metric("loss" if direction == "minimize" else "auroc_joint", direction), "beta", "nu")
    write_figures(store.files, NAME, figures_of(replace(SWEEP, figures=(heatmap,)), "paper"))
    publish.write(store.files, NAME)
    shown = summary_of(store).heatmap
    assert shown is not None
    means = pivot(load(NAME, store.files), heatmap.metric.name, heatmap.axes)["mean"].to_numpy().reshape(3, 3)
    order = np.argsort(means if direction == "maximize" else -means, axis=None)
    assert order.tolist() == np.argsort(np.array(shown.shades, float), axis=None).tolist()
    assert shown.caption.endswith(f"beta by nu; bright is {'higher' if direction == 'maximize' else 'lower'}")


def test_the_drawing_has_every_cell_in_its_place(tmp_path: Path) -> None:
    store = fill(tmp_path)
    shades: list[list[float | None]] = [[0.0, 0.0, None], [1.0, 0.5, 0.5]]
    write_summary(store.files, NAME, Summary("", {}, heatmap=Thumbnail("a & b", shades)))
    drawing = cards(list_of_sweeps(store.files))[NAME]
    rects = re.findall(r'<rect x="(\d)" y="(\d)" width="(\d)" height="1" (.*?)/>', drawing)
    assert rects == [
        *[("0", "0", "2", f'fill="{VIRIDIS[0]}"'), ("2", "0", "1", 'class="empty"')],
        *[("0", "1", "1", f'fill="{VIRIDIS[-1]}"'), ("1", "1", "2", f'fill="{VIRIDIS[8]}"')],
    ]
    assert 'aria-label="heatmap: a &amp; b" width="102" height="44" viewBox="0 0 3 2"' in drawing


def test_no_row_is_read_for_a_sweep_with_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    publish.write(store.files, NAME)
    read = list[str]()

    def read_intact(reader: StoreReader, folder: str, columns: object = None) -> dict[str, object]:
        read.append(folder)
        return {}

    monkeypatch.setattr(StoreReader, "read_intact", read_intact)
    (tmp_path / "trials/sweep=older").mkdir()
    assert list(cards(list_of_sweeps(store.files))) == [NAME, "older"]
    assert read == ["trials/sweep=older"]


def test_the_sweep_with_the_latest_result_is_first_and_old_ones_stay_listed(tmp_path: Path) -> None:
    store = fill(tmp_path)
    for name, last in {"a": 2e9, "b": 3e9, "c": None}.items():
        fill(tmp_path, name=name)
        write_summary(store.files, name, Summary("", {}, last=last))
    listed = cards(list_of_sweeps(store.files))
    assert list(listed) == ["b", "a", "c", NAME]
    assert COUNTED in listed[NAME] and "&lt;b&gt;three" in listed[NAME] and "<svg" not in listed[NAME]
    assert "no trial has ended yet" in listed["c"]


def test_what_is_no_sweep_of_ours_does_not_hide_the_others(tmp_path: Path) -> None:
    store = fill(tmp_path)
    (tmp_path / "trials/sweep=<i>name").mkdir(parents=True)
    (tmp_path / "trials/sweep=foreign").mkdir(parents=True)
    pd.DataFrame({"trial_id": ["a"], "status": ["<i>"]}).to_parquet(tmp_path / "trials/sweep=foreign/a.parquet")
    listed = cards(list_of_sweeps(store.files))
    assert list(listed) == ["foreign", "grid"] and not any("<i>" in card for card in listed.values())
    assert re.search(r'<p class="note">.*(another schema|damaged)', listed["foreign"])
    assert COUNTED in listed["grid"]


def changed(**own: Any) -> Callable[[bytes], bytes]:
    return lambda data: json.dumps({**json.loads(data), **own}).encode()


ODD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "deep": lambda data: b"[" * 100_000,
    "no object": lambda data: b"[1, 2]",
    "no counts": lambda data: b'{"about": ""}',
    "another type": changed(counts={"finished": "many"}),
    "a negative count": changed(counts={"finished": -1}),
    "more done than there are": changed(done=5, total=3),
    "no time": changed(last=1e300),
    "a time before all": changed(last=-1),
    "infinite": lambda data: data.replace(b'"last":', b'"last":1e999,"x":'),
    "a long list": changed(best=["a"] * 1000),
    "rows of different length": changed(heatmap={"caption": "", "shades": [[0.5], [0.5, 0.5]]}),
    "no cells": changed(heatmap={"caption": "", "shades": [[]]}),
    "no rows": changed(heatmap={"caption": "", "shades": []}),
    "too wide": changed(heatmap={"caption": "", "shades": [[0.5] * (MAX_CARD_SIDE + 1)]}),
    "too tall": changed(heatmap={"caption": "", "shades": [[0.5]] * (MAX_CARD_SIDE + 1)}),
    "no shade": changed(heatmap={"caption": "", "shades": [[1.5]]}),
    "NaN": lambda data: re.sub(rb"\[\[[0-9.]+", b"[[NaN", data),
}


@pytest.fixture(scope="module")
def with_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a page and its summary."""
    folder = tmp_path_factory.mktemp("with page")
    publish.write(fill(folder).files, NAME)
    return folder


@for_each("odd", ODD)
def test_a_wrong_summary_counts_as_absent(
    with_page: Path, tmp_path: Path, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Files(shutil.copytree(with_page, tmp_path / "store"))
    file = tmp_path / "store" / summary_path(NAME)
    before, after = file.read_bytes(), ODD[odd](file.read_bytes())
    assert before != after
    file.write_bytes(after)
    card = cards(list_of_sweeps(store))[NAME]
    assert COUNTED in card and "<svg" not in card
    (line,) = capsys.readouterr().err.splitlines()
    assert "'reports/grid.summary.json' is damaged and counts as absent" in line
    if odd == "half":
        publish.write(store, NAME)
        assert file.read_bytes() == before, "the next page writes it anew"


def test_the_text_of_a_summary_is_never_html(tmp_path: Path) -> None:
    store = fill(tmp_path)
    attack = '"><script>alert(1)</script>\u2028'
    known = Summary(attack, {attack: 1, "finished": 1}, attack, 2, 1, 2, [attack] * 3, 0.0, Thumbnail(attack, [[1.0]]))
    write_summary(store.files, NAME, known)
    assert read_summary(store.files, NAME) == known
    card = cards(list_of_sweeps(store.files))[NAME]
    assert "<script" not in card and '"">' not in card and "all 2 requests: 1 finished; last result 1970-01-01" in card


def test_long_texts_and_large_heatmaps_are_cut(tmp_path: Path) -> None:
    store = fill(tmp_path, repeat=MAX_CARD_SIDE)
    wide = Heatmap(Metric("auroc_joint", "maximize"), "beta", "seed")
    write_figures(store.files, NAME, figures_of(replace(SWEEP, about="long " * 1000, figures=(wide,)), "paper"))
    publish.write(store.files, NAME)
    assert summary_of(store).heatmap is None and len((tmp_path / summary_path(NAME)).read_bytes()) < 3000
    labelled = SWEEP.figures[1]
    write_figures(store.files, NAME, figures_of(replace(SWEEP, figures=(wide, labelled)), "paper"))
    publish.write(store.files, NAME)
    shown = summary_of(store).heatmap
    assert shown is not None and "setting by nu" in shown.caption, "the next one"
    assert [len(row) for row in shown.shades] == [3, 3, 3], "a row for each label that has trials"
    assert len(cards(list_of_sweeps(store.files))[NAME]) < 3000
