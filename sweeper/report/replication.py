"""A replication report: the tables and figures of a paper from top to bottom, each with the paper's numbers beside
ours, the verdicts of its claims, and the settings that are ours.

It is a list of sections of blocks, made of the rows of a store and the definitions of the sweeps that ship, and written
by `replication_documents`.
"""

from __future__ import annotations

import functools
import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sweeper.definition import Heatmap, Ranking, Sweep, Table
from sweeper.definition.figures import Figure
from sweeper.definition.paper import Paper, heading, read_place
from sweeper.report import rankings, tables
from sweeper.report.answers import requests_of, shown_of
from sweeper.report.charts import Drawing
from sweeper.report.figures import Shown, figures_of, made
from sweeper.report.formatting import DASH, format_significant, signed
from sweeper.report.kinds import DRAWN
from sweeper.report.publish import about, history_of
from sweeper.report.table_documents import CellText, Columns
from sweeper.results.sentences import counted
from sweeper.storage.files import Files
from sweeper.storage.requests import StoredRequest

if TYPE_CHECKING:
    from sweeper.claims import Claim
    from sweeper.claims.judging import Judged

NOT_RUN = "not run"
VERDICTS = ("holds", "refuted", "undecided", NOT_RUN)
KINDS_OF_CELLS = {
    **dict.fromkeys(("claim", "published", "ours", "difference"), "whole"),
    **dict.fromkeys(("the paper says", "by"), "words"),
}
"""Column of a table of claims -> `CellText.kind`; verdicts have one of their own."""


@dataclass(frozen=True)
class ReportHeading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class ReportTable:
    """A table of a report."""

    title: str
    caption: str
    columns: Columns


@dataclass(frozen=True)
class ReportPicture:
    """A picture, which HTML has."""

    drawing: Drawing
    command: str
    """What writes it to a file, for documents that have none."""
    cells: ReportTable | None = None
    """The same numbers as a table."""


@dataclass(frozen=True)
class ReportList:
    """A list below a sentence."""

    lead: str
    items: tuple[str, ...]


Block = str | ReportHeading | ReportTable | ReportPicture | ReportList
"""A text is a paragraph, in which backticks mark code."""


@dataclass(frozen=True)
class ReportSection:
    """A table, figure or section of a paper."""

    place: str
    title: str
    blocks: tuple[Block, ...]
    counts: Mapping[str, int]
    """Verdict -> how many claims have it."""


@dataclass(frozen=True)
class Replication:
    """The report on a paper."""

    title: str
    lead: tuple[str, ...]
    """Paragraphs before the sections."""
    sections: tuple[ReportSection, ...]


@dataclass(frozen=True)
class PlaceContents:
    """What a section has of a sweep."""

    figures: list[Figure]
    claims: list[str]
    """Names of claims."""


Outline = dict[str, dict[str, PlaceContents]]
"""Place -> name of a sweep -> what stands there."""


def outline(paper: Paper, sweeps: Iterable[Sweep]) -> Outline:
    """Return what stands at each place of a paper, in its order; places that it does not list come last.

    A claim stands at each of the tables and figures that it names, else at the first of its sections, and where its
    place is not listed, with the first figure of its sweep.
    """
    places = {text: read_place(text) for text in paper.places}
    found: Outline = {text: {} for text in places}

    def at(text: str, otherwise: str = "") -> list[str]:
        place = read_place(text)
        covering = [known for known, own in places.items() if own.covers(place)]
        if not covering and otherwise:
            return at(otherwise)
        if not covering:
            places[text], found[text], covering = place, {}, [text]
        return covering if place.shown else covering[:1]

    for sweep in sweeps:
        figures = [*_figures(sweep, paper)]
        for figure in figures:
            for text in at(figure.place):
                found[text].setdefault(sweep.name, PlaceContents([], [])).figures.append(figure)
        for claim in _claims(sweep, paper):
            for text in at(claim.place, figures[0].place if figures else ""):
                entry = found[text].setdefault(sweep.name, PlaceContents([], []))
                entry.claims.extend([claim.name] * (claim.name not in entry.claims))
    return found


def _claims(sweep: Sweep, paper: Paper) -> list[Claim]:
    return [claim for claim in sweep.claims if (claim.paper or sweep.paper) == paper.name]


