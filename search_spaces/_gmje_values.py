"""The numbers of the paper on GMJE (arXiv 2603.26799) from which its presets are made, with their places in the paper.

The paper prints all of them. The copy that we had is a conversion in which most numbers were lost, so `LOST` marks a
number of ours. Whoever has the paper writes the printed number in its place and `READ` beside it; the presets and
`sweeper describe` follow. The branches of `synthetic_alignment` and their noise, which were lost too (P.2), are in
`trainables/data/pairs.py`.
"""

from typing import NamedTuple

from search_spaces._protocols import Keys
from sweeper.definition import Assumption, Value

READ, LOST = True, False
NOT_LEGIBLE = "not legible in the copy of the paper that we had"
PROJECTED = "simclr+byol+moco_v2+smc_gmje+swav+gmje_parametric+gmje_mdn"
"""The methods of the paper's benchmark whose losses compare projections."""


class Number(NamedTuple):
    """A number that the paper prints."""

    sweep: str
    methods: str
    """The methods that have it, joined by +; empty for all methods of the sweep."""
    key: str
    """Hyperparameter."""
    value: Value
    """The value in the preset `paper`: of an axis, the one that the paper has."""
    place: str
    """Section of the paper that describes it."""
    read: bool
    """`READ` in the paper, or `LOST`: the value is ours."""


