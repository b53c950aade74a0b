"""Colours that all figures share, and how a figure becomes a PNG."""

import io

from matplotlib.figure import Figure

INK, MUTED, PALE = "#1b1b1f", "#6b6f76", "#e4e5e8"
"""Colours of text, of secondary text and axes, and of grid lines and empty cells."""


PAD = 0.25
"""White space around a figure, in inches."""


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG of 160 dots per inch, or fewer so that it stays within Agg's 65,536 pixels."""
    picture = io.BytesIO()
    dots = float(min(160.0, 16000 / max(figure.get_size_inches())))
    figure.set_dpi(dots)
    box = figure.get_tightbbox().padded(PAD)  # what `bbox_inches="tight"` finds, after drawing the figure once more
    figure.savefig(picture, format="png", dpi=dots, facecolor="white", bbox_inches=box)
    return picture.getvalue()