def _figures(sweep: Sweep, paper: Paper) -> Iterator[Figure]:
    """Yield the figures that repeat a place of the paper: of a sweep of several papers those of the presets that judge
    claims of this one."""
    presets = {preset for claim in _claims(sweep, paper) for preset in claim.presets}
    for figure in sweep.figures:
        if figure.place and (sweep.paper == paper.name or (paper.name in sweep.paper and presets & {*figure.presets})):
            yield figure


class SweepResults:
    """What a store has of a sweep, and what its rows say of the claims of a paper."""

    def __init__(self, files: Files, sweep: Sweep, paper: Paper, preset: str | None) -> None:
        """`preset`: the only one whose rows count; None takes all."""
        self.files, self.sweep, self.paper = files, sweep, paper
        self.presets = [name for name in sweep.presets if preset in (None, name)]
        stored, self._columns = requests_of(files, sweep.name)
        self.requests: dict[str, StoredRequest] = {}
        """Preset -> its request, without changes if that has rows, else the latest; of those that have rows."""
        for name in self.presets:
            if own := [each for each in stored if each.preset == name]:
                self.requests[name] = next((each for each in own if not each.changes), own[0])
        self._history = functools.cache(partial(history_of, files, sweep.name))

    @functools.cached_property
    def judged(self) -> list[Judged]:
        """The claims of the paper, by the rows of each preset that judge it; once, without a verdict, if none do."""
        if not self.presets or not _claims(self.sweep, self.paper):
            return []
        from sweeper.claims import hook  # here: a sweep without claims does not need it

        by_claim: dict[str, list[Judged]] = {}
        for preset in self.presets:
            changes = self.requests[preset].changes if preset in self.requests else ""
            for each in hook.judged(self.files, self.sweep, preset, changes):
                if each.paper == self.paper.name:
                    by_claim.setdefault(each.claim.name, []).append(each)
        begun_first = (sorted(same, key=lambda own: own.preset not in self.requests) for same in by_claim.values())
        return [each for same in begun_first for each in [own for own in same if own.verdict != NOT_RUN] or same[:1]]

    def shown(self, preset: str) -> Shown:
        """Return what figures show of the request of a preset."""
        request, columns = self.requests[preset], self._columns
        assert columns
        figures = figures_of(self.sweep, preset)
        shown = shown_of(self.files, self.sweep.name, request, figures, list(columns.hyperparameters))
        named = about(self.sweep.name, request.label, request.comparable)
        return replace(shown, history=self._history, about=named)

    def has_beside(self, preset: str) -> bool:
        """Whether the paper's numbers stand beside rows of a preset."""
        request = self.requests.get(preset)
        return request is not None and figures_of(self.sweep, preset).are_beside(request.comparable, request.changes)

    def command(self, name: str, preset: str, *words: str) -> str:
        """Return a command about a preset of the sweep."""
        return shlex.join(
            ["sweeper", name, self.sweep.name, "--preset", preset, *words, "--store", self.files.display_uri]
        )


def sweeps_of(paper: Paper, sweeps: Iterable[Sweep]) -> list[Sweep]:
    """Return the sweeps of a paper, and those whose rows judge a claim of it."""
    return [sweep for sweep in sweeps if paper.name in sweep.paper or _claims(sweep, paper)]


def report(files: Files, paper: Paper, sweeps: Sequence[Sweep], preset: str | None = None) -> Replication:
    """Return the report on a paper by the rows of this preset of each sweep, by default of all presets that have rows.
    Raises StoreError for a store that cannot be read, and SpecError for a claim that does not fit its preset."""
    results = {sweep.name: SweepResults(files, sweep, paper, preset) for sweep in sweeps}
    contents = {place: entries for place, entries in outline(paper, sweeps).items() if entries}
    settled = _places_of_settings(contents)
    sections = [
        _section(place, paper.places.get(place, ""), results, entries, settled) for place, entries in contents.items()
    ]
    others = [each for name, each in results.items() if name not in settled]
    if others:
        items = tuple(f"`{each.sweep.name}`: {each.sweep.about}" for each in others)
        sections.append(
            ReportSection("Beside the paper", "", (ReportList("Sweeps of what the paper does not report:", items),), {})
        )
    trials = sum(len(request.rows) for each in results.values() for request in each.requests.values())
    verdicts = Counter(judged.verdict for each in results.values() for judged in each.judged)
    lead = (
        f"{paper.name}, by the {trials:,} trials in `{files.display_uri}`.",
        "Each section is a table, a figure or a section of the paper, in its order: the paper's numbers, ours, what "
        "the paper claims with the verdict of our rows, and which settings are ours.",
        f"Claims: {counts_text(verdicts)}. A claim holds or is refuted where the 95 % interval of the difference of "
        "its sides is on one side of its margin, and is undecided where it is on both.",
    )
    return Replication(f"{paper.title}: a replication", lead, tuple(sections))


