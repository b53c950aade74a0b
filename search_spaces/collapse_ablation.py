"""The collapses that the paper on joint embeddings proves or warns of, as trials, each beside its remedy (GMJE,
appendices E, G, I, M and O).

Under the exact likelihood embeddings shrink. Without an entropy, or if the likelihood does not require images to
differ, they collapse to one point, a few dimensions or two clusters. `trace` is 0 if all embeddings have the same
direction; `effective_rank` then describes the remainder, which may be rounding noise. `volume` is small in both cases.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as claimed
from search_spaces import _gmje_protocols as protocols
from search_spaces._protocols import COSINE, NORM, PROBE, PROBE_5, RANK, SEEDS, TRACE, VOLUME, Keys
from sweeper.definition import Grid, Heatmap, Metric, Selection, Sweep, Table, Trajectory

NLL: Keys = {"method": "gje", "objective": "nll", "unit_length": False}
DUAL: Keys = {"method": "gpje", "standardise": True, "symmetric": False, "random_features": 0}
DUAL_FIXED: Keys = {"ema": 0.99, "epsilon": 0.1}
RFF: Keys = {"method": "gpje", "standardise": True, "random_features": 256}
MDN: Keys = {"method": "gmje_mdn", "objective": "entropy", "leaky": False}

ALIGNED: Keys = {"method": "gje", "objective": "alignment", "entropy_weight": 1.0}
FAILURES: dict[str, tuple[Keys, Keys]] = {
    "trace trap": ({**NLL, "decoupled": False}, ALIGNED),
    "logdet cheat": ({**NLL, "decoupled": True}, ALIGNED),
    "no entropy": ({**ALIGNED, "entropy_weight": 0.0}, ALIGNED),
    "symmetric dual": ({**DUAL, "symmetric": True}, DUAL),
    "small targets": ({**DUAL, "standardise": False}, DUAL),
    "long kernel": ({**RFF, "length": 30.0}, {**RFF, "length": 0.7}),
    "two clusters": ({"method": "hsic", "entropy_weight": 0.0}, {"method": "hsic", "entropy_weight": 0.1}),
    "literal MDN": ({"method": "gmje_mdn", "objective": "literal"}, MDN),
    "leaky MDN": ({**MDN, "leaky": True}, MDN),
    "data as modes": (
        {"method": "dam_gmje", "numerator": "all"},
        {"method": "dam_gmje", "numerator": "matching"},
    ),
}
"""Name of a collapse -> hyperparameters of the trials that show it, and of the trials with the remedy.

- trace trap: the exact likelihood under the batch's own moment, whose quadratic form is constant. Remedy: alignment and
  entropy of unit vectors.
- logdet cheat: the exact likelihood under a moving average without a gradient.
- no entropy: alignment alone.
- symmetric dual: a Gaussian process with gradients through its targets. Remedy: a target network with standardised
  targets.
- small targets: a target network, but targets of unit length, which the noise explains. Remedy: variance 1 in each
  dimension, as the process expects.
- long kernel: random features of a kernel with a length scale far larger than the sphere. Remedy: a length of 0.7.
- two clusters: HSIC alone. Remedy: the entropy term.
- literal MDN: the paper's Eq. 23, whose marginal term is no barrier. Remedy: the entropies of both views.
- leaky MDN: a parameter network that sees the target. Remedy: the bottleneck. The entropies keep the rank, so only
  `loss_nll` and `cosine` show this collapse.
- data as modes: the exact conditional density, which is largest if all images coincide. Remedy: only the image's own
  mode in the numerator, which is InfoNCE.
"""
OWN: dict[str, Keys] = {"gpje": DUAL_FIXED, "dam_gmje": {"tau": 0.5}}
"""Method -> settings of all of its trials."""
STATES = ("collapsed", "remedied")
EXTRA: dict[str, Keys] = {"logdet cheat": {"ema": 0.9}}
"""Failure -> settings of its collapsed trials besides those that select them."""
SELECTIONS = tuple(
    Selection({"failure": name, "state": state}, where)
    for name, pair in FAILURES.items()
    for state, where in zip(STATES, pair, strict=True)
)


def _grids(protocol: Keys, parameter_width: int) -> tuple[Grid, ...]:
    """One grid for each distinct setting, over the seeds, and one of an untrained encoder."""
    widths: dict[str, Keys] = {"gmje_mdn": {"parameter_width": parameter_width}}
    grids: dict[frozenset[object], Grid] = {}
    for name, pair in FAILURES.items():
        for state, where in zip(STATES, pair, strict=True):
            method = str(where["method"])
            own = {
                **OWN.get(method, {}),
                **widths.get(method, {}),
                **(EXTRA.get(name, {}) if state == STATES[0] else {}),
            }
            grid = Grid({**protocol, **own, **where}, {"seed": SEEDS})
            grids.setdefault(frozenset(grid.fixed.items()), grid)
    encoder = {key: value for key, value in protocol.items() if key not in ("projector_width", "projection")}
    untrained = Grid({**encoder, "method": "random", "epochs": 0}, {"seed": SEEDS}, pinned=frozenset({"epochs"}))
    return (*grids.values(), untrained)


ACCURACIES, GEOMETRY = (PROBE, PROBE_5), (RANK, TRACE, NORM, COSINE)
UNTRAINED = (Selection({"encoder state": "untrained"}, {"method": "random"}),)
MIXTURE_DENSITY = tuple(selection for selection in SELECTIONS if selection.labels["failure"].endswith("MDN"))


def _lines(state: int) -> tuple[Selection, ...]:
    """A selection for the line of each collapse or of its remedy."""
    return tuple(Selection({"failure": name}, pair[state]) for name, pair in FAILURES.items())


SWEEP = Sweep(
    about="collapses of Gaussian joint embeddings that the paper proves or warns of, each beside its remedy",
    presets={
        "paper": _grids(protocols.COLLAPSE, 512),
        "digits": _grids(protocols.COLLAPSE_DIGITS, 128),
    },
    paper=assumed.GMJE,
    assumptions={"paper": (assumed.NO_EXPERIMENT, assumed.SEED, assumed.REPORTS, assumed.MEASURED)},
    figures=(
        Heatmap(PROBE_5, "failure", "state", selections=SELECTIONS),
        Heatmap(VOLUME, "failure", "state", selections=SELECTIONS),
        Table("collapse", ("failure",), (*GEOMETRY, *ACCURACIES), columns="state", selections=SELECTIONS, place="O"),
        Table(
            "likelihood", ("failure",), (Metric("loss_nll"),), columns="state", selections=MIXTURE_DENSITY, place="G, O"
        ),
        Table("untrained", ("encoder state",), (*GEOMETRY, *ACCURACIES), selections=UNTRAINED),
        *(
            Trajectory(name, (RANK, TRACE, NORM), by=("failure",), selections=_lines(state))
            for state, name in enumerate(STATES)
        ),
    ),
    over="seeds",
    claims=claimed.COLLAPSE_ABLATION,
)
