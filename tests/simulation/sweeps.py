"""The small sweeps that worlds run: every kind that there is, of four to twelve trials."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import FloatDistribution

from sweeper.request import Keep, Request
from sweeper.spec import Grid, Metric, Search, Sweep, Table, Value
from sweeper.spec.pruners import Halving
from sweeper.spec.space import Population

LOSS = Metric("nll_excess", "minimize")
FIXED: Mapping[str, Value] = {"method": "jepa_pairs", "dataset": "synthetic_a", "epochs": 4, "examples": 128}
RATE = {"lr": FloatDistribution(1e-3, 1e-1, log=True)}
RATES = (0.01, 0.02, 0.05)


def _grid(*seeds: int, **fixed: Value) -> Grid:
    return Grid({**FIXED, **fixed}, {"lr": RATES, "seed": seeds})


def _search(**options: Any) -> Search:
    fixed = {**FIXED, "epochs": options.pop("epochs", 4)}
    return Search(RATE, fixed, metric=LOSS, **{"trials": 8, "wave": 4, "sampler": "random", **options})


SWEEP = Sweep(
    name="simulated",
    about="sweeps that train nothing",
    presets={
        "grid": _grid(0, 1),
        "grids": (_grid(0, 1), _grid(0, 1, epochs=2, width=32), _grid(0, examples=256)),
        "search": _search(),
        "tpe": _search(sampler="tpe", trials=12),
        "halving": _search(epochs=6, pruner=Halving(first=2, factor=2)),
        "hyperband": _search(epochs=6, trials=9, wave=9, pruner=Halving(first=2, factor=2, brackets=2)),
        "population": _search(trials=4, wave=4, population=Population(every=1)),
        "replicates": _search(trials=4, wave=2, replicates={"seed": (0, 1)}),
        "replicates_halving": _search(
            epochs=6, trials=4, wave=2, replicates={"seed": (0, 1)}, pruner=Halving(first=2, factor=2)
        ),
        "studies": _search(trials=4, wave=2, axes={"weight_decay": (0.0, 0.01)}),
        "mixed": (_grid(0), _search(trials=4, wave=2)),
    },
    figures=(Table("loss", ("lr",), (LOSS,)),),
)


@dataclass(frozen=True)
class Kind:
    """A request that worlds draw."""

    preset: str
    options: tuple[tuple[str, Any], ...] = ()
    """Options of the request, and their values."""

    def request(self, **options: Any) -> Request:
        own = {"keep": "none", **dict(self.options), **options}
        return Request(SWEEP.name, SWEEP, self.preset, **{**own, "keep": Keep(own["keep"])})


PRUNED = ("halving", "hyperband", "replicates_halving")
"""Presets whose trials are pruned."""
KEEPING = (
    *(("grid", "all", ()), ("grid", "best", (("cohort", 2),)), ("grids", "all", (("cohort", 3),))),
    *(("grids", "best", ()), ("search", "all", ()), ("halving", "best", ())),
)
"""Preset, which models it keeps, and how it is cut."""
KINDS = (
    *(Kind(preset) for preset in SWEEP.presets),
    *(
        Kind(preset, (("cohort", size),))
        for preset in ("grid", "grids", "halving", "search", "mixed")
        for size in (1, 2, 3)
    ),
    *(Kind(preset, (("keep", keep), *size)) for preset, keep, size in 2 * KEEPING),
)
