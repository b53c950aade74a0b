import pytest

from sweeper.report.heatmap_figure import CELL, NAME, HeatmapTexts, Layout, lay_out, line
from sweeper.report.style import PAD, text_width


def layout_of(
    columns: tuple[str, ...] = ("1", "2"), axes: tuple[str, str] = ("beta", "nu"), number: str = "0.5", bar: str = "m"
) -> Layout:
    texts = HeatmapTexts(("1",), columns, axes, ("0.1", "0.2"), bar, ("title", "", "best", "noise\nwidened"))
    return lay_out(texts, [[line(number, 11.5, "bold")] for _ in columns])


def test_cells_grow_with_their_numbers_and_with_the_names_beside_them() -> None:
    assert layout_of().cell == CELL
    assert layout_of(number="123456789.123").cell[0] > CELL[0] and layout_of(number="123456789.123").cell[1] == CELL[1]
    name = "a_hyperparameter_with_a_long_name"
    assert layout_of(axes=("beta", name)).grid[0] == pytest.approx(text_width(name, NAME))
    assert layout_of(axes=(name, "nu")).grid[1] == pytest.approx(text_width(name, NAME))


def test_labels_of_columns_are_slanted_only_if_they_are_wider_than_a_cell() -> None:
    straight, slanted = layout_of(("cat", "dog")), layout_of(("American Staffordshire terrier", "dog"))
    assert not straight.slanted and slanted.slanted
    assert slanted.bottom > straight.bottom and slanted.left > straight.left


def test_lines_above_the_grid_do_not_overlap_and_an_empty_one_has_no_place() -> None:
    layout = layout_of()
    title, empty, best, noise = layout.above_y
    assert layout.bottom + layout.grid[1] < noise < best < empty == title < layout.height - PAD
    assert best - noise > title - best > 0, "the noise has two lines"
