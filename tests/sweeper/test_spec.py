import math

import pytest

from sweeper import spec
from sweeper.spec import Grid, Heatmap, Metric, SpecError, Sweep

GRID = Grid(fixed={"method": "vje", "epochs": 5}, axes={"beta": (0.0, 1.0), "nu": (0.5, 3.0, math.inf)})


def test_a_grid_is_the_product_of_its_axes_and_the_last_varies_fastest() -> None:
    found = list(GRID.combinations())
    assert len(found) == 6 and len({tuple(one.items()) for one in found}) == 6
    assert [one["nu"] for one in found] == [0.5, 3.0, math.inf] * 2
    assert [one["beta"] for one in found] == [0.0] * 3 + [1.0] * 3
    assert all(one["epochs"] == 5 and one["method"] == "vje" for one in found)


def test_a_grid_without_axes_is_one_trial() -> None:
    assert list(Grid({"epochs": 5}, {}).combinations()) == [{"epochs": 5}]


def test_what_is_set_replaces_an_axis_and_what_is_varied_replaces_a_constant() -> None:
    changed = GRID.changed({"nu": 2.0, "lr": 0.1}, {"epochs": (1, 2)})
    assert changed.fixed == {"method": "vje", "nu": 2.0, "lr": 0.1}
    assert changed.axes == {"beta": (0.0, 1.0), "epochs": (1, 2)}
    assert GRID.axes["nu"] == (0.5, 3.0, math.inf) and GRID.fixed["epochs"] == 5


def test_an_axis_keeps_its_place_when_its_values_change() -> None:
    assert list(GRID.changed({}, {"beta": (2.0,)}).axes) == ["beta", "nu"]


@pytest.mark.parametrize(
    ("fixed", "axes", "law"),
    [
        ({}, {"nu": ()}, "axis nu must have at least one value"),
        ({}, {"nu": (1.0, 2.0, 1.0)}, "axis nu must differ, but 1.0 is there twice"),
        ({}, {"nu": (1, 1.0)}, "axis nu must differ"),
        ({"nu": 1.0}, {"nu": (1.0,)}, "nu must be either fixed or an axis"),
    ],
)
def test_a_grid_that_makes_no_sense_is_refused(
    fixed: dict[str, spec.Value], axes: dict[str, tuple[spec.Value, ...]], law: str
) -> None:
    with pytest.raises(SpecError, match=law):
        Grid(fixed, axes)


def test_a_key_cannot_be_set_and_varied() -> None:
    with pytest.raises(SpecError, match="nu must be either set or an axis"):
        GRID.changed({"nu": 1.0}, {"nu": (1.0, 2.0)})


def test_the_first_preset_is_the_default_and_others_go_by_name() -> None:
    heatmap = Heatmap(Metric("auroc", "maximize"), "beta", "nu")
    small = Grid({}, {})
    sweep = Sweep("about", presets={"paper": GRID, "digits": small}, heatmaps=(heatmap,))
    assert sweep.preset(None) == ("paper", GRID) and sweep.preset("digits") == ("digits", small)
    with pytest.raises(SpecError, match=r"no preset 'digit' \(did you mean 'digits'\?\); there are: paper, digits"):
        sweep.preset("digit")
    with pytest.raises(SpecError, match="at least one preset and one heatmap"):
        Sweep("about", presets={"paper": GRID}, heatmaps=())


def test_every_sweep_that_ships_is_found_by_its_name() -> None:
    assert "anomaly_grid" in spec.names()
    for name in spec.names():
        assert isinstance(spec.find(name), Sweep)


def test_the_anomaly_grid_is_560_models_in_both_presets() -> None:
    sweep = spec.find("anomaly_grid")
    assert [len(list(grid.combinations())) for grid in sweep.presets.values()] == [560, 560]


def test_an_unknown_sweep_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(
        SpecError, match=r"no sweep 'anomaly_gird' \(did you mean 'anomaly_grid'\?\); there are: .*grid"
    ):
        spec.find("anomaly_gird")
    with pytest.raises(SpecError, match=r"no sweep 'os'; there are"):
        spec.find("os")
