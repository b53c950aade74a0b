"""The page of all claims, and the claims on the page of a sweep."""

import gzip
import json
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.claims import Claim, Side
from sweeper.claims import page as claims_page
from sweeper.claims.judging import Judged, write_table
from sweeper.claims.page import MOST_TRIALS, all_claims
from sweeper.definition import registry
from sweeper.report.page import publish
from sweeper.report.page.contents import collect
from sweeper.storage.files import Files
from sweeper.storage.layout import CLAIMS_PAGE, claims_path
from tests.sweeper.report.page.browsers import browser, tab
from tests.sweeper.report.page.stored import NAME, fill

NAN = float("nan")
ATTACK = "<script>window.attacked = true</script>"
TRIAL = "trial00003"


def judged(sweep: str = NAME, preset: str = "paper") -> list[Judged]:
    """A claim of each kind: one that holds barely, one that is refuted, one without an interval."""
    sides = Side("auroc_joint", {"beta": 1.0}), Side("auroc_joint", {"beta": 0.5})
    claim = Claim("X-01", ATTACK, "Table 1", sides[0], ">", sides[1], published="0.9 > 0.8")
    rows = tuple({"side": "left", "trial": TRIAL, "at": "seed=0", "value": 0.5} for _ in range(2 * MOST_TRIALS))
    holds = Judged(sweep, "A paper", preset, claim, "holds", left=0.9, right=0.5, difference=0.4, trials=rows)
    holds = replace(holds, low=0.1, high=0.7, n=3, p=0.04)
    refuted = replace(holds, claim=replace(claim, name="X-02"), verdict="refuted", low=-2.0, high=-1.0, p=1e-6)
    return [holds, refuted, replace(holds, claim=replace(claim, name="X-10"), verdict="undecided", low=NAN, high=NAN)]


def test_the_page_has_what_was_judged_and_what_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(tmp_path)
    monkeypatch.setattr(registry, "names", lambda: ["anomaly_grid"])
    assert all_claims(files) is None and publish.write_claims(files) is None and not list(tmp_path.iterdir())
    write_table(files, NAME, "paper, epochs=5", judged())
    report = all_claims(files)
    assert report is not None
    records = {record["claim"]: record for record in report["claims"]}
    assert records["X-01"]["request"] == "paper, epochs=5" and len(records["X-01"]["trials"]) == MOST_TRIALS
    assert records["X-01"]["count"] == 2 * MOST_TRIALS and records["X-10"]["low"] is None
    assert records["X-01"]["holm"] == pytest.approx(0.04) and records["X-02"]["holm"] == pytest.approx(2e-6)
    ours = [claim.name for claim in registry.find("anomaly_grid").claims]
    assert {name for name, record in records.items() if record["verdict"] == "not run"} == set(ours)
    command = f"sweeper run anomaly_grid --preset paper --store {tmp_path}"
    assert records["VJE-12a"]["command"].splitlines()[0] == command
    assert len(report["claims"]) == len(set(ours)) + 3  # one record of a claim that several presets could judge


def test_a_claim_that_one_preset_judges_names_the_commands_of_the_others(tmp_path: Path) -> None:
    files, sweep = Files(tmp_path), registry.find("nu_ablation")
    of = {claim.name: claim for claim in sweep.claims_of("digits")}
    write_table(files, "nu_ablation", "digits", [replace(judged("nu_ablation", "digits")[0], claim=of["VJE-26a"])])
    report = all_claims(files)
    assert report is not None
    (record,) = [record for record in report["claims"] if record["claim"] == "VJE-26a"]
    command = f"sweeper run nu_ablation --preset paper --store {tmp_path}"
    assert record["verdict"] == "holds" and record["command"] == command


def test_a_damaged_table_is_a_sentence_on_both_pages(tmp_path: Path) -> None:
    store = fill(tmp_path)
    write_table(store.files, NAME, "paper", judged())
    store.files.write(claims_path(NAME, "other"), b"no table")
    contents, report = collect(store.files, NAME), all_claims(store.files)
    assert report and [record["claim"] for record in contents.report["claims"]] == ["X-01", "X-02", "X-10"]
    for notes in (contents.report["notes"], report["notes"]):
        assert sum("other.parquet cannot be shown" in note for note in notes) == 1
    json.dumps([contents.report["claims"], report], allow_nan=False)


def test_a_table_of_an_earlier_version_is_shown(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_table(files, NAME, "paper", judged())
    path = tmp_path / claims_path(NAME, "paper")
    pd.read_parquet(path).drop(columns=["trials", "data", "relation", "margin"]).to_parquet(path)
    found, notes = claims_page.read(files, NAME)
    assert [record["trials"] for record in found] == [[], [], []] and notes == []


def test_the_list_of_sweeps_links_to_it(tmp_path: Path) -> None:
    store = fill(tmp_path)
    assert b"claims.html" not in publish.list_of_sweeps(store.files)
    write_table(store.files, NAME, "paper", judged())
    assert publish.write_claims(store.files) == CLAIMS_PAGE
    assert b'<a href="claims.html">' in publish.list_of_sweeps(store.files)
    page = (tmp_path / CLAIMS_PAGE).read_bytes()
    assert ATTACK.encode() not in page
    report: Any = json.loads(gzip.decompress(b64decode(page.partition(b'"text/plain">')[2].partition(b"<")[0])))
    assert report["claims"]


@pytest.mark.slow
def test_in_a_browser_it_filters_and_links_to_the_rows(tmp_path: Path) -> None:
    with browser() as chromium, tab(chromium) as page:
        store = fill(tmp_path)
        write_table(store.files, NAME, "paper", judged())
        publish.write(store.files, NAME)
        publish.write_claims(store.files)
        page.tab.goto(f"file://{tmp_path}/{CLAIMS_PAGE}")
        page.tab.wait_for_selector("#holds .claim")
        assert page.tab.locator("#refuted .claim").count() == 1 and page.tab.locator("#not-run .claim").count() > 100
        assert page.serious_findings() == [] and page.complaints == []
        page.tab.get_by_label("paper", exact=True).select_option("A paper")
        assert page.tab.locator(".claim").count() == 3 and page.tab.locator("#not-run").count() == 0
        page.tab.get_by_label("correct for the number").check()
        assert page.tab.locator("#undecided .claim").count() == 1  # 0.04 is the larger of two: Holm leaves it
        page.tab.get_by_label("search").fill("X-02")
        assert page.tab.locator(".claim").count() == 1
        page.tab.locator(".claim summary").focus()
        page.tab.keyboard.press("Enter")
        page.tab.get_by_role("link", name=TRIAL).first.click()
        page.tab.wait_for_selector("#trials:not([hidden])")
        assert TRIAL in (page.tab.locator("#trials").text_content() or "")
        page.tab.locator("#claims").scroll_into_view_if_needed()
        page.tab.wait_for_selector("#claims .claim")
        assert page.tab.locator("#claims .claim").count() == 3
        assert page.tab.evaluate("window.attacked") is None and page.complaints == []
