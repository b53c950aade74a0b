"""How clean must the training images of a one-class method be? A share of the images are anomalies.

With your own images, whose training images include anomalies: `sweeper run contamination --set dataset=folder
--normal-class good`.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _one_class_protocols as protocols
from search_spaces._one_class_protocols import BEST_ON_TEST, CHOSEN, REPLICATES
from sweeper.definition import Selection, Sweep, Table, Value

SHARES: tuple[Value, ...] = (0.0, 0.01, 0.05, 0.1)
AXES = {"contamination": SHARES, **REPLICATES}
SELECTIONS = tuple(Selection({"anomalies": f"{share:.0%}"}, {"contamination": share}) for share in SHARES)

SWEEP = Sweep(
    about="one-class AUROC over the share of anomalies among the training images",
    presets={
        "digits": protocols.method_grids(protocols.DIGITS, protocols.small(protocols.FEW, 50), AXES),
        "fashion": protocols.method_grids(protocols.FASHION, protocols.small(protocols.FEW, 8), AXES),
    },
    paper=assumed.VJE,
    figures=(
        Table("contamination", ("method",), (CHOSEN,), columns="anomalies", selections=SELECTIONS),
        Table("best_on_test", ("method",), (BEST_ON_TEST,), columns="anomalies", selections=SELECTIONS),
    ),
)
