"""A sweep of four trials of one epoch on the digits, in two cohorts, with a table."""

from sweeper.spec import Grid, Metric, Sweep, Table, Value

FIXED: dict[str, Value] = {
    "method": "vje", "dataset": "digits", "normal_class": 0, "validation": 0.2, "epochs": 1, "batch_size": 30,
    "encoder": "mlp", "width": 16, "features": 8, "bottleneck": 8, "lr": 0.02,
}  # fmt: skip
TINY = Sweep(
    about="four trials",
    presets={"digits": Grid(FIXED, {"beta": (0.5, 1.5), "seed": (0, 1)})},
    tables=(Table("auroc", ("beta",), (Metric("auroc_joint", "maximize"),)),),
)
