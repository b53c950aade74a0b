"""Weight (lambda) and form of GJE's entropy: which alignment and entropy give a good balance?

The squared distance is summed or averaged over dimensions. The entropy is that of the joint embedding, which opposes
alignment, or the sum of both views' entropies, which does not (GJE, appendix G). `entropy_weight` is `2 P lambda`, so 1
is `lambda = 1/(2P)`. The paper's lambda is not legible in our copy.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as claimed
from search_spaces import _gmje_protocols as protocols
from search_spaces._protocols import COSINE, PROBE, PROBE_5, RANK, SEEDS, Keys
from sweeper.definition import Grid, Heatmap, Selection, Sweep, Table, Trajectory, Value

WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
SELECTIONS = tuple(
    Selection({"form": f"{entropy}, {error}"}, {"entropy": entropy, "element_mean": error == "mean"})
    for entropy in ("joint", "marginal")
    for error in ("sum", "mean")
)


def _grid(protocol: Keys) -> Grid:
    axes: dict[str, tuple[Value, ...]] = {
        "entropy": ("joint", "marginal"),
        "element_mean": (False, True),
        "entropy_weight": WEIGHTS,
        "seed": SEEDS,
    }
    return Grid({**protocol, "method": "gje"}, axes)


SWEEP = Sweep(
    about="GJE over the weight and form of its entropy: squared error summed or averaged, entropy joint or marginal",
    presets={"paper": _grid(protocols.COLLAPSE), "digits": _grid(protocols.COLLAPSE_DIGITS)},
    paper=assumed.GMJE,
    assumptions={"paper": (assumed.NO_EXPERIMENT, assumed.SEED, assumed.REPORTS, assumed.MEASURED)},
    figures=(
        *(
            Heatmap(metric, "form", "entropy_weight", selections=SELECTIONS)
            for metric in (PROBE_5, PROBE, COSINE, RANK)
        ),
        Table(
            "balance", ("form", "entropy_weight"), (COSINE, RANK, PROBE, PROBE_5), selections=SELECTIONS, place="O.4"
        ),
        Trajectory("balance", (COSINE, RANK), by=("form",), selections=SELECTIONS),
    ),
    over="seeds",
    claims=claimed.LAMBDA_ABLATION,
)
