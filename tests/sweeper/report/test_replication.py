"""The replication report of a paper: its sections, from a store with and without rows, and both of its forms."""

import functools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sweeper.claims.judging import judge
from sweeper.definition import Sweep, registry
from sweeper.definition.paper import read_place
from sweeper.report.replication import Replication, outline, report, sweeps_of
from sweeper.report.replication_documents import html_page, markdown
from sweeper.storage.files import Files
from tests.cases import for_each
from tests.sweeper.claims.stored_rows import write_rows
from tests.sweeper.report.page.browsers import browser, tab

pytestmark = pytest.mark.slow  # all sweeps that ship are read

PAPERS = registry.papers()
KEYS = {"method": str, "dataset": str, "terms": str, "seed": int, "batch_size": int}
METRICS = ("knn_z", "probe_z", "var_mean", "var_cv")
TERMS = ("dir+rad+kl", "dir+kl", "dir+rad", "rad+kl", "rad", "dir")


@functools.cache
def sweeps(name: str) -> list[Sweep]:
    return sweeps_of(PAPERS[name], map(registry.find, registry.names()))


def write_ablation(folder: Path, preset: str, dataset: str, first: str = TERMS[0], changes: str = "") -> Files:
    """Write rows of `loss_ablation`, whose first terms are named `first`."""
    rows = [
        {"method": "vje", "dataset": dataset, "terms": terms, "seed": seed, "epochs_run": 7, "batch_size": 60}
        | {"knn_z": 0.86 - 0.1 * index + 0.001 * seed, "probe_z": 0.89 - 0.1 * index + 0.001 * seed}
        | {"var_mean": 0.32 - 0.05 * index + 0.001 * seed, "var_cv": 0.7}
        for index, terms in enumerate((first, *TERMS[1:]))
        for seed in range(3)
    ]
    write_rows(folder, "loss_ablation", KEYS, METRICS, rows, preset, changes)
    return Files(folder)


def of_vje(files: Files, preset: str | None = None) -> Replication:
    return report(files, PAPERS["vje"], sweeps("vje"), preset)


