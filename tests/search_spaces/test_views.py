"""The views of every grid show metrics that its trials report, and cells whose trials are alike."""

from collections.abc import Mapping

from sweeper.spec import Selection, Value, registry
from sweeper.spec.views import Heatmap, Table
from tests.search_spaces.grids import all_configs_of, each_preset, metrics_of
from trainables.config import keys

GIVEN_WEIGHTS = {"fid"}
"""Metrics that trials report only if the user provides the weights of a network."""


@each_preset
def test_every_metric_of_a_view_is_reported(name: str, preset: str) -> None:
    sweep, reported = registry.find(name).for_preset(preset), metrics_of(name, preset)
    known = {key for config in all_configs_of(name, preset) for key in keys(config.method)}
    assert set(sweep.axes_by_metric) - GIVEN_WEIGHTS <= reported, set(sweep.axes_by_metric) - reported
    assert {axis for axes in sweep.axes_by_metric.values() for axis in axes} <= known
    assert {metric for pair in sweep.correlations for metric in pair} <= reported
    assert sweep.breakdown is None or sweep.breakdown in known
    headline = sweep.headline(preset)
    assert headline.name in reported
    assert headline.direction == ("minimize" if name in ("simvae_generation", "synthetic_alignment") else "maximize")


@each_preset
def test_every_varied_key_is_an_axis_or_averaged_on_purpose(name: str, preset: str) -> None:
    """Trials in one cell of a table or heatmap differ only in what the cell averages over: seeds or classes.

    Keys that follow from the method or the data set, such as STL-10's blur, do not differ within a cell.
    """
    sweep, flats = registry.find(name).for_preset(preset), [config.flat() for config in all_configs_of(name, preset)]
    views: list[Table | Heatmap] = [*sweep.tables, *sweep.heatmaps]
    for view in views:
        for cell in cells_of(view, flats).values():
            differing = {key for flat in cell for key in flat if flat[key] != cell[0].get(key)}
            assert differing <= {"seed", "held_out", "normal_class"}, (view.hyperparameters, differing)


def cells_of(view: Table | Heatmap, flats: list[dict[str, Value]]) -> dict[object, list[Mapping[str, object]]]:
    """The trials of each cell of a view, by the labels or values of its axes."""
    cells: dict[object, list[Mapping[str, object]]] = {}
    for selection in view.selections or (Selection({}, {}),):
        for flat in flats:
            if all(flat.get(key) == value for key, value in selection.where.items()):
                cell = tuple(selection.labels.get(axis, flat.get(axis)) for axis in view.axes)
                cells.setdefault(cell, []).append(flat)
    return cells


@each_preset
def test_every_selection_has_trials_and_each_of_its_keys_is_one_of_theirs(name: str, preset: str) -> None:
    sweep, flats = registry.find(name).for_preset(preset), [config.flat() for config in all_configs_of(name, preset)]
    views: list[Table | Heatmap] = [*sweep.tables, *sweep.heatmaps]
    for selection in {id(selection): selection for view in views for selection in view.selections}.values():
        selected = [flat for flat in flats if all(flat.get(key) == value for key, value in selection.where.items())]
        assert selected and all(key in selected[0] for key in selection.where), selection