NUMBERS = tuple(Number(*row) for row in (
    ("synthetic_alignment", "", "seed", 111, "P.2", READ),
    ("synthetic_alignment", "", "examples", 3000, "P.2", LOST),
    ("synthetic_alignment", "jepa_pairs+gmje_mdn_pairs", "epochs", 1200, "P.2", READ),
    ("synthetic_alignment", "jepa_pairs+gmje_mdn_pairs", "lr", 0.01, "P.2", LOST),
    ("synthetic_alignment", "jepa_pairs+gmje_mdn_pairs", "width", 64, "P.2", LOST),
    ("synthetic_alignment", "gaussian_process", "length", 0.3, "P.2", LOST),
    ("synthetic_alignment", "gaussian_process", "noise_variance", 0.5, "P.2", LOST),
    ("synthetic_alignment", "gmje_em", "components", 3, "5.1", READ),
    ("synthetic_alignment", "gmje_mdn_pairs", "components", 3, "5.1", READ),
    ("synthetic_alignment", "gmje_gng", "nodes", 30, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "steps", 20_000, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "max_age", 50, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "eps_b", 0.1, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "eps_n", 0.005, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "insert_every", 100, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "alpha", 0.5, "P.2", LOST),
    ("synthetic_alignment", "gmje_gng", "beta", 0.995, "P.2", LOST),
    ("memory_bank", "", "seed", 42, "P.3.4", READ),
    ("memory_bank", "", "epochs", 1000, "5.2.1", READ),
    ("memory_bank", "", "batch_size", 256, "P.3.4", READ),
    ("memory_bank", "", "lr", 0.06, "P.3.4", LOST),
    ("memory_bank", "", "momentum", 0.9, "P.3.4", LOST),
    ("memory_bank", "", "weight_decay", 5e-4, "P.3.4", LOST),
    ("memory_bank", "", "tau", 0.1, "P.3.4", LOST),
    ("memory_bank", "", "ema", 0.999, "P.3.4", LOST),
    ("memory_bank", "", "projector_width", 512, "P.3.4", LOST),
    ("memory_bank", "", "projection", 128, "P.3.4", LOST),
    ("memory_bank", "", "probe_epochs", 100, "P.3.4", LOST),
    ("memory_bank", "", "probe_lr", 0.1, "P.3.4", LOST),
    ("memory_bank", "", "probe_batch_size", 256, "P.3.4", LOST),
    ("memory_bank", "moco_v2", "queue", 256, "5.2.1", READ),
    ("memory_bank", "smc_gmje", "bank", 256, "5.2.1", READ),
    ("ssl_benchmark", "", "seed", 42, "P.3.5", READ),
    ("ssl_benchmark", "", "epochs", 200, "5.2.2", READ),
    ("ssl_benchmark", "", "batch_size", 256, "P.3.5", READ),
    ("ssl_benchmark", "", "probe_epochs", 100, "P.3.5", READ),
    ("ssl_benchmark", "", "probe_lr", 0.1, "P.3.5", LOST),
    ("ssl_benchmark", "", "probe_batch_size", 256, "P.3.5", LOST),
    ("ssl_benchmark", "", "lr", 0.06, "P.3.5", LOST),
    ("ssl_benchmark", "", "momentum", 0.9, "P.3.5", LOST),
    ("ssl_benchmark", "", "weight_decay", 5e-4, "P.3.5", LOST),
    ("ssl_benchmark", "simclr", "tau", 0.5, "P.3.5", LOST),
    ("ssl_benchmark", "byol", "ema", 0.996, "P.3.5", LOST),
    ("ssl_benchmark", "byol", "predictor_width", 512, "P.3.5", LOST),
    ("ssl_benchmark", PROJECTED, "projector_width", 512, "P.3.5", LOST),
    ("ssl_benchmark", PROJECTED, "projection", 128, "P.3.5", LOST),
    ("ssl_benchmark", "moco_v2+smc_gmje", "tau", 0.1, "P.3.5", LOST),
    ("ssl_benchmark", "moco_v2+smc_gmje", "ema", 0.99, "P.3.5", LOST),
    ("ssl_benchmark", "moco_v2", "queue", 4096, "P.3.5", LOST),
    ("ssl_benchmark", "smc_gmje", "bank", 4096, "P.3.5", LOST),
    ("ssl_benchmark", "swav", "tau", 0.1, "P.3.5", LOST),
    ("ssl_benchmark", "swav", "prototypes", 512, "P.3.5", LOST),
    ("ssl_benchmark", "swav", "epsilon", 0.05, "P.3.5", LOST),
    ("ssl_benchmark", "swav", "sinkhorn_iterations", 3, "P.3.5", READ),
    ("ssl_benchmark", "vicreg", "projector_width", 0, "P.3.5", LOST),
    ("ssl_benchmark", "vicreg", "invariance_weight", 25.0, "P.3.5", LOST),
    ("ssl_benchmark", "vicreg", "variance_weight", 25.0, "P.3.5", LOST),
    ("ssl_benchmark", "vicreg", "covariance_weight", 1.0, "P.3.5", LOST),
    ("ssl_benchmark", "gmje_parametric", "prototypes", 512, "P.3.5", LOST),
    ("ssl_benchmark", "gmje_parametric", "tau", 0.1, "P.3.5", LOST),
    ("ssl_benchmark", "gmje_parametric", "ema", 0.99, "P.3.5", LOST),
    ("ssl_benchmark", "gmje_parametric", "entropy_weight", 1.0, "P.3.5", LOST),
    ("ssl_benchmark", "gmje_mdn", "components", 8, "P.3.5", LOST),
    ("latent_generation", "", "seed", 42, "P.4", READ),
    ("latent_generation", "", "crop_scale", 0.5, "P.4.2", LOST),
    ("latent_generation", "", "rotation", 15.0, "P.4.2", LOST),
    ("latent_generation", "", "normalise", True, "P.4.2", LOST),
    ("latent_generation", "", "width", 32, "P.4", LOST),
    ("latent_generation", "", "features", 128, "P.4", LOST),
    ("latent_generation", "", "epochs", 50, "P.4", READ),
    ("latent_generation", "", "batch_size", 256, "P.4", READ),
    ("latent_generation", "", "lr", 1e-3, "P.4", LOST),
    ("latent_generation", "", "lr_schedule", "constant", "P.4", LOST),
    ("latent_generation", "", "adhoc_epochs", 50, "P.4", READ),
    ("latent_generation", "", "adhoc_lr", 1e-3, "P.4", LOST),
    ("latent_generation", "", "density_components", 50, "P.4", READ),
    ("latent_generation", "", "density_images", 10_000, "P.4", READ),
    ("latent_generation", "", "density_steps", 20, "P.4", READ),
    ("latent_generation", "simclr+gje+gmje_parametric", "projector_width", 0, "P.4", LOST),
    ("latent_generation", "simclr", "tau", 0.5, "P.4", LOST),
    ("latent_generation", "gje", "entropy_weight", 1.0, "P.4", LOST),
    ("latent_generation", "gmje_parametric", "prototypes", 50, "P.4", READ),
    ("latent_generation", "gmje_parametric", "tau", 0.07, "P.4", LOST),
    ("latent_generation", "gmje_parametric", "entropy_weight", 60.0, "P.4", LOST),
    ("latent_generation", "gmje_parametric", "ema", 0.99, "P.4", LOST),
))  # fmt: skip


def values(sweep: str, method: str = "") -> Keys:
    """Return the values that all methods of a sweep have, or those that one method has of its own. Seeds are axes, and
    not among them."""
    return {
        number.key: number.value
        for number in NUMBERS
        if number.sweep == sweep and method in number.methods.split("+") and number.key != "seed"
    }


def seeds(sweep: str) -> tuple[int, int, int]:
    """Return three seeds for a sweep, of which the paper has only the first."""
    (first,) = (number.value for number in NUMBERS if (number.sweep, number.key) == (sweep, "seed"))
    assert isinstance(first, int)
    return first, first + 1, first + 2


def not_legible(sweep: str) -> tuple[Assumption, ...]:
    """Return what `sweeper describe` says of a sweep's numbers that were lost: one assumption for each place and each
    group of methods."""
    lost: dict[tuple[str, str], list[str]] = {}
    for number in NUMBERS:
        if number.sweep == sweep and not number.read:
            lost.setdefault((number.place, number.methods), []).append(number.key)
    return tuple(
        Assumption(f"{NOT_LEGIBLE} ({place})", tuple(keys), tuple(methods.split("+") if methods else ()))
        for (place, methods), keys in lost.items()
    )
