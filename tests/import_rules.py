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
STORAGE = (
    "sweeper.storage.io.files",
    "sweeper.storage.schema",
    "sweeper.storage.arrow_tables",
    "sweeper.storage.store",
    "sweeper.report.heatmap",
    "sweeper.report.summary",
)
STORE_PARTS = (
    "sweeper.storage.io.address",
    "sweeper.storage.io.local_disk",
    "sweeper.storage.io.filesystem",
    "sweeper.storage.io.store_identity",
    "sweeper.storage.io.retry",
)
STUDY = ("sweeper.spec.grid", "sweeper.spec.metric", "sweeper.spec.schedulers", "sweeper.spec.search")
PLAN = ("sweeper.spec.sweep", "sweeper.plan.trials", "sweeper.plan.cohorts", "sweeper.packing.packer")
METHOD = ("trainables.methods", "trainables.losses", "trainables.networks")
LOOP = (
    "torch", "numpy", "psutil", "trainables.contract", "trainables.validation", "trainables.config.trial", "trainables.learners.streams",
    "trainables.config.sections", "trainables.learners.data_parallel", "trainables.training.evaluators",
    "trainables.learners.optimisers", "trainables.learners.stack", "trainables.profiling.throughput", "trainables.data", "trainables.evaluation",
    "trainables.training.cohort", "trainables.training.checkpoint", "trainables.training.standing", "trainables.learners.lr_schedule", "trainables.training.population",
    "trainables.catalog", "trainables.networks", "trainables.training.checkpointing", "trainables.worker.memory_limit", "trainables.worker.step_watchdog",
    "trainables.evaluation.metrics",
)  # fmt: skip