def _places_of_settings(contents: Outline) -> dict[str, str]:
    """Return name of a sweep -> the place that says which of its settings are ours: the first with a figure of it."""
    found = dict[str, str]()
    for with_figures in (True, False):
        for place, entries in contents.items():
            for name, entry in entries.items():
                if entry.figures or not with_figures:
                    found.setdefault(name, place)
    return found


def _section(
    place: str,
    title: str,
    results: Mapping[str, SweepResults],
    entries: Mapping[str, PlaceContents],
    settled: Mapping[str, str],
) -> ReportSection:
    """Return a section. `settled`: see `_places_of_settings`."""
    blocks, counts = list[Block](), Counter[str]()
    for name, entry in entries.items():
        own, sweep = results[name], results[name].sweep
        judged = [each for each in own.judged if each.claim.name in entry.claims]
        counts.update(each.verdict for each in judged)
        said = f"{sweep.about}."
        blocks += [ReportHeading(f"`{name}`"), said] if len(entries) > 1 else [f"`{name}`: {said}"]
        blocks += _published(own, entry.figures)
        if not own.presets:
            blocks.append(
                f"It has no such preset; its presets are {', '.join(f'`{preset}`' for preset in sweep.presets)}."
            )
            continue
        wanted = {preset for figure in entry.figures for preset in figure.presets or sweep.presets}
        wanted |= {each.preset for each in judged}
        for preset in (preset for preset in own.requests if preset in wanted):
            blocks += [_trials_text(own.requests[preset]), *_drawn(own, preset, entry.figures)]
        blocks += [*_claim_blocks(judged), *_commands(own, wanted, judged)]
        if settled[sweep.name] == place:
            blocks += _assumptions(own, wanted)
        else:
            blocks.append(f"Settings that are ours: see {heading(settled[sweep.name])}.")
    return ReportSection(heading(place), title, tuple(blocks), counts)


def _published(results: SweepResults, figures: Sequence[Figure]) -> Iterator[Block]:
    """Yield the paper's numbers of figures that stand beside no rows, each once."""
    for figure in figures:
        known = dict[object, object]()
        for preset, cells in getattr(figure, "published", {}).items():
            is_new = any(known.get(cell) != numbers for cell, numbers in cells.items())
            known |= cells
            if not is_new or preset not in results.presets or results.has_beside(preset):
                continue
            data = dict.fromkeys(str(value) for part in results.sweep.parts(preset) for value in part.values("dataset"))
            said = f"the paper's numbers on {', '.join(data)}"
            if isinstance(figure, Ranking):
                more, columns = rankings.published(figure, preset)
                yield ReportTable(figure.file, f"{said}{more}", columns)
            elif isinstance(figure, Heatmap | Table):
                table = figure if isinstance(figure, Table) else tables.of_heatmap(figure)
                yield ReportTable(
                    figure.file, said, tables.published_columns(table, preset, results.sweep.grids(preset))
                )


def _drawn(results: SweepResults, preset: str, figures: Sequence[Figure]) -> Iterator[Block]:
    """Yield the figures of a preset that stand at one place, with our numbers."""
    shown, problems = results.shown(preset), list[str]()
    own = {(type(figure), figure.file) for figure in figures if not figure.presets or preset in figure.presets}
    for figure in (figure for figure in shown.preset.figures if (type(figure), figure.file) in own):
        block = made(problems.append, figure.title, partial(_block, results, preset, shown, figure))
        yield block or f"No trial is in {figure.title} yet."
    yield from (f"{problem}." for problem in problems)


def _block(results: SweepResults, preset: str, shown: Shown, figure: Figure) -> Block | None:
    table = tables.of_heatmap(figure) if isinstance(figure, Heatmap) else figure
    found = None
    if isinstance(table, Table):
        found = tables.captioned(shown, table)
    elif isinstance(table, Ranking):
        found = rankings.captioned(shown, table)
    sheet = ReportTable(figure.file, *found) if found else None
    if type(figure) not in DRAWN:
        return sheet
    command = results.command("figure", preset, "--figure", figure.file, "--format", "svg")
    return ReportPicture(DRAWN[type(figure)](shown, figure), command, sheet)


