"""Who may import whom: a row a folder, lowest first. `test_imports` keeps it by reading the source."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What the modules of a folder import besides the standard library and each other."""

    may: tuple[str, ...] = ()
    """Libraries, and rows above."""
    never: tuple[str, ...] = ()
    """Libraries that are not imported with anything that is imported either."""
    alone: bool = False
    """Whether its modules may not import each other."""


LAUNCHERS = ("ray", "pandas", "pyarrow", "optuna")
"""What models are trained without."""
LOOP = (
    *("torch", "trainables.contract", "trainables.reports", "trainables.evaluation", "trainables.catalog"),
    *("trainables.config", "trainables.learners", "trainables.tasks"),
)

TABLE: Mapping[str, Rule] = {
    "trainables": Rule(alone=True),
    "trainables.validation": Rule(never=("torch", *LAUNCHERS)),
    "trainables.reports": Rule(never=("torch", *LAUNCHERS)),
    "trainables.contract": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.config.training": Rule(may=("trainables.validation",), never=("torch", *LAUNCHERS)),
    "trainables.config.trial_config": Rule(may=("trainables.config.training",), never=("torch", *LAUNCHERS)),
    "trainables.losses.linear_algebra": Rule(may=("torch",), never=("torch.distributed", *LAUNCHERS)),
    "trainables.losses": Rule(
        may=("torch", "trainables.losses.linear_algebra"), never=("torch.distributed", *LAUNCHERS), alone=True
    ),
    "trainables.networks": Rule(may=("torch", "torchvision", "trainables.validation"), never=LAUNCHERS),
    "trainables.families": Rule(
        may=(
            *("torch", "numpy", "trainables.validation", "trainables.contract", "trainables.losses"),
            "trainables.networks",
        ),
        never=LAUNCHERS,
        alone=True,
    ),
    "trainables.data.errors": Rule(never=("torch", *LAUNCHERS)),
    "trainables.data.augmentation": Rule(may=("torch", "trainables.validation"), never=LAUNCHERS),
    "trainables.data.image_files": Rule(
        may=("torch", "numpy", "PIL", "trainables.data.errors", "trainables.data.augmentation"), never=LAUNCHERS
    ),
    "trainables.data.datasets": Rule(
        may=(
            *("torch", "torchvision", "numpy", "sklearn", "PIL", "filelock", "trainables.validation"),
            *("trainables.data.errors", "trainables.data.image_files"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.data": Rule(may=("torch", "trainables.validation"), never=LAUNCHERS),
    "trainables.methods": Rule(
        may=(
            *("torch", "trainables.validation", "trainables.contract", "trainables.losses", "trainables.networks"),
            *("numpy", "sklearn", "trainables.families"),
        ),
        never=LAUNCHERS,
        alone=True,
    ),
    "trainables.evaluation.metric_families": Rule(never=("torch", *LAUNCHERS)),
    "trainables.evaluation.metrics": Rule(may=("trainables.evaluation.metric_families",), never=("torch", *LAUNCHERS)),
    "trainables.evaluation": Rule(
        may=(
            *("torch", "numpy", "scipy", "sklearn", "trainables.validation", "trainables.contract"),
            "trainables.losses",
        ),
        never=LAUNCHERS,
    ),
    "trainables.evaluation.generation": Rule(
        may=(
            *("torch", "numpy", "PIL", "sklearn", "torchmetrics", "trainables.validation", "trainables.losses"),
            *("trainables.data", "trainables.evaluation"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.learners": Rule(may=("torch", "trainables.contract", "trainables.reports"), never=LAUNCHERS),
    "trainables.tasks": Rule(
        may=(
            *("torch", "numpy", "trainables.validation", "trainables.contract", "trainables.networks"),
            *("trainables.data", "trainables.evaluation", "trainables.learners"),
            *("trainables.config.training", "trainables.config.trial_config"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.method_loading": Rule(may=("trainables.contract",), never=LAUNCHERS),
    "trainables.catalog": Rule(
        may=(
            "trainables.contract",
            "trainables.method_loading",
            "trainables.validation",
            "trainables.methods",
            "trainables.tasks",
        ),
        never=LAUNCHERS,
    ),
    "trainables.config": Rule(may=("trainables.validation", "trainables.catalog"), never=LAUNCHERS),
    "trainables.training.model_metadata": Rule(may=("trainables.reports",), never=("torch", *LAUNCHERS)),
    "trainables.training.model_file": Rule(
        may=(
            *("torch", "safetensors", "trainables.contract", "trainables.reports", "trainables.catalog"),
            *("trainables.config", "trainables.training.model_metadata"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.training": Rule(
        may=(*LOOP, "trainables.validation", "trainables.method_loading", "trainables.training.model_file"),
        never=LAUNCHERS,
    ),
    "trainables.profiling.measurement": Rule(never=("torch", *LAUNCHERS)),
    "trainables.profiling": Rule(may=("torch", "psutil", "trainables.config", "trainables.training"), never=LAUNCHERS),
    "trainables.worker": Rule(may=(*LOOP, "trainables.training", "trainables.profiling"), never=LAUNCHERS),
    "trainables.worker.ray_train": Rule(
        may=("ray", *LOOP, "trainables.training", "trainables.profiling", "trainables.worker"),
        never=("pandas", "pyarrow", "optuna"),
    ),
    "sweeper.errors": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.names": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.version": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.spec": Rule(
        may=(
            *("optuna.distributions", "search_spaces", "sweeper.errors", "sweeper.names"),
            *("trainables.evaluation.metric_families", "trainables.evaluation.metrics", "trainables.validation"),
        ),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "search_spaces": Rule(may=("optuna.distributions", "sweeper.spec"), never=("torch", "ray")),
    "sweeper.storage.io": Rule(may=("pyarrow", "tenacity", "sweeper.errors"), never=("torch", "ray", "optuna")),
    "sweeper.storage": Rule(
        may=(
            *("pyarrow", "pandas", "sweeper.errors", "sweeper.names", "trainables.validation", "trainables.reports"),
            "trainables.training.model_metadata",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.plan": Rule(
        may=("sweeper.errors", "sweeper.spec", "sweeper.storage", "trainables.worker.messages"),
        never=("torch", "ray", "optuna", "pandas"),
    ),
    "sweeper.pruning": Rule(may=("sweeper.spec",), never=("torch", *LAUNCHERS)),
    "sweeper.pruning.rung_client": Rule(
        may=("ray", "trainables.reports", "sweeper.pruning"), never=("pandas", "optuna")
    ),
    "sweeper.trackers": Rule(
        may=(
            *("tensorboardX", "mlflow", "wandb", "sweeper.errors", "sweeper.spec", "sweeper.storage"),
            "sweeper.plan",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.report": Rule(
        may=("pandas", "numpy", "matplotlib", "PIL", "sklearn", "tabulate", "sweeper.spec", "sweeper.storage"),
        never=("torch", "ray", "optuna", "sweeper.report.studies"),
    ),
    "sweeper.report.page": Rule(
        may=(
            *("pandas", "numpy", "PIL", "vl_convert", "sweeper.errors", "sweeper.spec", "sweeper.storage"),
            "sweeper.names",
            *("sweeper.report", "trainables.evaluation.metrics"),
        ),
        never=("torch", "ray", "optuna", "sweeper.report.studies"),
    ),
    "sweeper.report.studies": Rule(
        may=("optuna", "pandas", "numpy", "matplotlib", "sweeper.spec", "sweeper.storage", "sweeper.report"),
        never=("torch", "ray"),
    ),
    "sweeper.report.comparison": Rule(
        may=(
            *("pandas", "numpy", "scipy", "matplotlib", "sweeper.spec", "sweeper.storage", "sweeper.report"),
            "trainables.evaluation.metrics",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.packing": Rule(
        may=(
            "sweeper.errors",
            "sweeper.version",
            "sweeper.spec",
            "sweeper.storage",
            "sweeper.plan",
            "trainables.config",
            "trainables.profiling.measurement",
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.search": Rule(
        may=(
            *("optuna", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.pruning"),
            *("sweeper.report.studies", "trainables.data.errors", "trainables.tasks.task", "trainables.config"),
            *("trainables.training", "trainables.worker.messages"),
        ),
        never=("ray",),
    ),
    "sweeper.execution.driver": Rule(
        may=("ray", "psutil", "sweeper.errors", "sweeper.spec", "sweeper.packing"), never=("torch", "pandas", "optuna")
    ),
    "sweeper.execution": Rule(
        may=(
            *("ray", "psutil", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.pruning"),
            *("sweeper.packing", "sweeper.search", "trainables.reports", "trainables.config"),
            *("trainables.profiling.measurement", "trainables.training", "trainables.worker"),
        ),
    ),
    "sweeper.cli": Rule(
        may=(
            *("rich", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.pruning"),
            "sweeper.names",
            *("sweeper.report", "sweeper.packing", "sweeper.search", "sweeper.execution", "sweeper.trackers"),
            "trainables.validation",
            *("trainables.reports", "trainables.data", "trainables.evaluation", "trainables.catalog"),
            "trainables.method_loading",
            *("trainables.config", "trainables.training", "trainables.worker"),
        ),
        never=("ray",),
    ),
    "sweeper.run": Rule(
        may=(
            *("sweeper.errors", "sweeper.version", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            *("sweeper.report", "sweeper.trackers", "sweeper.execution", "sweeper.cli"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.view": Rule(
        may=(
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.report", "sweeper.cli"),
            "sweeper.execution.driver.stop_signal",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.compare": Rule(
        may=("pandas", "sweeper.errors", "sweeper.spec", "sweeper.report", "sweeper.cli"),
        never=("torch", "ray"),
    ),
    "sweeper.models": Rule(
        may=(
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "trainables.reports"),
            *("trainables.data.errors", "trainables.config", "trainables.training"),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.export": Rule(
        may=(
            *("pandas", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.cli"),
            "sweeper.names",
            *("sweeper.models", "trainables.evaluation.metrics", "trainables.validation"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.api": Rule(
        may=(
            *("pandas", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.execution"),
            *("sweeper.trackers", "sweeper.cli", "sweeper.run", "sweeper.models"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper": Rule(may=("sweeper.api",), never=("torch", *LAUNCHERS), alone=True),
    "cluster.spot_notice": Rule(may=("psutil",), never=("torch", *LAUNCHERS)),
    "cluster": Rule(
        may=(
            *("ray", "sweeper.errors", "sweeper.version", "sweeper.spec", "sweeper.storage", "sweeper.execution"),
            *("sweeper.cli", "trainables.data.errors"),
        ),
        never=("torch",),
    ),
}
"""A folder, or a module that has a rule of its own -> what it may import. The longest name that fits counts."""
