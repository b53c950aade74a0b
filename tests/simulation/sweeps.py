"""The small sweeps that worlds run: every kind that there is, of four to twelve trials."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from sweeper.claims import Claim, Side
from sweeper.definition import Constraint, Grid, Heatmap, Metric, Search, Sweep, Table, Value
from sweeper.definition.pruners import Halving
from sweeper.definition.space import Population, Space, When
from sweeper.option_values import Keep, NodePrice
from sweeper.request import Request

PRICES = {"": 1.0, "A100": 24.0, "T4": 3.0}
"""Kind of the GPUs of a node, empty for cores -> its price per hour."""
LOSS = Metric("nll_excess", "minimize")
FIXED: Mapping[str, Value] = {"method": "jepa_pairs", "dataset": "synthetic_a", "epochs": 4, "examples": 128}
RATE = {"lr": FloatDistribution(1e-3, 1e-1, log=True)}
RATES = (0.01, 0.02, 0.05)
KNN = Metric("knn_z", "maximize")
RANKED = "val_knn_z"
"""The metric that patience waits for, and that ranks epochs."""
IMAGES: Mapping[str, Value] = {
    **{"method": "autoencoder", "dataset": "digits", "epochs": 6, "validation": 0.2, "knn": 5},
}
"""Of trials that have a metric on validation images, by which epochs are ranked."""
OF_IMAGES = ("patient", "pruned_grid")
"""Presets of such trials."""
FORMS = ("returns", "yields", "saves_first", "reports_first")
"""Functions of `tests.simulation.functions`."""
BOUNDS = Constraint("nll_excess", ">=", 0.2), Constraint("loss", "<=", 0.8)
EMA = 0.9
"""The default of `ema`, which is searched where `WIDE` holds."""
WIDE = When("width", 64, {"ema": FloatDistribution(0.5, 0.99)})


def _grid(*seeds: int, **fixed: Value) -> Grid:
    return Grid({**FIXED, **fixed}, {"lr": RATES, "seed": seeds})


def _search(space: Mapping[str, BaseDistribution] = RATE, **options: Any) -> Search:
    fixed = {**FIXED, "epochs": options.pop("epochs", 4)}
    return Search(space, fixed, metric=LOSS, **{"trials": 8, "wave": 4, "sampler": "random", **options})


def _method(form: str) -> str:
    """The method that is a function of `tests.simulation.functions`."""
    return f"tests.simulation.functions:{form}"


def _grid_of_function(form: str, seeds: tuple[int, ...] = (0, 1)) -> Grid:
    return Grid({"method": _method(form)}, {"lr": RATES, "seed": seeds})


def _search_of_function(form: str, **options: Any) -> Search:
    fixed = {"method": _method(form), "epochs": options.pop("epochs", 4)}
    return Search(RATE, fixed, metric=LOSS, **{"trials": 8, "wave": 4, "sampler": "random", **options})


HALVING = Halving(first=2, factor=2)
OLD: Mapping[str, Space] = {
    "grid": _grid(0, 1),
    "grids": (_grid(0, 1), _grid(0, 1, epochs=2, width=32), _grid(0, examples=256)),
    "search": _search(),
    "tpe": _search(sampler="tpe", trials=12),
    "halving": _search(epochs=6, pruner=HALVING),
    "hyperband": _search(epochs=6, trials=9, wave=9, pruner=replace(HALVING, brackets=2)),
    "population": _search(trials=4, wave=4, population=Population(every=1)),
    "replicates": _search(trials=4, wave=2, replicates={"seed": (0, 1)}),
    "replicates_halving": _search(epochs=6, trials=4, wave=2, replicates={"seed": (0, 1)}, pruner=HALVING),
    "studies": _search(trials=4, wave=2, axes={"weight_decay": (0.0, 0.01)}),
    "mixed": (_grid(0), _search(trials=4, wave=2)),
}
"""The presets that worlds have drawn first."""
PRESETS: Mapping[str, Space] = {
    **OLD,
    "diverging": _grid(0, 5),  # with seed 5 trials diverge in the third and in the fourth epoch
    "claimed": _grid(0, 1),
    "pruned_grid": Grid(IMAGES, {"lr": RATES, "weight_decay": (0.0, 0.01), "seed": (0, 1)}, pruner=HALVING),
    "patient": Grid({**IMAGES, "patience_metric": RANKED}, {"lr": RATES[:2], "patience": (0, 1, 2), "seed": (0, 1)}),
    "constrained": _search(sampler="tpe", constraints=BOUNDS),
    "constrained_halving": _search(epochs=6, sampler="tpe", constraints=BOUNDS, pruner=HALVING),
    "conditional": _search(
        {**RATE, "width": CategoricalDistribution((32, 64))}, sampler="tpe", trials=12, conditions=(WIDE,)
    ),
}
FUNCTIONS: Mapping[str, Space] = {
    **{form: _grid_of_function(form) for form in FORMS},
    "diverging_functions": tuple(_grid_of_function(form, seeds=(0, 30)) for form in FORMS),
    "functions": tuple(map(_grid_of_function, FORMS)),
    "impatient": Grid(
        {"method": _method("saves_first"), "epochs": 6}, {"lr": RATES[:2], "patience": (0, 1, 2), "seed": (0, 1)}
    ),
    "yields_search": _search_of_function("yields"),
    "saves_first_search": _search_of_function("saves_first", sampler="tpe", trials=12),
    **{f"{form}_halving": _search_of_function(form, epochs=6, pruner=HALVING) for form in FORMS[1:]},
    "yields_replicates": _search_of_function(
        "yields", epochs=6, trials=4, wave=2, replicates={"seed": (0, 1)}, pruner=HALVING
    ),
    **{
        f"{form}_population": _search_of_function(form, trials=4, wave=4, population=Population(every=1))
        for form in FORMS[2:]
    },
}
"""Presets whose trials are functions."""
OF_ALL = ("functions", "diverging_functions")
"""Presets of all forms; in the latter one trial of each form with epochs diverges."""
SPACES = {**PRESETS, **FUNCTIONS}
LOW = Side(LOSS.name, {"lr": RATES[0]})
SWEEP = Sweep(
    name="simulated",
    about="sweeps that train nothing",
    presets=SPACES,
    claims=(
        Claim("X-01", "clear at two seeds", "1", Side(LOSS.name), ">", -1e6, presets=("claimed",)),
        Claim("X-02", "open for ever, as equal values have no interval", "1", LOW, "~", LOW, 0.1, ("claimed",)),
    ),
    figures=(
        Table("loss", ("lr",), (LOSS,), presets=tuple(name for name in SPACES if name not in OF_IMAGES)),
        Table("knn", ("lr",), (KNN,), presets=OF_IMAGES),
        Heatmap(KNN, "lr", "patience", presets=("patient",)),
    ),
)


@dataclass(frozen=True)
class Kind:
    """A request that worlds draw."""

    preset: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options of the request, and their values."""

    def request(self, **options: Any) -> Request:
        own = {**dict(self.options), **options}
        return Request(SWEEP.name, SWEEP, self.preset, **{**own, "keep": self.keep, "node_price": NodePrice(PRICES)})

    @property
    def keep(self) -> Keep:
        """Which models it keeps: by default none."""
        asked = dict(self.options).get("keep", "none")
        return asked if isinstance(asked, Keep) else Keep(asked)


