"""Who may import whom in `trainables/`: a row a folder, lowest first."""

from collections.abc import Mapping

from tests.import_rule import LAUNCHERS, Rule

LOOP = (
    *("torch", "trainables.contract", "trainables.reports", "trainables.metrics", "trainables.catalog"),
    *("trainables.sections", "trainables.config", "trainables.learners", "trainables.tasks"),
)

TRAINABLES: Mapping[str, Rule] = {
    "trainables": Rule(alone=True),
    "trainables.json_input": Rule(never=("torch", *LAUNCHERS)),
    "trainables.validation": Rule(never=("torch", *LAUNCHERS)),
    "trainables.cache": Rule(never=("torch", *LAUNCHERS)),
    "trainables.reports": Rule(never=("torch", *LAUNCHERS)),
    "trainables.contract": Rule(may=("torch",), never=LAUNCHERS),
    "trainables.sections": Rule(may=("trainables.validation",), never=("torch", *LAUNCHERS)),
    "trainables.losses.linear_algebra": Rule(may=("torch",), never=("torch.distributed", *LAUNCHERS)),
    "trainables.losses": Rule(
        may=("torch", "trainables.losses.linear_algebra"), never=("torch.distributed", *LAUNCHERS), alone=True
    ),
    "trainables.networks": Rule(may=("torch", "torchvision", "trainables.validation"), never=LAUNCHERS),
    "trainables.data.errors": Rule(never=("torch", *LAUNCHERS)),
    "trainables.data": Rule(may=("torch", "numpy", "PIL", "trainables.validation"), never=LAUNCHERS),
    "trainables.data.datasets": Rule(
        may=(
            *("torch", "torchvision", "numpy", "sklearn", "PIL", "filelock", "trainables.validation"),
            *("trainables.data.errors", "trainables.data.image_files"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.methods.projected": Rule(
        may=("trainables.validation", "trainables.contract", "trainables.networks"), never=LAUNCHERS
    ),
    "trainables.methods.pairs.joint_mixture": Rule(
        may=("torch", "trainables.contract", "trainables.losses"), never=LAUNCHERS
    ),
    "trainables.methods.variational.autoencoder": Rule(
        may=("torch", "trainables.contract", "trainables.losses"), never=LAUNCHERS
    ),
    "trainables.methods": Rule(
        may=(
            *("torch", "numpy", "sklearn", "trainables.validation", "trainables.contract", "trainables.losses"),
            *("trainables.networks", "trainables.methods.projected", "trainables.methods.pairs.joint_mixture"),
            "trainables.methods.variational.autoencoder",
        ),
        never=LAUNCHERS,
        alone=True,
    ),
    "trainables.learners": Rule(may=("torch", "trainables.contract", "trainables.reports"), never=LAUNCHERS),
    "trainables.image_trial": Rule(
        may=(*("torch", "trainables.validation", "trainables.sections", "trainables.networks", "trainables.data"),),
        never=LAUNCHERS,
    ),
    "trainables.metrics.meanings": Rule(never=("torch", *LAUNCHERS)),
    "trainables.metrics": Rule(
        may=(
            *("torch", "numpy", "scipy", "sklearn", "PIL", "torchmetrics", "trainables.validation"),
            *("trainables.contract", "trainables.losses", "trainables.data", "trainables.learners"),
            "trainables.image_trial",
        ),
        never=LAUNCHERS,
    ),
    "trainables.tasks": Rule(
        may=(
            *("torch", "numpy", "trainables.validation", "trainables.contract", "trainables.networks"),
            *("trainables.data", "trainables.metrics", "trainables.learners", "trainables.image_trial"),
            *("trainables.sections", "trainables.json_input"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.catalog": Rule(
        may=(
            "trainables.contract",
            "trainables.validation",
            "trainables.methods",
            "trainables.tasks",
        ),
        never=LAUNCHERS,
    ),
    "trainables.config": Rule(
        may=("trainables.validation", "trainables.sections", "trainables.catalog"), never=LAUNCHERS
    ),
    "trainables.training.model_metadata": Rule(
        may=("trainables.json_input", "trainables.reports"), never=("torch", *LAUNCHERS)
    ),
    "trainables.training.model_file": Rule(
        may=(
            *("torch", "safetensors", "trainables.contract", "trainables.reports", "trainables.catalog"),
            *("trainables.sections", "trainables.config", "trainables.training.model_metadata"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.training.measurement": Rule(never=("torch", *LAUNCHERS)),
    "trainables.training": Rule(
        may=(
            *(*LOOP, "trainables.cache", "trainables.json_input", "trainables.validation"),
            *("trainables.training.model_file", "trainables.training.measurement", "psutil"),
        ),
        never=LAUNCHERS,
    ),
    "trainables.worker": Rule(
        may=("threadpoolctl", *LOOP, "trainables.json_input", "trainables.training"),
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
}