class Text(HTMLParser):
    """Collects what a reader of an HTML page reads, without its pictures."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.parts, self.hidden = list[str](), 0
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden += tag in ("style", "svg", "title")
        self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "svg", "title")

    def handle_data(self, data: str) -> None:
        self.parts.append("" if self.hidden else data)


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)*", text)


@for_each("name", PAPERS)
def test_every_table_and_figure_that_a_claim_or_a_published_number_names_has_a_section(name: str) -> None:
    paper = PAPERS[name]
    found = outline(paper, sweeps(name))
    known = {each for text in paper.places for each in read_place(text).shown}
    for sweep in sweeps(name):
        for claim in sweep.claims:
            if (claim.paper or sweep.paper) == paper.name:
                at = [text for text, entries in found.items() if claim.name in entries.get(sweep.name, NONE).claims]
                assert at and {*read_place(claim.place).shown} <= known, (claim.name, claim.place)
        for figure in sweep.figures if sweep.paper == paper.name else ():
            at = [text for text, entries in found.items() if figure in entries.get(sweep.name, NONE).figures]
            assert bool(at) == bool(figure.place) and {*read_place(figure.place).shown} <= known, (sweep.name, figure)
            assert at or not getattr(figure, "published", {}), f"{sweep.name}: {figure.title} lacks its place"


class NONE:
    claims, figures = (), ()


@for_each("name", PAPERS)
def test_an_empty_store_gives_every_section_with_the_papers_numbers_and_the_commands(tmp_path: Path, name: str) -> None:
    found = report(Files(tmp_path), PAPERS[name], sweeps(name))
    source = markdown(found).decode()
    contents = outline(PAPERS[name], sweeps(name))
    titles = [section.title for section in found.sections if section.title]
    assert titles == [PAPERS[name].places[text] for text, entries in contents.items() if entries]
    for section in found.sections[: len(titles)]:
        assert {*section.counts} <= {"not run"}
        text = source.split(f"## {section.place}: ")[1].split("\n## ")[0]
        assert "No rows yet: `sweeper run " in text
    for sweep in sweeps(name):
        assert f"sweeper run {sweep.name} --preset " in source or f"`{sweep.name}`: {sweep.about}" in source
    assert not re.search(r"\b(nan|None)\b", source)


def test_published_numbers_stand_alone_until_the_preset_that_they_are_of_has_rows(tmp_path: Path) -> None:
    digits = markdown(of_vje(write_ablation(tmp_path / "digits", "digits", "digits"))).decode()
    table = digits.split("## Table 6: ")[1].split("\n## ")[0]
    alone, ours = table.split("Ours, `digits`: 18 trials; data set digits; 3 seeds; 7 epochs; batches of 60.")
    assert "the paper's numbers on cifar10, cifar100, stl10" in alone and "| 86.18 " in alone
    assert re.search(r"dir\+rad\+kl +\| \*\*86\.10\*\* \[\d\d\.\d\d, \d\d\.\d\d\]", ours) and "paper 8" not in ours
    paper = markdown(of_vje(write_ablation(tmp_path / "paper", "paper", "cifar10"))).decode()
    table = paper.split("## Table 6: ")[1].split("\n## ")[0]
    assert "the paper's numbers" not in table
    assert re.search(r"86\.10\*\* \[\d\d\.\d\d, \d\d\.\d\d\] \(paper 86\.18, \N{MINUS SIGN}0\.08\)", table)


def test_claims_have_the_verdicts_of_the_judge(tmp_path: Path) -> None:
    files = write_ablation(tmp_path, "digits", "digits")
    source = markdown(of_vje(files)).decode()
    judged = {each.claim.name: each for each in judge(files, registry.find("loss_ablation"), "digits")}
    verdicts = dict(re.findall(r"^\| (VJE-\w+) .*?\| (holds|refuted|undecided|not run) ", source, re.MULTILINE))
    assert {name: verdicts[name] for name in judged} == {name: each.verdict for name, each in judged.items()}
    assert {"holds", "refuted"} <= {*verdicts.values()}
    (line,) = (line for line in source.splitlines() if line.startswith("| VJE-32b "))
    assert "86.18, 86.08" in line and "0.861 ~ 0.761 ± 0.01?" in line and "digits; n = 3" in line


def test_the_settings_that_are_ours_are_said_once(tmp_path: Path) -> None:
    source = markdown(of_vje(write_ablation(tmp_path, "paper", "cifar10"))).decode()
    whys = [assumption.text() for assumption in registry.find("loss_ablation").assumptions["paper"]]
    table_6, table_7 = (source.split(f"## Table {number}: ")[1].split("\n## ")[0] for number in (6, 7))
    assert all(f"- {why}" in table_6 for why in whys) and "Settings that are ours: see Table 6." in table_7
    digits = markdown(of_vje(write_ablation(tmp_path / "digits", "digits", "digits"))).decode()
    assert "All settings of `digits` are ours." in digits.split("## Table 6: ")[1]
    of_gmje = markdown(report(Files(tmp_path / "none"), PAPERS["gmje"], sweeps("gmje"))).decode()
    assert "All settings of `gmje` are ours." in of_gmje and "All settings of `vje`" not in of_gmje


def test_a_preset_can_be_chosen(tmp_path: Path) -> None:
    files = write_ablation(tmp_path, "digits", "digits")
    chosen, others = (markdown(of_vje(files, preset)).decode() for preset in ("digits", "paper"))
    assert "Ours, `digits`" in chosen and "sweeper run loss_ablation --preset paper" not in chosen
    assert "Ours, `digits`" not in others and "sweeper run loss_ablation --preset paper" in others
    assert "It has no such preset; its presets are `vje`, `simvae`, `gmje`." in chosen


def test_published_numbers_stand_alone_beside_fewer_epochs_than_the_papers(tmp_path: Path) -> None:
    files = write_ablation(tmp_path, "paper", "cifar10", changes="epochs=7")
    table = markdown(of_vje(files)).decode().split("## Table 6: ")[1].split("\n## ")[0]
    assert "the paper's numbers on" in table and "Ours, `paper, epochs=7`: 18 trials" in table
    assert "(paper 8" not in table and "sweeper run loss_ablation --preset paper --store" in table


def test_both_forms_have_the_same_numbers(tmp_path: Path) -> None:
    found = of_vje(write_ablation(tmp_path, "paper", "cifar10"))
    source = re.sub(r"^(The picture: .*|\|[-|]+\|)$", "", markdown(found).decode(), flags=re.MULTILINE)
    page = "".join(Text(html_page(found).decode()).parts)
    assert numbers(page) == numbers(source.replace("\\", "")) and len(numbers(page)) > 500


def test_values_of_a_store_are_no_markup(tmp_path: Path) -> None:
    page = html_page(of_vje(write_ablation(tmp_path, "digits", "<script>alert('1')</script>"))).decode()
    assert "<script" not in page and "&lt;script&gt;" in page
    source = markdown(of_vje(write_ablation(tmp_path / "other", "digits", "digits", "a|<b>`"))).decode()
    assert r"a\|\<b>\`" in source


def grid(folder: Path) -> Files:
    """Write rows of four cells of `anomaly_grid` for three classes."""
    scores = tuple(f"auroc_{score}" for score in ("joint", "dir", "rad", "variance", "entropy"))
    rows = [
        {"method": "vje", "dataset": "digits", "beta": beta, "nu": nu, "normal_class": index, "seed": 0}
        | dict.fromkeys(scores, 0.8 + 0.05 * beta - 0.01 * index)
        for beta in (0.0, 1.0)
        for nu in (0.5, 2.0)
        for index in range(3)
    ]
    keys = {"method": str, "dataset": str, "beta": float, "nu": float, "normal_class": int, "seed": int}
    write_rows(folder, "anomaly_grid", keys, scores, rows, "digits")
    return Files(folder)


def test_pictures_are_inside_the_page_and_tell_their_parts_apart(tmp_path: Path) -> None:
    found = of_vje(grid(tmp_path))
    page = html_page(found).decode()
    names = re.findall(r'\bid="(\w+-gradient_\d+)"', page)
    assert page.count("<svg") == 5 == len(names) == len({*names}) and "var(--ink)" in page
    assert {*re.findall(r"url\(#([^)]*)\)", page)} == {*names} and not re.search(r'(src|href)="(?!#|data:)', page)
    source = markdown(found).decode()
    assert "The picture: `sweeper figure anomaly_grid --preset digits --figure auroc_joint --format svg" in source


def test_a_page_fits_a_phone_without_a_script_or_a_request(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(html_page(of_vje(grid(tmp_path / "store"))))
    with browser() as chromium:
        for dark in (False, True):
            with tab(chromium, width=390, dark=dark) as page:
                page.tab.goto(path.as_uri())
                assert page.tab.evaluate("document.documentElement.scrollWidth") == 390
                ink, ground = (
                    page.tab.evaluate(f"getComputedStyle(document.querySelector('figure svg {part}')).fill")
                    for part in (".role-axis-title text", "rect")
                )
                assert (ink == "rgb(233, 234, 238)") == dark and (ground == "rgb(22, 23, 27)") == dark
                assert page.requests == [path.as_uri()] and not page.complaints
