"""How many normal images does a one-class method need? The first question of users with their own images.

All trials train for the same number of steps; a batch has at most as many images as there are normal ones. With your
own images: `sweeper run normal_images --set dataset=folder --normal-class good --axis normal_images=10,30,0`, where 0
is all.
"""

from collections.abc import Mapping

from search_spaces import _assumptions as assumed
from search_spaces import _one_class_protocols as protocols
from search_spaces._one_class_protocols import BEST_ON_TEST, CHOSEN, Keys
from sweeper.definition import Grid, Selection, Sweep, Table

DIGITS: Mapping[int, tuple[int, int]] = {10: (10, 100), 30: (30, 100), 0: (48, 50)}
FASHION: Mapping[int, tuple[int, int]] = {
    10: (10, 800), 30: (30, 800), 100: (48, 400), 300: (48, 134), 1000: (48, 40), 0: (48, 8),
}  # fmt: skip
"""Number of normal images (0 for all) -> batch size and epochs, which make 800 to 804 steps (digits: 100)."""


def _grids(protocol: Keys, counts: Mapping[int, tuple[int, int]]) -> tuple[Grid, ...]:
    return tuple(
        grid
        for count, (size, epochs) in counts.items()
        for grid in protocols.method_grids(
            {**protocol, "normal_images": count, "batch_size": size, "epochs": epochs, "report_every": epochs},
            protocols.small(protocols.FEW, epochs),
        )
    )


def _tables(preset: str, counts: Mapping[int, tuple[int, int]]) -> tuple[Table, ...]:
    selections = tuple(Selection({"images": str(count or "all")}, {"normal_images": count}) for count in counts)
    return tuple(
        Table(name, ("method",), (metric,), columns="images", presets=(preset,), selections=selections)
        for name, metric in (("normal_images", CHOSEN), ("best_on_test", BEST_ON_TEST))
    )


SWEEP = Sweep(
    about="one-class AUROC over the number of normal training images",
    presets={"digits": _grids(protocols.DIGITS, DIGITS), "fashion": _grids(protocols.FASHION, FASHION)},
    paper=assumed.VJE,
    figures=(*_tables("digits", DIGITS), *_tables("fashion", FASHION)),
)
