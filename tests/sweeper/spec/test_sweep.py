"""The definition of a sweep."""

from typing import Any

import pytest

from sweeper.errors import SpecError
from sweeper.spec import Grid, Metric, Sweep
from sweeper.spec.views import Heatmap, Table, Trajectory

GRID = Grid(fixed={"method": "vje"}, axes={"beta": (0.0, 1.0)})
AUROC, KNN, LOSS = Metric("auroc", "maximize"), Metric("knn_z", "maximize", percent=True), Metric("loss", "minimize")
HEATMAP = Heatmap(AUROC, "beta", "nu")
TABLE = Table("accuracy", ("method",), (KNN, LOSS))


def sweep(**parts: Any) -> Sweep:
    return Sweep("about", **{"presets": {"paper": GRID, "digits": GRID}, "heatmaps": (HEATMAP,), **parts})


def test_the_first_preset_is_the_default_and_others_go_by_name() -> None:
    small = (GRID, GRID)
    two_presets = sweep(presets={"paper": GRID, "digits": small})
    assert two_presets.preset(None) == ("paper", GRID) and two_presets.preset("digits") == ("digits", small)
    with pytest.raises(SpecError, match=r"no preset 'digit' \(did you mean 'digits'\?\); there are: paper, digits"):
        two_presets.preset("digit")


@pytest.mark.parametrize("parts", [{"presets": {}}, {"heatmaps": ()}, {"presets": {}, "heatmaps": ()}])
def test_a_sweep_has_presets_and_views(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must have at least one preset, and for grids one heatmap or table"):
        sweep(**parts)
    assert sweep(heatmaps=(), tables=(TABLE,)).headline("paper") == KNN


@pytest.mark.parametrize("parts", [{"breakdown": "seed"}, {"correlations": (("auroc", "loss"),)}])
def test_breakdown_and_correlations_are_of_a_heatmap(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a breakdown or correlations need a heatmap, but the sweep has none"):
        sweep(heatmaps=(), tables=(TABLE,), **parts)
    assert sweep(**parts).heatmaps == (HEATMAP,)


def test_views_of_one_kind_have_different_names() -> None:
    """Otherwise they would write the same file."""
    line = Trajectory("accuracy", (KNN,), ("method",))
    assert sweep(tables=(TABLE,), trajectories=(line,)).trajectories == (line,)
    for parts, kind in (({"tables": (TABLE, TABLE)}, "table"), ({"trajectories": (line, line)}, "trajectory")):
        message = f"the names of a sweep's {kind} views must differ, but got accuracy, accuracy"
        with pytest.raises(SpecError, match=message):
            sweep(**parts)


def test_a_preset_has_the_tables_of_its_own_and_those_of_all() -> None:
    tables = (Table("all", ("nu",), (KNN,)), Table("far", ("nu",), (KNN,), presets=("paper",)))
    of_both = sweep(tables=tables)
    assert of_both.for_preset("paper") == of_both
    assert [table.name for table in of_both.for_preset("digits").tables] == ["all"]
    assert of_both.for_preset("digits").heatmaps == (HEATMAP,)
    only = sweep(heatmaps=(), tables=tables[1:])
    with pytest.raises(SpecError, match="at least one preset, and for grids one heatmap or table"):
        only.for_preset("digits")


def test_a_preset_has_the_heatmaps_of_its_own_and_those_of_all() -> None:
    """The first of these is its headline. Two of one metric would write the same file."""
    heatmaps = tuple(Heatmap(LOSS, "beta", column, presets=(column,)) for column in ("paper", "digits"))
    of_both = sweep(heatmaps=(*heatmaps, HEATMAP))
    assert of_both.for_preset("paper").heatmaps == (heatmaps[0], HEATMAP)
    assert sweep(heatmaps=heatmaps[:1], tables=(TABLE,)).headline("paper") == LOSS
    assert sweep(heatmaps=heatmaps[:1], tables=(TABLE,)).headline("digits") == KNN
    message = "a preset has one heatmap of a metric, but digits has those of loss, loss"
    with pytest.raises(SpecError, match=message):
        sweep(heatmaps=(heatmaps[1], Heatmap(LOSS, "nu", "seed")))


def test_the_headline_is_the_metric_of_the_first_view() -> None:
    assert sweep(tables=(TABLE,)).headline("paper") == AUROC
    assert sweep(heatmaps=(), tables=(Table("t", ("nu",), (LOSS, KNN)), TABLE)).headline("paper") == LOSS


def test_axes_by_metric_are_those_of_all_views() -> None:
    axes_by_metric = sweep(
        heatmaps=(HEATMAP, Heatmap(LOSS, "beta", "seed")),
        tables=(TABLE, Table("t", ("nu",), (KNN,), columns="dataset")),
        trajectories=(Trajectory("lines", (LOSS, Metric("knn_mu", "maximize")), ("method", "width")),),
    ).axes_by_metric
    assert {name: set(axes) for name, axes in axes_by_metric.items()} == {
        "auroc": {"beta", "nu"},
        "loss": {"beta", "seed", "method", "width"},
        "knn_z": {"method", "nu", "dataset"},
        "knn_mu": {"method", "width"},
    }


def test_views_go_to_folders_of_their_kind() -> None:
    line = Trajectory("lines", (KNN,), ("method", "width"))
    with_views = sweep(tables=(TABLE,), trajectories=(line,))
    assert with_views.views == {"heatmaps": (HEATMAP,), "tables": (TABLE,), "trajectories": (line,)}
    assert line.key == "method, width"


def test_a_preset_is_a_grid_or_a_search() -> None:
    with pytest.raises(
        SpecError, match=r"^preset 'paper' must be a Grid, a Search or a tuple of them, but it is of type dict$"
    ):
        sweep(presets={"paper": {"beta": (0.0, 1.0)}})
    with pytest.raises(SpecError, match=r"a tuple of them, but one of its parts is of type str$"):
        sweep(presets={"paper": (GRID, "digits")})
