"""Writes a replication report as Markdown and as one HTML file, which needs no other file, no server and no script."""

import html
import re
from collections.abc import Callable, Iterator
from itertools import count

from sweeper.printing import printable
from sweeper.report.page.document import static_document
from sweeper.report.replication import (
    Block,
    Replication,
    ReportHeading,
    ReportList,
    ReportPicture,
    ReportSection,
    ReportTable,
    counts_text,
)
from sweeper.report.table_documents import columns_html, columns_markdown, escape, escaped, html_text


def markdown(report: Replication) -> bytes:
    """Return the report as Markdown. Pictures are their caption, their numbers as a table if they have any, and the
    command that draws them."""
    parts = [f"# {escaped(report.title)}", *map(_marked, report.lead)]
    parts.append("\n".join(f"- {escaped(_entry(section))}" for section in report.sections))
    for section in report.sections:
        parts += [f"## {escaped(_heading(section))}", *(_markdown_block(block) for block in section.blocks)]
    return "\n\n".join([*parts, ""]).encode()


def html_page(report: Replication) -> bytes:
    """Return the report as an HTML file, with its pictures."""
    numbers = count(1)
    entries = "".join(
        f'<li><a href="#{_anchor(section)}">{html_text(_heading(section))}</a>'
        f' <span class="quiet">{counts_text(section.counts) if section.counts else ""}</span></li>\n'
        for section in report.sections
    )
    sections = "".join(
        f'<section id="{_anchor(section)}">\n<h2>{html_text(_heading(section))}</h2>\n'
        + "".join(f"{_html_block(block, numbers)}\n" for block in section.blocks)
        + "</section>\n"
        for section in report.sections
    )
    lead = "".join(f"<p>{_coded(text)}</p>\n" for text in report.lead)
    return static_document("report.html", report.title, lead=lead, entries=entries, sections=sections)


def _heading(section: ReportSection) -> str:
    return f"{section.place}: {section.title}" if section.title else section.place


def _entry(section: ReportSection) -> str:
    return f"{_heading(section)}{f' ({counts_text(section.counts)})' if section.counts else ''}"


def _anchor(section: ReportSection) -> str:
    return re.sub(r"[^a-z0-9]+", "-", section.place.lower()).strip("-")


def _markdown_block(block: Block) -> str:
    match block:
        case str():
            return _marked(block)
        case ReportHeading(text):
            return f"### {_marked(text)}"
        case ReportList(lead, items):
            return "\n".join([_marked(lead), "", *(f"- {_marked(item)}" for item in items)])
        case ReportTable(title, caption, columns):
            return f"**{escaped(title)}**{f': {escaped(caption)}' * bool(caption)}\n\n{columns_markdown(columns)}"
        case ReportPicture(drawing, command, cells):
            caption = "  \n".join(map(escaped, drawing.caption.splitlines()))
            drawn = f"The picture: `{command}`."
            return "\n\n".join([caption, *([_markdown_block(cells)] if cells else []), drawn])


def _html_block(block: Block, numbers: Iterator[int]) -> str:
    match block:
        case str():
            return f"<p>{_coded(block)}</p>"
        case ReportHeading(text):
            return f"<h3>{_coded(text)}</h3>"
        case ReportList(lead, items):
            return f"<p>{_coded(lead)}</p>\n<ul>{''.join(f'<li>{_coded(item)}</li>' for item in items)}</ul>"
        case ReportTable(title, caption, columns):
            about = f"<p><strong>{html_text(title)}</strong>{f': {html_text(caption)}' * bool(caption)}</p>"
            return f'{about}\n<div class="scroll">{columns_html(columns)}</div>'
        case ReportPicture(drawing, _, cells):
            about, *lines = map(html_text, drawing.caption.splitlines())
            caption = "".join([f"<strong>{about}</strong>", *(f"<br>{line}" for line in lines)])
            picture = f'<div class="chart">{drawing.inline(f"picture{next(numbers)}")}</div>'
            figure = f"<figure><figcaption>{caption}</figcaption>\n{picture}</figure>"
            if cells is None:
                return figure
            return f"{figure}\n<details><summary>The same as a table</summary>\n{_html_block(cells, numbers)}</details>"


def _marked(text: str) -> str:
    """Return a paragraph for Markdown."""
    return _by_code(text, escape, lambda code: f"`{code}`")


def _coded(text: str) -> str:
    """Return a paragraph for HTML."""
    return _by_code(text, html.escape, lambda code: f"<code>{html.escape(code)}</code>")


def _by_code(text: str, plain: Callable[[str], str], coded: Callable[[str], str]) -> str:
    """Return a paragraph in one line, in which backticks mark code."""
    parts = re.split(r"(`[^`]*`)", printable(text))
    return "".join(coded(part[1:-1]) if part.startswith("`") else plain(part) for part in parts)
