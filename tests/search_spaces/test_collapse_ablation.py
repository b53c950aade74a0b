"""The collapses and their remedies differ by what is at stake, and by nothing else of a common protocol."""

import pytest

from search_spaces.collapse_ablation import FAILURES, STATES, SWEEP
from sweeper.spec import Grid

PROTOCOL = {"dataset", "encoder", "epochs", "lr", "batch_size", "projection", "few_labels", "geometry"}


def _cells(preset: str) -> dict[tuple[str, str], Grid]:
    """The grid of each cell of the table."""
    cells = {}
    for name, pair in FAILURES.items():
        for state, where in zip(STATES, pair, strict=True):
            (grid,) = (grid for grid in SWEEP.grids(preset) if where.items() <= grid.fixed.items())
            cells[name, state] = grid
    return cells


@pytest.mark.parametrize("preset", SWEEP.presets)
def test_a_collapse_and_its_remedy_share_the_protocol(preset: str) -> None:
    cells = _cells(preset)
    for name in FAILURES:
        collapsed, remedied = (cells[name, state].fixed for state in STATES)
        assert collapsed != remedied
        assert {key: collapsed[key] for key in PROTOCOL} == {key: remedied[key] for key in PROTOCOL}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("no entropy", "entropy_weight"),
        ("symmetric dual", "symmetric"),
        ("small targets", "standardise"),
        ("long kernel", "length"),
        ("two clusters", "entropy_weight"),
        ("leaky MDN", "leaky"),
        ("data as modes", "numerator"),
    ],
)
@pytest.mark.parametrize("preset", SWEEP.presets)
def test_one_key_is_at_stake(preset: str, name: str, key: str) -> None:
    collapsed, remedied = (_cells(preset)[name, state].fixed for state in STATES)
    assert {each for each in (*collapsed, *remedied) if collapsed.get(each) != remedied.get(each)} == {key}
