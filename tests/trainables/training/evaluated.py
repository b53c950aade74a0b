"""Small trials on all classes that are evaluated in several ways."""

from trainables.config.trial import resolve
from trainables.config.trial_config import TrialConfig, Value

SMALL: dict[str, dict[str, Value]] = {
    "vje": {"bottleneck": 8}, "random": {"epochs": 0}, "simsiam": {"projector_width": 8, "predictor_width": 4},
}  # fmt: skip
EVERYTHING: dict[str, Value] = {"knn": 5, "probe_epochs": 3, "outliers": "inverted+noise"}


def eval_config(method: str = "vje", /, **changes: Value) -> TrialConfig:
    defaults: dict[str, Value] = {
        "method": method, "width": 16, "features": 8, "batch_size": 60, "epochs": 2, "lr": 0.02, "rotation": 10.0,
    }  # fmt: skip
    return resolve({**defaults, **SMALL[method], **changes})
