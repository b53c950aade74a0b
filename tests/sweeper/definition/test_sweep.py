"""The definition of a sweep; its figures, which are checked when they are made; rungs of successive halving."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from sweeper.definition import Grid, Halving, Metric, Population, Pruner, Search, Sweep
from sweeper.definition.figures import Heatmap, Selection, Table, Trajectory
from sweeper.errors import SpecError

GRID = Grid(fixed={"method": "vje"}, axes={"beta": (0.0, 1.0)})
AUROC, KNN, LOSS = Metric("auroc", "maximize"), Metric("knn_z", "maximize", percent=True), Metric("loss", "minimize")
HEATMAP = Heatmap(AUROC, "beta", "nu")
TABLE = Table("accuracy", ("method",), (KNN, LOSS))


def sweep(**parts: Any) -> Sweep:
    return Sweep("about", **{"presets": {"paper": GRID, "digits": GRID}, "figures": (HEATMAP,), **parts})


def test_the_first_preset_is_the_default_and_others_go_by_name() -> None:
    small = (GRID, GRID)
    two_presets = sweep(presets={"paper": GRID, "digits": small})
    assert two_presets.preset(None) == ("paper", GRID) and two_presets.preset("digits") == ("digits", small)
    with pytest.raises(SpecError, match=r"no preset 'digit' \(did you mean 'digits'\?\); there are: paper, digits"):
        two_presets.preset("digit")


@pytest.mark.parametrize("parts", [{"presets": {}}, {"figures": ()}, {"presets": {}, "figures": ()}])
def test_a_sweep_has_presets_and_figures(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must have at least one preset, and for grids one heatmap or table"):
        sweep(**parts)
    line = Trajectory("lines", (KNN,), ("method",))
    with pytest.raises(SpecError, match="one heatmap or table"):
        sweep(figures=(line,))
    assert sweep(figures=(line, TABLE)).headline("paper") == KNN


@pytest.mark.parametrize("parts", [{"breakdown": "seed"}, {"correlations": (("auroc", "loss"),)}])
def test_breakdown_and_correlations_are_of_a_heatmap(parts: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a breakdown or correlations need a heatmap, but the sweep has none"):
        sweep(figures=(TABLE,), **parts)
    assert sweep(**parts).of_kind(Heatmap) == (HEATMAP,)


def test_classes_are_fixed_unless_the_sweep_calls_them_random() -> None:
    presets = {"p": Grid({}, {"normal_class": (0, 1), "beta": (0.5, 1.0)})}
    known = sweep(presets=presets).repeats
    assert (known.drawn, known.fixed) == (("seed",), ("normal_class", "held_out"))
    drawn = sweep(presets=presets, random=("normal_class",)).repeats
    assert (drawn.drawn, drawn.fixed) == (("seed", "normal_class"), ("held_out",))
    with pytest.raises(SpecError, match=r"^no random hyperparameter that a preset sets 'normal_clas' \(did you mean"):
        sweep(presets=presets, random=("normal_clas",))


def test_figures_of_one_kind_and_preset_have_different_names() -> None:
    """Otherwise they would write the same file."""
    line = Trajectory("accuracy", (KNN,), ("method",))
    assert sweep(figures=(TABLE, line)).of_kind(Trajectory) == (line,)
    for two in ((TABLE, TABLE), (TABLE, line, line), (HEATMAP, Heatmap(AUROC, "nu", "seed"))):
        message = f"figures of a preset must differ in kind or name, but paper has two: {two[-1].title}$"
        with pytest.raises(SpecError, match=message):
            sweep(figures=two)
    in_each = (replace(TABLE, presets=("paper",)), replace(TABLE, presets=("digits",)))
    assert sweep(figures=in_each).figures_of("digits") == in_each[1:]


def test_a_preset_has_the_tables_of_its_own_and_those_of_all() -> None:
    tables = (Table("all", ("nu",), (KNN,)), Table("far", ("nu",), (KNN,), presets=("paper",)))
    of_both = sweep(figures=(HEATMAP, *tables))
    assert of_both.for_preset("paper") == of_both
    assert of_both.for_preset("digits").figures == (HEATMAP, tables[0])
    only = sweep(figures=tables[1:])
    with pytest.raises(SpecError, match="at least one preset, and for grids one heatmap or table"):
        only.for_preset("digits")


def test_a_preset_has_the_heatmaps_of_its_own_and_those_of_all() -> None:
    """The first of these is its headline."""
    heatmaps = tuple(Heatmap(LOSS, "beta", column, presets=(column,)) for column in ("paper", "digits"))
    of_both = sweep(figures=(*heatmaps, HEATMAP))
    assert of_both.for_preset("paper").figures == (heatmaps[0], HEATMAP)
    assert sweep(figures=(heatmaps[0], TABLE)).headline("paper") == LOSS
    assert sweep(figures=(heatmaps[0], TABLE)).headline("digits") == KNN


def test_the_headline_is_the_metric_of_the_first_figure_with_cells() -> None:
    line = Trajectory("lines", (KNN,), ("method",))
    assert sweep(figures=(line, HEATMAP, TABLE)).headline("paper") == AUROC
    assert sweep(figures=(Table("t", ("nu",), (LOSS, KNN)), HEATMAP)).headline("paper") == LOSS


def test_axes_by_metric_are_those_of_all_figures() -> None:
    axes_by_metric = sweep(
        figures=(
            HEATMAP,
            Heatmap(LOSS, "beta", "seed"),
            TABLE,
            Table("t", ("nu",), (KNN,), columns="dataset"),
            Trajectory("lines", (LOSS, Metric("knn_mu", "maximize")), ("method", "width")),
        ),
    ).axes_by_metric
    assert {name: set(axes) for name, axes in axes_by_metric.items()} == {
        "auroc": {"beta", "nu"},
        "loss": {"beta", "seed", "method", "width"},
        "knn_z": {"method", "nu", "dataset"},
        "knn_mu": {"method", "width"},
    }


def test_a_preset_is_a_grid_or_a_search() -> None:
    with pytest.raises(
        SpecError, match=r"^preset 'paper' must be a Grid, a Search or a tuple of them, but it is of type dict$"
    ):
        sweep(presets={"paper": {"beta": (0.0, 1.0)}})
    with pytest.raises(SpecError, match=r"a tuple of them, but one of its parts is of type str$"):
        sweep(presets={"paper": (GRID, "digits")})


VIEWS_KNN, VIEWS_LOSS = Metric("knn_z", "maximize", percent=True), Metric("loss", "minimize")


@pytest.mark.parametrize("empty", [{"rows": ()}, {"metrics": ()}])
def test_a_table_has_rows_and_metrics(empty: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^table t must have rows and metrics, but lacks one$"):
        Table(**{"name": "t", "rows": ("nu",), "metrics": (VIEWS_KNN,), **empty})


@pytest.mark.parametrize(
    ("columns", "cells", "message"),
    [
        (
            None,
            {(3.0, "a"): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 1, but got \(3.0, 'a'\)",
        ),
        (None, {3.0: {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got 3.0"),
        (None, {"3": {"knn_z": 1.0}}, "a published cell of table t must be a tuple of length 1, but got '3'"),
        (
            "dataset",
            {(3.0,): {"knn_z": 1.0}},
            r"a published cell of table t must be a tuple of length 2, but got \(3.0,\)",
        ),
        (
            None,
            {(3.0,): {"knn_mu": 1.0}},
            r"table t has a published knn_mu for \(3.0,\), but its metrics are: knn_z, loss",
        ),
    ],
)
def test_published_figures_have_a_place(columns: str | None, cells: dict[Any, Any], message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}$"):
        Table("t", ("nu",), (VIEWS_KNN, VIEWS_LOSS), columns=columns, published={"paper": cells})


def test_published_figures_of_a_heatmap_have_a_place() -> None:
    with pytest.raises(
        SpecError, match=r"a published cell of heatmap of knn_z must be a tuple of length 2, but got 3.0"
    ):
        Heatmap(VIEWS_KNN, "nu", "beta", {"paper": {3.0: 1.0}})  # type: ignore[dict-item]


def test_published_figures_that_have_a_place() -> None:
    Table("t", ("nu",), (VIEWS_KNN, VIEWS_LOSS), published={"paper": {(3.0,): {"knn_z": 1.0}, (1.0,): {}}})
    Table(
        "t", ("nu", "terms"), (VIEWS_KNN,), columns="dataset", published={"paper": {(3.0, "kl", "a"): {"knn_z": 1.0}}}
    )


def test_axes_and_keys_are_hyperparameters_in_their_order() -> None:
    assert Heatmap(VIEWS_KNN, rows="beta", columns="nu").axes == ("beta", "nu")
    assert Trajectory("t", (VIEWS_KNN,), by=("method", "width")).key == "method, width"


NO_KL, KL = (
    Selection({"terms": name}, {"beta": beta, "method": "vje"}) for name, beta in (("no KL", 0.0), ("KL", 1.0))
)


def test_the_hyperparameters_of_a_figure_are_its_axes_or_those_that_select_its_labels() -> None:
    assert Table("t", ("terms",), (VIEWS_KNN,), columns="nu").hyperparameters == ("terms", "nu")
    figures = (
        Table("t", ("terms",), (VIEWS_KNN,), columns="nu", selections=(NO_KL, KL)),
        Heatmap(VIEWS_KNN, "terms", "nu", selections=(NO_KL, KL)),
        Trajectory("t", (VIEWS_KNN,), by=("nu", "terms"), selections=(NO_KL, KL)),
    )
    assert {figure.hyperparameters for figure in figures} == {("nu", "beta", "method")}


@pytest.mark.parametrize(
    ("selections", "message"),
    [
        ((Selection({"term": "KL"}, {}),), r"must label some of its axes \(terms, nu\), but one labels term"),
        ((Selection({}, {"beta": 1.0}),), r"must label some of its axes \(terms, nu\), but one labels none"),
        (
            (KL, Selection({"terms": "KL", "nu": "heavy"}, {})),
            r"must label the same axes, but got terms and terms, nu",
        ),
    ],
)
def test_selections_label_the_same_axes_of_their_figure(selections: tuple[Selection, ...], message: str) -> None:
    with pytest.raises(SpecError, match=f"^the selections of a table t {message}$"):
        Table("t", ("terms", "nu"), (VIEWS_KNN,), selections=selections)


def test_rungs_are_reports_before_the_last_epoch() -> None:
    assert Halving(first=5, factor=3).ladders(epochs=50, report_every=5) == ((5, 15, 45),)
    assert Halving(first=4, factor=3).ladders(epochs=45, report_every=10) == ((10, 20, 40),)
    assert Halving(first=5, factor=3, brackets=2).ladders(epochs=50, report_every=5) == ((5, 15, 45), (15, 45))
    with pytest.raises(SpecError, match=r"needs a report before the last epoch .* there are 0"):
        Halving(first=5).ladders(epochs=50, report_every=50)
    with pytest.raises(SpecError, match="its 4 brackets"):
        Halving(first=5, brackets=4).ladders(epochs=50, report_every=5)


@pytest.mark.parametrize("rule", [{"first": 0}, {"first": 1, "factor": 1}, {"first": 1, "brackets": 0}])
def test_a_pruner_out_of_range_is_refused(rule: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="must hold for a pruner"):
        Halving(**rule)


@pytest.mark.parametrize("rule", [{"every": 0}, {"every": 1, "share": 0.6}, {"every": 1, "factor": 1.0}])
def test_a_population_out_of_range_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must hold for a population"):
        Population(**rule)


class Median(Pruner):
    """The better half goes on at every report."""

    def keep(self, epoch: int, values: Sequence[float]) -> int:
        return (len(values) + 1) // 2


def test_a_pruner_of_ones_own_is_a_class_with_one_method() -> None:
    pruner = Median()
    assert pruner.ladders(epochs=10, report_every=3) == ((3, 6, 9),) and pruner == Median()
    assert pruner.brackets_of([4, 5], 3) == (0, 0) and pruner.reduction == 1
    with pytest.raises(SpecError, match="needs a report before the last epoch"):
        pruner.ladders(epochs=10, report_every=10)


def test_parameters_that_the_id_of_a_study_would_miss_are_refused() -> None:
    class Hidden(Median):
        def __init__(self, share: float) -> None:
            object.__setattr__(self, "share", share)

    with pytest.raises(SpecError, match="fields of a frozen dataclass, but Hidden sets share"):
        Search({"lr": FloatDistribution(0, 1)}, {}, 4, Metric("auroc", "maximize"), wave=2, pruner=Hidden(0.5))


def test_the_name_of_a_pruner_in_the_id_of_a_study_stays() -> None:
    assert repr(Halving(2)) == "Halving(first=2, factor=3, brackets=1)"
