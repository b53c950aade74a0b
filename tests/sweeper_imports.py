"""Who may import whom in `sweeper/`, `search_spaces/` and `cluster/`: a row a folder, lowest first."""

from collections.abc import Mapping

from tests.import_rules import LAUNCHERS, Rule

SWEEPER: Mapping[str, Rule] = {
    "sweeper.masking": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.errors": Rule(may=("sweeper.masking",), never=("torch", *LAUNCHERS)),
    "sweeper.names": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.version": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.spec": Rule(
        may=(
            *("optuna.distributions", "search_spaces", "sweeper.errors", "sweeper.names"),
            *("trainables.metrics.meanings", "trainables.validation"),
        ),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "sweeper.request": Rule(may=("sweeper.spec", "trainables.reports"), never=("torch", "ray", "pandas", "pyarrow")),
    "search_spaces": Rule(may=("optuna.distributions", "sweeper.spec"), never=("torch", "ray")),
    "sweeper.storage": Rule(
        may=(
            *("pyarrow", "pandas", "tenacity", "psutil", "sweeper.errors", "sweeper.masking", "sweeper.names"),
            *("trainables.json_input", "trainables.validation", "trainables.reports"),
            "trainables.training.model_metadata",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.plan": Rule(
        may=("sweeper.errors", "sweeper.request", "sweeper.spec", "sweeper.storage", "trainables.worker.messages"),
        never=("torch", "ray", "optuna", "pandas"),
    ),
    "sweeper.report": Rule(
        may=(
            *("pandas", "numpy", "scipy", "matplotlib", "PIL", "tabulate", "vl_convert"),
            *("sweeper.errors", "sweeper.names", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            *("trainables.cache", "trainables.metrics.meanings", "trainables.json_input"),
        ),
        never=("torch", "ray", "optuna", "sweeper.report.studies"),
    ),
    "sweeper.report.studies": Rule(
        may=("optuna", "pandas", "numpy", "sweeper.spec", "sweeper.storage", "sweeper.report"),
        never=("torch", "ray"),
    ),
    "sweeper.report.study_charts": Rule(
        may=("optuna", "matplotlib", "numpy", "sweeper.spec", "sweeper.report"),
        never=("torch", "ray"),
    ),
    "sweeper.packing": Rule(
        may=(
            "sweeper.request",
            "sweeper.errors",
            "sweeper.version",
            "sweeper.spec",
            "sweeper.storage",
            "sweeper.plan",
            "trainables.sections",
            "trainables.config",
            "trainables.json_input",
            "trainables.training.measurement",
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.search.rungs": Rule(may=("sweeper.spec",), never=("torch", *LAUNCHERS)),
    "sweeper.search.rung_server": Rule(
        may=("trainables.reports", "sweeper.spec", "sweeper.search.rungs"), never=("torch", *LAUNCHERS)
    ),
    "sweeper.search": Rule(
        may=(
            "sweeper.request",
            *("optuna", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            *("sweeper.report.studies", "trainables.data.errors", "trainables.tasks.task", "trainables.sections"),
            "trainables.config",
            *("trainables.training", "trainables.worker.messages"),
        ),
        never=("ray",),
    ),
    "sweeper.record.listener": Rule(may=("sweeper.plan",), never=("torch", *LAUNCHERS)),
    "sweeper.plan.prepare": Rule(
        may=(
            *("sweeper.errors", "sweeper.request", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            "sweeper.search.studies",
            *("trainables.catalog", "trainables.config", "trainables.sections", "trainables.data"),
            *("trainables.validation", "trainables.training"),
        ),
        never=("ray", "pandas"),
    ),
    "sweeper.execution.signals": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.execution.startup": Rule(may=("sweeper.execution.signals",), never=("torch", *LAUNCHERS)),
    "sweeper.execution.watchdog": Rule(may=("psutil", "sweeper.errors"), never=("torch", *LAUNCHERS)),
    "sweeper.execution.ray_internals": Rule(
        may=("ray", "sweeper.execution.signals"), never=("torch", "pandas", "optuna")
    ),
    "sweeper.execution.session": Rule(
        may=(
            *("ray", "psutil", "sweeper.errors", "sweeper.spec", "sweeper.packing", "sweeper.execution.startup"),
            *("sweeper.execution.ray_internals", "trainables.cache"),
        ),
        never=("torch", "pandas", "optuna"),
    ),
    "sweeper.execution": Rule(
        may=(
            "sweeper.request",
            *(
                "ray",
                "torch",
                "psutil",
                "sweeper.errors",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.plan",
            ),
            *("sweeper.packing", "sweeper.search", "sweeper.record.listener", "trainables.reports"),
            *("trainables.sections", "trainables.config", "trainables.training.measurement"),
            *("trainables.training", "trainables.worker"),
        ),
    ),
    "sweeper.record": Rule(
        may=(
            "sweeper.request",
            *("rich", "tensorboardX", "mlflow", "wandb", "sweeper.errors", "sweeper.masking", "sweeper.spec"),
            *("sweeper.storage", "sweeper.plan", "sweeper.report", "trainables.reports"),
            *("trainables.worker.messages", "trainables.data.datasets"),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.cli": Rule(
        may=(
            "sweeper.request",
            *("rich", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            *("sweeper.names", "sweeper.masking", "sweeper.version"),
            *("sweeper.report", "sweeper.packing", "sweeper.search", "sweeper.execution", "sweeper.record"),
            "trainables.validation",
            *("trainables.reports", "trainables.data", "trainables.metrics", "trainables.catalog"),
            "trainables.catalog",
            *("trainables.sections", "trainables.config", "trainables.training", "trainables.worker"),
        ),
        never=("ray",),
    ),
    "sweeper.run": Rule(
        may=(
            "sweeper.request",
            *("sweeper.errors", "sweeper.version", "sweeper.spec", "sweeper.storage", "sweeper.plan"),
            *("sweeper.report", "sweeper.record", "sweeper.execution", "sweeper.cli"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.view": Rule(
        may=(
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.report", "sweeper.cli"),
            "sweeper.execution.signals",
            "sweeper.execution.startup",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.compare": Rule(
        may=(
            *("pandas", "sweeper.errors", "sweeper.spec", "sweeper.report", "sweeper.cli"),
            "sweeper.execution.signals",
            "sweeper.execution.startup",
        ),
        never=("torch", "ray"),
    ),
    "sweeper.claims": Rule(
        may=(
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.report", "sweeper.cli"),
            *("sweeper.execution.signals", "sweeper.execution.startup"),
        ),
        never=("torch", "ray"),
    ),
    "sweeper.models": Rule(
        may=(
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "trainables.reports"),
            *(
                "trainables.catalog",
                "trainables.data.errors",
                "trainables.sections",
                "trainables.config",
                "trainables.training",
            ),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.export": Rule(
        may=(
            *("pandas", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.cli"),
            *("sweeper.names", "sweeper.execution.signals", "sweeper.execution.startup"),
            *(
                "sweeper.models",
                "sweeper.report.figures",
                "trainables.metrics.meanings",
                "trainables.validation",
            ),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.api": Rule(
        may=(
            "sweeper.request",
            *("pandas", "sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.plan", "sweeper.execution"),
            *("sweeper.record", "sweeper.cli", "sweeper.run", "sweeper.models"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.console": Rule(may=("sweeper.version", "trainables.validation"), never=("torch", *LAUNCHERS)),
    "sweeper": Rule(may=("sweeper.api",), never=("torch", *LAUNCHERS), alone=True),
    "cluster.spot_notice": Rule(may=("psutil",), never=("torch", *LAUNCHERS)),
    "cluster": Rule(
        may=(
            "sweeper.request",
            *("ray", "requests", "sweeper.errors", "sweeper.version", "sweeper.spec", "sweeper.storage"),
            *("sweeper.execution", "sweeper.plan.prepare", "sweeper.cli", "sweeper.masking", "trainables.data.errors"),
        ),
        never=("torch",),
    ),
}
