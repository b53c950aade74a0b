"""How strong the augmentation of views should be for each method (SimVAE, Fig. 6).

The paper does not state its strengths. Here each of four levels has smaller crops and stronger colour changes (on the
digits only smaller crops). The minimum crop area, `crop_scale`, identifies the level.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_simvae as claimed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import Keys
from search_spaces._simvae_protocols import KNN, METHODS, OWN, OWN_DIGITS, PROBE_MLP, method_grids
from sweeper.definition import Assumption, Heatmap, Sweep

TRAINED = METHODS[1:]
"""All methods except the untrained encoder, which sees no augmentation."""
LEVELS: tuple[Keys, ...] = tuple(
    {"crop_scale": crop_scale, "brightness": jitter, "contrast": jitter, "saturation": jitter, "hue": hue}
    for crop_scale, jitter, hue in ((0.8, 0.2, 0.05), (0.6, 0.4, 0.1), (0.4, 0.8, 0.2), (0.2, 1.0, 0.25))
)
EVALUATED: Keys = {"content_probe_epochs": 200, "content_knn": 15}

(CIFAR10,) = protocols.paper_protocols(EVALUATED, ("cifar10",))
PAPER = method_grids(TRAINED, OWN, [{**CIFAR10, **level} for level in LEVELS])
DIGITS = method_grids(
    TRAINED,
    OWN_DIGITS,
    [
        {
            **protocols.DIGITS,
            **EVALUATED,
            "content_probe_lr": protocols.PROBE_LR_DIGITS,
            "crop_scale": level["crop_scale"],
        }
        for level in LEVELS
    ],
)

SWEEP = Sweep(
    about="class accuracy of SimVAE, VAEs and discriminative methods over the strength of the augmentation",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (
            *assumed.SIMVAE_METHODS,
            assumed.ADAM,
            assumed.MOCO,
            Assumption(
                "the paper states neither the strengths nor the data sets",
                ("crop_scale", "brightness", "contrast", "saturation", "hue", "dataset"),
            ),
        )
    },
    figures=tuple(Heatmap(metric, "method", "crop_scale") for metric in (PROBE_MLP, KNN)),
    over="seeds",
    claims=claimed.AUGMENTATION_ABLATION,
)