def _trials_text(request: StoredRequest) -> str:
    """Return e.g. `Ours, digits: 18 of 18 trials; data set digits; 3 seeds; 50 epochs; batches of 64.`"""
    rows = request.rows
    names = ("dataset", "seed", "epochs_run", "batch_size")
    data, seeds, epochs, batches = ([*rows[name].dropna().unique()] if name in rows else [] for name in names)
    done = int((rows["status"] != "failed").sum())
    parts = [
        f"{done:,}{'' if request.total is None else f' of {request.total:,}'} trials",
        f"data set{'s' * (len(data) > 1)} {', '.join(map(str, data))}" if data else "",
        counted(len(seeds), ["seed"]) if seeds else "",
        f"{_span(epochs)} epochs" if epochs else "",
        f"batches of {_span(batches)}" if batches else "",
    ]
    return f"Ours, `{request.label}`: {'; '.join(filter(None, parts))}."


def _span(values: Sequence[float]) -> str:
    least, most = int(min(values)), int(max(values))
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _claim_blocks(judged: Sequence[Judged]) -> Iterator[Block]:
    if not judged:
        return
    columns = {
        "claim": [each.claim.name for each in judged],
        "verdict": [each.verdict for each in judged],
        "the paper says": [f"{each.claim.sentence} ({each.claim.place})" for each in judged],
        "published": [each.claim.published or DASH for each in judged],
        "ours": [_sides_text(each) for each in judged],
        "difference": [signed(each.difference, each.low, each.high) for each in judged],
        "by": [_by(each) for each in judged],
    }
    cells = {
        name: [CellText(text, kind=KINDS_OF_CELLS.get(name) or f"verdict {text.replace(' ', '-')}") for text in texts]
        for name, texts in columns.items()
        if {*texts} != {DASH}
    }
    yield ReportTable("Claims", counts_text(Counter(each.verdict for each in judged)), cells)


def _sides_text(judged: Judged) -> str:
    if math.isnan(judged.left):
        return DASH
    claim = judged.claim
    margin = f" ± {claim.margin:g}" if claim.relation == "~" else ""
    return f"{format_significant(judged.left)} {claim.relation} {format_significant(judged.right)}{margin}?"


def _by(judged: Judged) -> str:
    """Return whose rows judge a claim, or why there is no verdict."""
    if judged.verdict == NOT_RUN:
        return judged.reason
    n = f"n = {judged.n}" if judged.n else ""
    return "; ".join(filter(None, dict.fromkeys([judged.preset, judged.data, judged.over or n, judged.reason])))


def counts_text(counts: Mapping[str, int]) -> str:
    """Return e.g. `3 holds, 2 undecided`."""
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts.get(verdict)) or "none"


def _commands(results: SweepResults, wanted: Collection[str], judged: Sequence[Judged]) -> Iterator[Block]:
    """Yield a line with the commands that make the rows that a section lacks."""
    lacking = [preset for preset in results.presets if preset in wanted]
    none = [results.command("run", lacking[0])] if lacking and not {*lacking} & {*results.requests} else []
    commands = dict.fromkeys([*none, *(_command(results, each) for each in judged if each.command)])
    if commands:
        yield f"{'No rows yet' if none else 'Not run'}: {', '.join(f'`{command}`' for command in commands)}."


def _command(results: SweepResults, judged: Judged) -> str:
    """Return what makes the rows that a claim needs. Those of a request that changes its preset are not enough."""
    request = results.requests.get(judged.preset)
    return results.command("run", judged.preset) if request and request.changes else judged.command


def _assumptions(results: SweepResults, wanted: Collection[str]) -> Iterator[Block]:
    """Yield which settings are ours: of those of the wanted presets that have rows, or without rows of the first."""
    sweep, presets = results.sweep, [preset for preset in results.presets if preset in wanted]
    for preset in [preset for preset in presets if preset in results.requests] or presets[:1]:
        if preset in sweep.assumptions:
            items = tuple(assumption.text() for assumption in sweep.assumptions[preset])
            yield ReportList(f"Ours in `{preset}`, where the paper is silent or not legible:", items)
        else:
            yield f"All settings of `{preset}` are ours."
