"""How strong the augmentation of views should be for each method (SimVAE, Fig. 6).

The paper does not state its strengths. Here each of four levels has smaller crops and, on CIFAR-10, stronger colour
changes. The minimum crop area, `crop_scale`, identifies the level. The paper's figure shows k-NN and mixtures on MNIST
and Fashion-MNIST, whose images have no colours, so the preset `colours` is beside it.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_simvae as claimed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import Keys
from search_spaces._simvae_protocols import GMM, KNN, METHODS, OWN, OWN_DIGITS, PROBE_MLP, method_grids
from sweeper.definition import Assumption, Heatmap, Sweep

TRAINED = METHODS[1:]
"""All methods except the untrained encoder, which sees no augmentation."""
LEVELS: tuple[Keys, ...] = tuple(
    {"crop_scale": crop_scale, "brightness": jitter, "contrast": jitter, "saturation": jitter, "hue": hue}
    for crop_scale, jitter, hue in ((0.8, 0.2, 0.05), (0.6, 0.4, 0.1), (0.4, 0.8, 0.2), (0.2, 1.0, 0.25))
)
EVALUATED: Keys = {"content_probe_epochs": 200, "content_knn": 15}

GREY = protocols.paper_protocols(protocols.CONTENT, ("mnist", "fashion_mnist"))
PAPER = method_grids(
    TRAINED, OWN, [{**protocol, "crop_scale": level["crop_scale"]} for protocol in GREY for level in LEVELS]
)
(COLOUR,) = protocols.paper_protocols(protocols.CONTENT, ("cifar10",))
COLOURS = method_grids(TRAINED, OWN, [{**COLOUR, **level} for level in LEVELS])
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

MODELS = protocols.models(TRAINED, ("mnist", "fashion_mnist"))

SWEEP = Sweep(
    about="class accuracy of SimVAE, VAEs and discriminative methods over the strength of the augmentation",
    presets={"paper": PAPER, "digits": DIGITS, "colours": COLOURS},
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (
            *assumed.SIMVAE_TRAINING,
            *assumed.VIEWS,
            *assumed.BASELINES,
            assumed.MOCO,
            assumed.MIXTURE,
            Assumption("the paper does not state the strengths", ("crop_scale",)),
            Assumption("probes, in addition to the k-NN and the mixtures of the figure", ("content_probe_epochs",)),
        )
    },
    figures=(
        *(
            Heatmap(metric, "method", "crop_scale", presets=("digits", "colours"), place="Fig. 6")
            for metric in (PROBE_MLP, KNN)
        ),
        Heatmap(GMM, "method", "crop_scale", presets=("colours",), place="Fig. 6"),
        *(
            Heatmap(metric, "model", "crop_scale", presets=("paper",), selections=MODELS, place="Fig. 6")
            for metric in (KNN, GMM, PROBE_MLP)
        ),
    ),
    over="seeds",
    claims=claimed.AUGMENTATION_ABLATION,
)
