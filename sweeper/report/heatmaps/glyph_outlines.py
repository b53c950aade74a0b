"""Numbers as outlines of glyphs: hundreds of them are drawn as one collection, and each glyph is laid out once."""

from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.path import Path
from numpy.typing import NDArray

from sweeper.report.style import DOTS, Weight

Slant = Literal["normal", "italic"]
EM = 100.0
"""Size at which a glyph is read, in points."""
CAPITAL = 0.73
"""Height of a digit, in ems."""
LINE = 1.3
"""Height of a line, in ems."""


class Glyph(NamedTuple):
    vertices: NDArray[np.float64]
    """`[V, 2]`, in ems from the glyph's origin on the baseline."""
    codes: NDArray[np.uint8]
    """`[V]`, of `matplotlib.path.Path`."""
    advance: float
    """Distance to the origin of the next glyph, in ems."""


class Line(NamedTuple):
    """A line of text."""

    outline: Path
    """In inches, from the beginning of its baseline."""
    width: float
    """In inches."""
    height: float
    """Distance to the next line, in inches."""


@cache
def glyph(character: str, weight: Weight = "normal", slant: Slant = "normal") -> Glyph:
    """Return a character of Matplotlib's default font, without hinting."""
    font = get_font(findfont(FontProperties(weight=weight, style=slant)))
    font.set_size(EM, 72)
    advance = font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / EM
    vertices, codes = font.get_path()
    return Glyph(np.asarray(vertices, "float64") / EM, np.asarray(codes, Path.code_type), advance)


def line(text: str, size: float, weight: Weight = "normal", slant: Slant = "normal") -> Line:
    """Return a text of `size` points, which is not empty. Kerning is not applied; numbers have none."""
    glyphs = [glyph(character, weight, slant) for character in text]
    origins = np.cumsum([0.0, *(item.advance for item in glyphs)])
    starts = [np.array([x, 0.0]) for x in origins[:-1]]
    vertices = np.concatenate([item.vertices + start for item, start in zip(glyphs, starts, strict=True)])
    codes, inches = np.concatenate([item.codes for item in glyphs]), size / 72
    return Line(Path(inches * vertices, codes), inches * float(origins[-1]), LINE * inches)


def line_paths(lines: Sequence[Line], centre: tuple[float, float]) -> list[Path]:
    """Return the outlines of lines below each other, around a place in inches. Each begins at a whole dot, which makes
    baselines sharp and pictures smaller."""
    paths, top = list[Path](), centre[1] + sum(item.height for item in lines) / 2
    for item in lines:
        baseline = top - (1 + CAPITAL / LINE) / 2 * item.height
        start = np.round(DOTS * np.array([centre[0] - item.width / 2, baseline])) / DOTS
        paths.append(Path(np.asarray(item.outline.vertices) + start, item.outline.codes))
        top -= item.height
    return paths
