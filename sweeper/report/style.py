"""Colours that all figures share, how wide text is, and how a figure becomes a PNG."""

import io
from functools import lru_cache
from typing import Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image

INK, MUTED, PALE = "#1b1b1f", "#6b6f76", "#e4e5e8"
"""Colours of text, of secondary text and axes, and of grid lines and empty cells."""


PAD = 0.25
"""White space around a figure, in inches."""
DOTS, MOST_DOTS = 160.0, 16000
"""Dots per inch, and most dots of a side, so that a figure stays within Agg's 65,536 pixels."""
COMPRESSION = 3
"""zlib's level. The default, 6, takes a third longer and saves a tenth of the bytes."""
Weight = Literal["normal", "bold"]


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: Weight = "normal") -> float:
    """Return the width in inches of a text of `size` points; of the longest line, if it has several."""
    font = FontProperties(size=size, weight=weight)
    return max(text_to_path.get_text_width_height_descent(line, font, False)[0] for line in text.split("\n")) / 72


def png(figure: Figure) -> bytes:
    """Return the figure, and what stands out from it, as a PNG with `PAD` around it."""
    picture = io.BytesIO()
    dots = _dots(figure)
    figure.set_dpi(dots)
    box = figure.get_tightbbox().padded(PAD)  # what `bbox_inches="tight"` finds, after drawing the figure once more
    settings = {"compress_level": COMPRESSION}
    figure.savefig(picture, format="png", dpi=dots, facecolor="white", bbox_inches=box, pil_kwargs=settings)
    return picture.getvalue()


def fitted_png(figure: Figure) -> bytes:
    """Return a figure whose size leaves room for all that it shows, `PAD` included, as a PNG."""
    figure.set_dpi(_dots(figure))
    figure.set_facecolor("white")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = io.BytesIO()
    opaque = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    opaque.save(picture, format="png", compress_level=COMPRESSION)
    return picture.getvalue()


def _dots(figure: Figure) -> float:
    return float(min(DOTS, MOST_DOTS / max(figure.get_size_inches())))
