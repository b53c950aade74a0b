"""A first-in-first-out queue of negatives compared with a particle bank (GMJE 5.2.1: SMC-GMJE beside MoCo v2).

The queue contains the keys of the latest batches. The bank is resampled from its particles and the batch's keys by
their similarity to the queries. Only a bank has an effective sample size, because the keys of a queue have no weights.
The effective sample size ignores that many particles are copies; the share of distinct particles and their age show
this.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as claimed
from search_spaces import _gmje_protocols as protocols
from search_spaces import _gmje_values as printed
from search_spaces._protocols import GEOMETRY, KNN, PROBE, PROBE_5, SEEDS, Keys
from sweeper.definition import Assumption, Grid, Metric, Sweep, Table, Trajectory, Value

NAME = "memory_bank"
RESAMPLING = ("multinomial", "systematic", "alias")


def _grids(protocol: Keys, sizes: tuple[Value, ...], seeds: tuple[int, ...]) -> tuple[Grid, ...]:
    """Queues and banks of these sizes."""
    seeds_axis: dict[str, tuple[Value, ...]] = {"seed": seeds}
    return (
        Grid({**protocol, "method": "moco_v2"}, {"queue": sizes, **seeds_axis}),
        Grid({**protocol, "method": "smc_gmje"}, {"resampling": RESAMPLING, "bank": sizes, **seeds_axis}),
    )


PAPER: Keys = {**protocols.CIFAR10, **printed.values(NAME), "few_labels": 5, "probe_curve": True}
(SIZE,) = {*printed.values(NAME, "moco_v2").values(), *printed.values(NAME, "smc_gmje").values()}
"""Of queue and bank."""
DIGITS: Keys = {
    **protocols.DIGITS,
    "tau": 0.1,
    "ema": 0.99,
    "projector_width": 0,
    "report_every": 4,
    "probe_curve": True,
}

NEGATIVES = ("method", "resampling", "queue", "bank")
PUBLISHED = {
    ("moco_v2", None, SIZE, None): {"probe_z": 78.08},
    ("smc_gmje", "multinomial", None, SIZE): {"probe_z": 81.99},
}
LOSS = Metric("loss", "minimize")
BANK = (Metric("ess"), Metric("bank_distinct", percent=True), Metric("bank_age"))

ASSUMED = (
    assumed.REPORTS,
    *printed.not_legible(NAME),
    Assumption("the paper names all three (4.7.3), and not the one that its experiment has", ("resampling",)),
    assumed.CROPS,
    assumed.NO_PROBE_VIEWS,
    assumed.MEASURED,
)

SWEEP = Sweep(
    about="a queue of negatives (MoCo v2) compared with a bank of resampled particles (SMC-GMJE), by its size",
    presets={
        "paper": _grids(PAPER, (SIZE,), printed.seeds(NAME)[:1]),
        "digits": _grids(DIGITS, (16, 128), SEEDS),
        "paper_sizes": _grids(PAPER, (64, 256), SEEDS),
    },
    paper=assumed.GMJE,
    assumptions={"paper": ASSUMED},
    figures=(
        Table("accuracy", NEGATIVES, (PROBE, PROBE_5, KNN, LOSS, *BANK), published={"paper": PUBLISHED}, place="5.2.1"),
        Table("embeddings", NEGATIVES, GEOMETRY),
        Trajectory("training", (LOSS, PROBE, *BANK), by=NEGATIVES, place="Fig. 8"),
        Trajectory("accuracy", (PROBE, PROBE_5, KNN), by=NEGATIVES),
    ),
    claims=claimed.MEMORY_BANK,
)
