"""A paper whose experiments sweeps repeat, and the places in it where claims and figures stand."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PART = re.compile(r"(?:(Table|Fig)(s?)\.? )?([A-Z]|[A-Z]?\.?\d[\d.]*[a-z]?)(?: to ([A-Z]|[\dA-Z][\d.]*[a-z]?))?")
"""One of the parts that commas divide: kind, plural, number, and the last one of a range."""
_PANELS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Paper:
    """A paper, as a report follows it from top to bottom."""

    name: str
    """As sweeps and claims name it, e.g. `VJE (arXiv 2602.05639)`."""
    title: str
    places: Mapping[str, str]
    """Table, figure, section or several of them, such as `Tables 6, 7` -> what it is about. In the paper's order."""


@dataclass(frozen=True)
class PaperPlace:
    """What a text such as `Table 1, 5.2` or `Figs. 4b, 6b` names. What it says otherwise, such as `abstract`, counts as
    a section."""

    shown: tuple[str, ...]
    """Tables and figures, without the letters of panels: `Table 1`, `Fig. 4`."""
    sections: tuple[str, ...]
    """Numbers of sections and letters of appendices: `5.2`, `O.4`."""

    def covers(self, other: "PaperPlace") -> bool:
        """Whether a table or figure of the other is one of this, or where the other has none, one of its sections is
        one of this or inside it."""
        if other.shown:
            return bool({*self.shown} & {*other.shown})
        return any(inner == own or inner.startswith(f"{own}.") for inner in other.sections for own in self.sections)


def read_place(text: str) -> PaperPlace:
    """Read a place. A plural covers the numbers that follow it: in `Table 1, 6` the 6 is a section, in `Tables 5, 6` a
    table."""
    shown, sections, several = list[str](), list[str](), ""
    for part in text.split(", "):
        found = _PART.fullmatch(part)
        if found is None:
            return PaperPlace((), (text,) if text else ())
        kind, plural, first, last = found.groups()
        named = "" if kind is None else f"{kind}{'.' * (kind == 'Fig')}"
        several = several if kind is None else named * bool(plural)
        numbers = _between(first.rstrip(_PANELS), (last or first).rstrip(_PANELS))
        if (named or several) and "." not in first:
            shown += [f"{named or several} {number}" for number in numbers]
        else:
            sections += numbers
    return PaperPlace((*dict.fromkeys(shown),), (*dict.fromkeys(sections),))


def _between(first: str, last: str) -> list[str]:
    """Return the numbers from `4.1` to `4.3`, or the letters from `D` to `P`."""
    inside, dot, start = first.rpartition(".")
    end = last.rpartition(".")[2]
    if start.isdigit() and end.isdigit():
        return [f"{inside}{dot}{number}" for number in range(int(start), int(end) + 1)]
    if len(first) == len(last) == 1:
        return [chr(code) for code in range(ord(first), ord(last) + 1)]
    return [first]


def heading(text: str) -> str:
    """Return a place as the heading of a section: `Section 5.3` for `5.3`, `Appendix A` for `A`, others as they are."""
    place = read_place(text)
    several = len(place.sections) > 1
    if place.shown or not all(_PART.fullmatch(part) for part in text.split(", ")):
        return text[:1].upper() + text[1:]
    kind = ("Sections" if several else "Section") if text[0].isdigit() else "Appendices" if several else "Appendix"
    return f"{kind} {text}"
