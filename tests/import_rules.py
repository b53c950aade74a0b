"""Who may import whom: a row a folder, and one for a module that has a rule of its own. `test_imports` keeps it."""

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
    *("torch", "trainables.contract", "trainables.reports", "trainables.metrics", "trainables.catalog"),
    *("trainables.sections", "trainables.config", "trainables.learners", "trainables.tasks"),
)
"""What a training loop imports."""
OF_COMMANDS = (
    *("pandas", "rich", "tabulate", "sweeper.errors", "sweeper.masking", "sweeper.names", "sweeper.version"),
    *("sweeper.printing", "sweeper.option_values", "sweeper.request", "sweeper.spec", "sweeper.storage"),
    *(
        "sweeper.results",
        "sweeper.report",
        "sweeper.planning",
        "sweeper.packing",
        "sweeper.execution",
        "sweeper.record",
    ),
    *(
        "sweeper.models",
        "sweeper.commands",
        "trainables.own_code",
        "trainables.data",
        "trainables.metrics",
        "trainables.reports",
    ),
    *("trainables.training", "trainables.validation", "trainables.synonyms", "trainables.config", "trainables.catalog"),
)
"""What a command imports."""

TABLE: Mapping[str, Rule] = {
    # Training: a config in, reports out
    "trainables": Rule(alone=True),
    "trainables.json_input": Rule(never=("torch", *LAUNCHERS)),
    "trainables.synonyms": Rule(never=("torch", *LAUNCHERS)),
    "trainables.validation": Rule(may=("trainables.synonyms",), never=("torch", *LAUNCHERS)),
    "trainables.cache": Rule(never=("torch", *LAUNCHERS)),
    "trainables.own_code": Rule(may=("trainables.validation",), never=("torch", *LAUNCHERS)),
    "trainables.reports": Rule(never=("torch", *LAUNCHERS)),
    "trainables.contract": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.sections": Rule(may=("trainables.validation",), never=("torch", *LAUNCHERS)),
    "trainables.losses.linear_algebra": Rule(may=("torch",), never=("torch.distributed", *LAUNCHERS)),
    "trainables.losses": Rule(
        may=("torch", "trainables.losses.linear_algebra"),
        never=("torch.distributed", *LAUNCHERS),
        alone=True,
    ),
    "trainables.networks": Rule(
        may=("torch", "torchvision", "safetensors", "trainables.validation", "trainables.own_code"), never=LAUNCHERS
    ),
    "trainables.data.errors": Rule(never=("torch", *LAUNCHERS)),
    "trainables.data": Rule(
        may=("torch", "numpy", "PIL", "trainables.validation", "trainables.own_code"), never=LAUNCHERS
    ),
    "trainables.data.datasets": Rule(
        may=(
            *("torch", "torchvision", "numpy", "sklearn", "PIL", "filelock", "trainables.validation"),
            *("trainables.data.errors", "trainables.data.image_files", "trainables.own_code", "datasets"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.data.transformations": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.methods.projected": Rule(
        may=("trainables.validation", "trainables.contract", "trainables.networks"),
        never=LAUNCHERS,
    ),
    "trainables.methods.pairs.joint_mixture": Rule(
        may=("torch", "trainables.contract", "trainables.losses"),
        never=LAUNCHERS,
    ),
    "trainables.methods.variational.autoencoder": Rule(
        may=("torch", "trainables.contract", "trainables.losses"),
        never=LAUNCHERS,
    ),
    "trainables.methods.one_class.transformed": Rule(
        may=("torch", "trainables.validation", "trainables.contract", "trainables.data.transformations"),
        never=LAUNCHERS,
    ),
    "trainables.methods": Rule(
        may=(
            *("torch", "numpy", "sklearn", "trainables.validation", "trainables.contract", "trainables.losses"),
            *("trainables.networks", "trainables.methods.projected", "trainables.methods.pairs.joint_mixture"),
            *("trainables.methods.variational.autoencoder", "trainables.methods.one_class.transformed"),
            *("trainables.data.augmentation", "trainables.data.transformations"),
        ),
        never=LAUNCHERS,
        alone=True,
    ),
    "trainables.learners": Rule(may=("torch", "trainables.contract", "trainables.reports"), never=LAUNCHERS),
    "trainables.metrics.families": Rule(never=("torch", *LAUNCHERS)),
    "trainables.metrics.meanings": Rule(may=("trainables.metrics.families",), never=("torch", *LAUNCHERS)),
    "trainables.image_trial": Rule(
        may=(
            *("torch", "trainables.validation", "trainables.sections", "trainables.networks", "trainables.data"),
            "trainables.metrics.meanings",
        ),
        never=LAUNCHERS,
    ),
    "trainables.metrics.roc": Rule(may=("numpy",), never=("torch", *LAUNCHERS)),
    "trainables.metrics": Rule(
        may=(
            *("torch", "numpy", "scipy", "sklearn", "PIL", "torchmetrics", "trainables.validation"),
            *("trainables.contract", "trainables.losses", "trainables.data", "trainables.learners"),
            "trainables.image_trial",
        ),
        never=LAUNCHERS,
    ),
    "trainables.functions.command": Rule(never=("torch", *LAUNCHERS)),
    "trainables.tasks": Rule(
        may=(
            *("torch", "numpy", "trainables.validation", "trainables.contract", "trainables.networks"),
            *("trainables.data", "trainables.metrics", "trainables.learners", "trainables.image_trial"),
            *("trainables.sections", "trainables.json_input"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.functions": Rule(
        may=(
            *("torch", "numpy", "trainables.contract", "trainables.validation", "trainables.sections"),
            *("trainables.reports", "trainables.own_code", "trainables.json_input", "trainables.tasks.task"),
            *("trainables.learners.data_parallel", "trainables.functions.command"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.catalog": Rule(
        may=(
            "trainables.own_code",
            "trainables.contract",
            "trainables.validation",
            "trainables.sections",
            "trainables.methods",
            "trainables.functions",
            "trainables.tasks",
        ),
        never=LAUNCHERS,
    ),
    "trainables.config": Rule(
        may=("trainables.own_code", "trainables.validation", "trainables.sections", "trainables.catalog"),
        never=LAUNCHERS,
    ),
    "trainables.training.model_metadata": Rule(
        may=("trainables.json_input", "trainables.reports"),
        never=("torch", *LAUNCHERS),
    ),
    "trainables.training.model_file": Rule(
        may=(
            "trainables.own_code",
            *("torch", "safetensors", "trainables.contract", "trainables.reports", "trainables.catalog"),
            *("trainables.sections", "trainables.config", "trainables.training.model_metadata"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.training.measurement": Rule(may=("trainables.json_input",), never=("torch", *LAUNCHERS)),
    "trainables.training": Rule(
        may=(
            "trainables.own_code",
            *(*LOOP, "trainables.cache", "trainables.json_input", "trainables.validation"),
            *("trainables.networks", "trainables.training.model_file", "trainables.training.measurement", "psutil"),
            "trainables.functions",
        ),
        never=LAUNCHERS,
    ),
    "trainables.worker": Rule(
        may=("threadpoolctl", *LOOP, "trainables.functions", "trainables.json_input", "trainables.training"),
        never=LAUNCHERS,
    ),
    "trainables.worker.ray_train": Rule(
        may=("ray", *LOOP, "trainables.training", "trainables.worker"),
        never=("pandas", "pyarrow", "optuna"),
    ),
    "trainables.worker.tune_trainable": Rule(
        may=("ray", *LOOP, "trainables.training", "trainables.validation", "trainables.worker"),
        never=("optuna",),  # Tune itself uses pandas
    ),
    # The service: from a request to rows and pictures
    "sweeper.masking": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.printing": Rule(may=("sweeper.masking",), never=("torch", *LAUNCHERS)),
    "sweeper.errors": Rule(may=("sweeper.masking", "sweeper.printing"), never=("torch", *LAUNCHERS)),
    "sweeper.servers": Rule(may=("requests",), never=("torch", *LAUNCHERS)),
    "sweeper.names": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.surroundings": Rule(may=("psutil",), never=("torch", *LAUNCHERS)),
    "sweeper.version": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.spec": Rule(
        may=(
            *("optuna.distributions", "search_spaces", "sweeper.errors", "sweeper.names"),
            *("trainables.metrics.families", "trainables.metrics.meanings", "trainables.validation"),
            *("trainables.own_code", "trainables.functions.command"),
        ),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "sweeper.option_values": Rule(
        may=("sweeper.errors", "sweeper.masking", "sweeper.names", "sweeper.spec", "trainables.validation"),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "sweeper.request": Rule(
        may=("sweeper.errors", "sweeper.option_values", "sweeper.spec", "trainables.reports", "trainables.validation"),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "sweeper.storage": Rule(
        may=(
            "sweeper.printing",
            *("pyarrow", "pandas", "tenacity", "psutil", "sweeper.errors", "sweeper.masking", "sweeper.names"),
            "sweeper.surroundings",
            *("trainables.json_input", "trainables.validation", "trainables.reports"),
            *("trainables.training.model_metadata", "trainables.config"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.planning": Rule(
        may=(
            "sweeper.printing",
            *(
                "sweeper.errors",
                "sweeper.option_values",
                "sweeper.request",
                "sweeper.spec",
                "sweeper.storage",
                "trainables.worker.messages",
            ),
            *("trainables.json_input", "trainables.metrics.meanings", "trainables.reports", "trainables.sections"),
        ),
        never=("torch", "ray", "optuna", "pandas"),
    ),
    "sweeper.results": Rule(
        may=(
            *("pandas", "numpy", "scipy", "pyarrow", "sweeper.errors", "sweeper.names", "sweeper.printing"),
            *("sweeper.spec", "sweeper.storage", "sweeper.planning", "trainables.metrics.meanings"),
            "trainables.validation",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.claims.claim": Rule(
        may=("sweeper.errors", "sweeper.spec", "trainables.metrics.meanings", "trainables.validation"),
        never=("torch", "ray", "pandas", "pyarrow"),
    ),
    "sweeper.claims": Rule(
        may=(
            *(
                "pandas",
                "numpy",
                "sweeper.errors",
                "sweeper.names",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *("sweeper.results", "sweeper.claims.claim", "trainables.metrics.meanings", "trainables.json_input"),
        ),
        never=("torch", "ray", "optuna"),
    ),
    "search_spaces": Rule(
        may=("optuna.distributions", "sweeper.spec", "sweeper.claims"), never=("torch", "ray", "pandas", "pyarrow")
    ),
    "sweeper.report": Rule(
        may=(
            "sweeper.results",
            "sweeper.printing",
            *("pandas", "numpy", "pyarrow", "scipy", "matplotlib", "PIL", "tabulate", "vl_convert", "sweeper.errors"),
            *(
                "sweeper.names",
                "sweeper.option_values",
                "sweeper.request",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *("sweeper.results", "sweeper.claims.hook"),
            *("trainables.cache", "trainables.metrics.meanings", "trainables.metrics.roc", "trainables.json_input"),
            *("trainables.validation", "trainables.functions.command"),
        ),
        never=("torch", "ray", "optuna", "sweeper.report.studies"),
    ),
    "sweeper.report.optuna_log": Rule(may=("optuna",), never=("torch", "ray", "pandas")),
    "sweeper.report.study_tables": Rule(
        may=("optuna", "pandas", "numpy", "sweeper.spec", "sweeper.results"),
        never=("torch", "ray", "matplotlib"),
    ),
    "sweeper.report.studies": Rule(
        may=("optuna", "scipy", "pandas", "numpy", "sweeper.spec", "sweeper.storage", "sweeper.report"),
        never=("torch", "ray", "matplotlib"),
    ),
    "sweeper.packing": Rule(
        may=(
            *(
                "sweeper.option_values",
                "sweeper.request",
                "sweeper.errors",
                "sweeper.version",
                "sweeper.spec",
                "sweeper.storage",
            ),
            *("sweeper.planning", "trainables.sections", "trainables.config", "trainables.json_input"),
            *("trainables.training.measurement", "trainables.catalog"),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.search.rungs": Rule(may=("sweeper.spec",), never=("torch", *LAUNCHERS)),
    "sweeper.search": Rule(
        may=(
            "sweeper.printing",
            *(
                "sweeper.option_values",
                "sweeper.request",
                "optuna",
                "sweeper.errors",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *(
                "sweeper.report.studies",
                "sweeper.report.optuna_log",
                "trainables.data.errors",
                "trainables.tasks.task",
                "trainables.sections",
            ),
            *("trainables.config", "trainables.training", "trainables.worker.messages", "trainables.json_input"),
        ),
        never=("ray",),
    ),
    "sweeper.record.listener": Rule(may=("sweeper.planning",), never=("torch", *LAUNCHERS)),
    "sweeper.planning.prepare": Rule(
        may=(
            *(
                "sweeper.errors",
                "sweeper.option_values",
                "sweeper.request",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *("sweeper.search.studies", "trainables.catalog", "trainables.config", "trainables.sections"),
            *("trainables.data", "trainables.validation", "trainables.metrics.roc", "trainables.training"),
            *("trainables.own_code", "trainables.functions"),
        ),
        never=("ray", "pandas"),
    ),
    "sweeper.claims.decide": Rule(
        may=(
            *(
                "sweeper.errors",
                "sweeper.option_values",
                "sweeper.request",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *("sweeper.results", "sweeper.claims", "sweeper.planning.prepare", "trainables.validation"),
        ),
        never=("ray",),
    ),
    "sweeper.execution.signals": Rule(never=("torch", *LAUNCHERS)),
    "sweeper.execution.startup": Rule(may=("sweeper.execution.signals",), never=("torch", *LAUNCHERS)),
    "sweeper.execution.budget": Rule(
        may=("sweeper.planning", "sweeper.record.listener", "trainables.reports", "trainables.worker.messages"),
        never=("torch", *LAUNCHERS),
    ),
    "sweeper.execution.watchdog": Rule(
        may=("psutil", "sweeper.errors", "sweeper.printing"), never=("torch", *LAUNCHERS)
    ),
    "sweeper.execution.ray_internals": Rule(
        may=("ray", "sweeper.execution.signals", "sweeper.printing"),
        never=("torch", "pandas", "optuna"),
    ),
    "sweeper.execution.session": Rule(
        may=(
            "sweeper.execution.signals",
            *("ray", "psutil", "sweeper.errors", "sweeper.spec", "sweeper.packing", "sweeper.execution.startup"),
            *("sweeper.execution.ray_internals", "trainables.cache"),
        ),
        never=("torch", "pandas", "optuna"),
    ),
    "sweeper.execution": Rule(
        may=(
            "sweeper.printing",
            *(
                "sweeper.option_values",
                "sweeper.request",
                "ray",
                "torch",
                "psutil",
                "sweeper.errors",
                "sweeper.spec",
                "sweeper.storage",
            ),
            *("sweeper.planning", "sweeper.packing", "sweeper.search", "sweeper.record.listener", "trainables.reports"),
            *("trainables.sections", "trainables.config", "trainables.training", "trainables.worker"),
        ),
    ),
    "sweeper.record": Rule(
        may=(
            "sweeper.printing",
            "sweeper.servers",
            *(
                "sweeper.option_values",
                "sweeper.request",
                "rich",
                "tensorboardX",
                "mlflow",
                "wandb",
                "sweeper.errors",
                "sweeper.masking",
            ),
            *("sweeper.surroundings", "sweeper.claims.hook"),
            *("sweeper.spec", "sweeper.storage", "sweeper.planning", "sweeper.results", "sweeper.report"),
            "trainables.reports",
            *("trainables.worker.messages", "trainables.data.datasets"),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.models": Rule(
        may=(
            "sweeper.printing",
            "trainables.contract",
            "trainables.own_code",
            *("sweeper.errors", "sweeper.spec", "sweeper.storage", "sweeper.planning", "trainables.reports"),
            *("trainables.catalog", "trainables.data.errors", "trainables.sections", "trainables.config"),
            *("trainables.training", "trainables.validation", "trainables.functions"),
        ),
        never=("ray", "optuna"),
    ),
    "sweeper.commands.console": Rule(
        may=(
            *("sweeper.errors", "sweeper.execution.signals", "sweeper.execution.startup", "sweeper.printing"),
            *("sweeper.version", "trainables.validation"),
        ),
        never=("torch", *LAUNCHERS),
    ),
    "sweeper.commands": Rule(
        may=(
            *(*OF_COMMANDS, "torch", "sweeper.search", "trainables.learners", "trainables.sections"),
            "trainables.worker",
        ),
        never=("ray",),
    ),
    **dict.fromkeys(
        [f"sweeper.commands.{name}" for name in ("best", "compare", "list", "merge", "rm", "table")],
        Rule(may=OF_COMMANDS, never=("torch", "ray")),
    ),
    **dict.fromkeys(
        [
            f"sweeper.commands.{name}"
            for name in ("arguments", "describe", "evaluate", "export", "plan", "restore", "run", "track", "view")
        ],
        Rule(may=OF_COMMANDS, never=("torch", "ray", "optuna")),
    ),
    "sweeper.commands.claims": Rule(may=(*OF_COMMANDS, "sweeper.claims"), never=("torch", "ray")),
    "sweeper.commands.sweep_run": Rule(
        may=(*OF_COMMANDS, "sweeper.claims.hook"),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper.run": Rule(may=("sweeper.commands.console",), never=("torch", *LAUNCHERS)),
    "sweeper.__main__": Rule(may=("sweeper.commands.console",), never=("torch", *LAUNCHERS)),
    "sweeper.api": Rule(
        may=(
            *(
                "sweeper.option_values",
                "sweeper.request",
                "pandas",
                "sweeper.errors",
                "sweeper.spec",
                "sweeper.storage",
                "sweeper.planning",
            ),
            *("sweeper.execution", "sweeper.record", "sweeper.commands", "sweeper.models"),
            "sweeper.report.answers",
        ),
        never=("torch", "ray", "optuna"),
    ),
    "sweeper": Rule(never=("torch", *LAUNCHERS), alone=True),
    "sweeper.submission.spot_notice": Rule(may=("psutil", "sweeper.printing"), never=("torch", *LAUNCHERS)),
    "sweeper.submission": Rule(
        may=(
            "sweeper.printing",
            "sweeper.servers",
            *(
                "sweeper.option_values",
                "sweeper.request",
                "ray",
                "requests",
                "sweeper.errors",
                "sweeper.version",
                "sweeper.spec",
            ),
            *(
                "sweeper.storage",
                "sweeper.execution",
                "sweeper.planning.prepare",
                "sweeper.commands",
                "sweeper.masking",
            ),
            "trainables.data.errors",
        ),
        never=("torch",),
    ),
}
"""The longest name that fits a module counts."""
