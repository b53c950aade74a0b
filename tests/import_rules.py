"""What a row of the table of imports says, and the groups of modules that its rows name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What the modules of one row import besides the standard library."""

    may: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


LAUNCHERS = ("ray", "pandas", "pyarrow", "optuna", "sweeper", "search_spaces")
"""What trainables run without."""
PLANNING = ("torch", "ray", "pandas", "pyarrow", "trainables")
"""What a plan is made without."""
STORAGE = ("sweeper.files", "sweeper.schema", "sweeper.rows", "sweeper.store", "sweeper.heatmap", "sweeper.summary")
STORE_PARTS = ("sweeper.address", "sweeper.disk", "sweeper.filesystem", "sweeper.identity", "sweeper.patience")
STUDY = ("sweeper.grid", "sweeper.metric", "sweeper.rules", "sweeper.study")
PLAN = ("sweeper.spec", "sweeper.trials", "sweeper.cohorts", "sweeper.packing")
METHOD = ("trainables.methods", "trainables.losses", "trainables.networks")
LOOP = (
    "torch", "numpy", "psutil", "trainables.contract", "trainables.checks", "trainables.config", "trainables.streams",
    "trainables.sections", "trainables.peers", "trainables.evaluate",
    "trainables.optimiser", "trainables.fuse", "trainables.measure", "trainables.data", "trainables.evaluation",
    "trainables.cohort", "trainables.checkpoint", "trainables.standing", "trainables.schedule", "trainables.population",
    "trainables.catalog", "trainables.networks", "trainables.saving", "trainables.limits", "trainables.watch",
    "trainables.metrics",
)  # fmt: skip
