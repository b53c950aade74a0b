"""How a figure becomes a PNG."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sweeper.report.style import COMPRESSION, PAD, fitted_png, png, text_width


def test_the_picture_is_the_one_of_matplotlibs_own_tight_box() -> None:
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.6, 0.5))
    axes.plot([0, 1], [0, 1e6])
    axes.set_ylabel("a label that lies outside")
    figure.text(0.1, 1.1, "above")
    picture = png(figure)
    expected = io.BytesIO()
    settings = {"compress_level": COMPRESSION}
    figure.savefig(
        expected, format="png", dpi=160, facecolor="white", bbox_inches="tight", pad_inches=PAD, pil_kwargs=settings
    )
    assert picture == expected.getvalue()


def test_a_fitted_picture_has_the_pixels_of_the_whole_figure() -> None:
    figure = Figure(figsize=(3, 2))
    figure.text(0.1, 0.5, "text", color="red")
    shown = Image.open(io.BytesIO(fitted_png(figure)))
    expected = io.BytesIO()
    figure.savefig(expected, format="png", dpi=160, facecolor="white")
    assert shown.mode == "RGB" and shown.size == (480, 320)
    np.testing.assert_array_equal(np.asarray(shown), np.asarray(Image.open(expected).convert("RGB")))


@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_the_width_of_text_is_that_of_the_drawn_text(weight: str) -> None:
    figure = Figure(figsize=(6, 2), dpi=160)
    text = figure.text(0, 0, "effective_rank\n(higher is better)", fontsize=10, weight=weight)
    drawn = text.get_window_extent().width / figure.dpi
    assert text_width(text.get_text(), 10, "bold" if weight == "bold" else "normal") == pytest.approx(drawn, abs=0.03)