PRUNED = (
    *("halving", "hyperband", "replicates_halving", "pruned_grid", "constrained_halving"),
    *(f"{form}_halving" for form in FORMS[1:]),
    "yields_replicates",
)
"""Presets whose trials are pruned."""
KEEPING = (
    *(("grid", "all", ()), ("grid", "best", (("cohort", 2),)), ("grids", "all", (("cohort", 3),))),
    *(("grids", "best", ()), ("search", "all", ()), ("halving", "best", ())),
)
"""Preset, which models it keeps, and how it is cut."""
KINDS = (
    *(Kind(preset) for preset in OLD),
    *(
        Kind(preset, (("cohort", size),))
        for preset in ("grid", "grids", "halving", "search", "mixed")
        for size in (1, 2, 3)
    ),
    *(Kind(preset, (("keep", keep), *size)) for preset, keep, size in 2 * KEEPING),
)
LATER = (
    *(Kind(preset, (("cohort", size),)) for preset in ("pruned_grid", "patient", "conditional") for size in (2, 3)),
    *(Kind(preset) for preset in ("pruned_grid", "constrained", "constrained_halving", "conditional")),
    *(Kind(preset, (("keep", "best"),)) for preset in ("pruned_grid", "constrained", "constrained_halving")),
    *(
        Kind("patient", (("keep", keep), ("cohort", size)))
        for keep in (Keep("all"), Keep("best", best_epoch=True), Keep("all", best_epoch=True))
        for size in (2, 3)
    ),
    *(Kind(preset, (("keep", "all"),)) for preset in ("grid", "halving", "population")),
    *(Kind(preset, (("keep", "best"), ("cohort", 2))) for preset in ("grid", "search")),
)
"""Kinds that worlds draw by a stream of their own, so that seeds of the others mean what they meant."""
OF_FUNCTIONS = (
    *(Kind(preset, (("cohort", size),)) for preset in (*FORMS, *OF_ALL, "impatient") for size in (2, 3, 6)),
    *(Kind(preset) for preset in FUNCTIONS),
    *(Kind(f"{form}_halving", (("cohort", size),)) for form in FORMS[1:] for size in (2, 3)),
    *(Kind(preset, (("cohort", size),)) for preset in ("yields_search", "saves_first_search") for size in (2, 4)),
    *(
        Kind(preset, (("keep", keep), ("cohort", size)))
        for preset in ("saves_first", "reports_first", "saves_first_halving")
        for keep in ("all", "best")
        for size in (1, 3)
    ),
    *(Kind("saves_first_population", (("keep", keep),)) for keep in ("all", "best")),
)
"""Kinds whose trials are functions."""
