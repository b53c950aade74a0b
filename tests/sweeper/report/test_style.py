"""How a figure becomes a PNG."""

import io

from matplotlib.figure import Figure

from sweeper.report.style import PAD, png


def test_the_picture_is_the_one_of_matplotlibs_own_tight_box() -> None:
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.6, 0.5))
    axes.plot([0, 1], [0, 1e6])
    axes.set_ylabel("a label that lies outside")
    figure.text(0.1, 1.1, "above")
    picture = png(figure)
    expected = io.BytesIO()
    figure.savefig(expected, format="png", dpi=160, facecolor="white", bbox_inches="tight", pad_inches=PAD)
    assert picture == expected.getvalue()
