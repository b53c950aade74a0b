"""How many views J of an image SimVAE should have in a step (SimVAE, Fig. 7).

A step has a fixed number of either views or images. In the preset `digits` steps and epochs have a fixed number of
views: every J costs the same, and more views per image leave room for fewer images. In `digits_images` they have a
fixed number of images, so that J views cost J times as much as one view. In `paper` and `authors_code` steps have 128
views, but an epoch is a pass over all images, so that more views mean more steps. The preset `fashion` is like
`digits`, with 128 views per step and 2 epochs of Fashion-MNIST (936 steps) instead of the paper's 400 epochs.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_simvae as claimed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import SEEDS
from search_spaces._simvae_protocols import GMM, KNN, OWN, OWN_DIGITS, PROBE_LINEAR, PROBE_MLP
from sweeper.definition import Grid, Heatmap, Sweep, Value

J = (2, 4, 6, 8, 10)


def _grids(own: protocols.Keys, images: list[protocols.Keys]) -> tuple[Grid, ...]:
    """A grid for each data set and J, with 128 views per step and epochs over all images, as in the authors' code."""
    return tuple(
        Grid({**protocol, **own, "views": views, "batch_size": 128 // views}, {"seed": SEEDS})
        for protocol in images
        for views in J
    )


PAPER = _grids(
    {"method": "simvae", **OWN["simvae"]},
    protocols.paper_protocols(protocols.CONTENT, ("mnist", "fashion_mnist", "cifar10")),
)
"""Fig. 7 has MNIST and CIFAR-10; the caption of Fig. 6 has Fashion-MNIST, by k-NN and mixtures."""
AUTHORS_CODE = _grids(
    protocols.AUTHORS_SIMVAE,
    [
        {"dataset": name, **protocols.AUTHORS_DATASETS[name], **protocols.AUTHORS_CONTENT}
        for name in ("mnist", "cifar10")
    ],
)

SIMVAE_DIGITS: protocols.Keys = {
    **protocols.DIGITS,
    **protocols.CONTENT_DIGITS,
    "method": "simvae",
    **OWN_DIGITS["simvae"],
}


def _digits(batch_unit: str, batch_sizes: tuple[int, ...], epochs: int) -> Grid:
    """Grid over J and the batch size in this unit."""
    axes: dict[str, tuple[Value, ...]] = {"views": J, "batch_size": batch_sizes, "seed": SEEDS}
    training: protocols.Keys = {"batch_unit": batch_unit, "epochs": epochs, "report_every": epochs}
    fixed = {key: value for key, value in {**SIMVAE_DIGITS, **training}.items() if key not in axes}
    return Grid(fixed, axes)


DIGITS = _digits("views", (64, 128, 256), epochs=protocols.EPOCHS_DIGITS)
DIGITS_IMAGES = _digits("images", (32, 64, 128), epochs=protocols.EPOCHS_DIGITS // 2)
"""With 2 views this encodes as many images as `DIGITS`, with 10 views five times as many."""

FASHION = tuple(
    Grid(
        {
            **protocols.FASHION,
            **protocols.CONTENT_FASHION,
            "method": "simvae",
            **protocols.OWN_FASHION["simvae"],
            "views": views,
        },
        {"seed": SEEDS},
    )
    for views in J
)

METRICS = (PROBE_MLP, KNN, PROBE_LINEAR, GMM)
OF_IMAGES = ("paper", "fashion", "authors_code")
OF_BATCHES = ("digits", "digits_images")

SWEEP = Sweep(
    about="class accuracy of SimVAE over the number of views J, at a fixed number of views or images per step",
    presets={
        "paper": PAPER,
        "digits": DIGITS,
        "digits_images": DIGITS_IMAGES,
        "fashion": FASHION,
        "authors_code": AUTHORS_CODE,
    },
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (*assumed.SIMVAE_ALONE, assumed.MLP_PROBE, assumed.MIXTURE),
        "authors_code": assumed.RELEASED,
    },
    figures=(
        *(Heatmap(metric, "views", "dataset", presets=OF_IMAGES, place="Fig. 7") for metric in METRICS),
        *(Heatmap(metric, "views", "batch_size", presets=OF_BATCHES, place="Fig. 7") for metric in METRICS),
    ),
    over="seeds",
    claims=claimed.J_ABLATION,
)
