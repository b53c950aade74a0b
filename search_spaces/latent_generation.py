"""Images sampled from the density of an encoder's representations (GMJE, section 5.3 and appendix P.4: Table 2).

An encoder is trained, a density of its representations (scaled to unit length) is sampled, and a decoder trained
afterwards turns the samples into images. The paper fits a mixture to SimCLR's representations (`gmm`), uses mean and
covariance of GJE's representations (`gaussian`), and the prototypes of Parametric GMJE with its moving covariance
(`own`), and compares volumes. Because volume is not quality, here each encoder also gets a fitted mixture, and a
classifier of real images evaluates the samples. The row `latents` decodes representations of test images, an upper
bound for every density, and `images` are the test images themselves.

Unlike in the paper, GJE's Gaussian is fitted to 10,000 representations, like SimCLR's mixture, and a decoder stops
early if the error on held-out images has not fallen for ten epochs (`density_images`, `adhoc_patience`).
"""

import math
from collections.abc import Mapping

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as claimed
from search_spaces import _gmje_values as printed
from search_spaces._protocols import PROBE, SEEDS, Keys
from sweeper.definition import Assumption, Grid, Metric, Sweep, Table

DENSITIES: Mapping[str, tuple[str, ...]] = {
    "simclr": ("gmm", "gaussian", "latents"),
    "gje": ("gaussian", "gmm", "latents"),
    "gmje_parametric": ("own", "own_weighted", "gmm", "latents"),
}
"""Method -> the densities of its representations, beginning with the paper's."""

NAME = "latent_generation"
TRAINING: Keys = {"encoder": "strided_convnet", "optimiser": "adam", "density_pictures": True}
"""The encoder's convolutions have 32, 64, 128 and 256 channels on images of 32 x 32 pixels, and 32 and 64 on 8 x 8.
Losses compare the representations themselves."""
PAPER: Keys = {
    **TRAINING,
    "dataset": "mnist32",
    "report_every": 10,
    "decoder": "strided_deconv",
    "adhoc_patience": 10,
    **printed.values(NAME),
}
DIGITS: Keys = {
    **TRAINING,
    "dataset": "digits",
    "width": 32,
    "lr_schedule": "constant",
    "lr": 1e-3,
    "features": 32,
    "epochs": 34,
    "report_every": 34,
    "batch_size": 128,
    "rotation": 10.0,
    "shift": 1.0,
    "decoder": "relu_mlp",
    "decoder_hidden": "256+256",
    "adhoc_epochs": 200,
    "adhoc_lr": 1e-3,
    "density_components": 10,
}
"""306 steps. A mixture of ten components has 126 training images per component; with fifty components it would have 25,
fewer than the dimensions."""
OWN: Mapping[str, Keys] = {method: printed.values(NAME, method) for method in DENSITIES}
"""Method -> its own hyperparameters on MNIST. GJE's entropy has lambda = 1/(2D)."""
OWN_DIGITS: Mapping[str, Keys] = {
    "simclr": {"projector_width": 0, "tau": 0.5},
    "gje": {"projector_width": 0},
    "gmje_parametric": {"projector_width": 0, "tau": 0.07, "entropy_weight": 60.0, "prototypes": 10, "ema": 0.99},
}
"""As `OWN`, for the digits. At so low a temperature a weight of 1 is too small for Parametric GMJE: its volume is then
-193, near that of SimCLR's Gaussian. Its temperature and weight were chosen by volume and spread, which need no
labels; on MNIST it has the same."""


def _free(method: str, *keys: str) -> Keys:
    """A method's settings on the digits without these hyperparameters."""
    return {"method": method, **{key: value for key, value in OWN_DIGITS[method].items() if key not in keys}}


def _grids(protocol: Keys, own: Mapping[str, Keys], seeds: tuple[int, ...]) -> tuple[Grid, ...]:
    """One grid for each method over its densities and the seeds, and the test images."""
    methods = (
        Grid({**protocol, "method": method, **keys}, {"density": DENSITIES[method], "seed": seeds})
        for method, keys in own.items()
    )
    images = {**protocol, "method": "pixels", "epochs": 0, "seed": seeds[0], "density": "images"}
    return (*methods, Grid(images, {}, pinned=frozenset({"epochs", "seed", "density"})))


PROBED: Keys = {"probe_epochs": 100, "probe_lr": 0.5, "probe_batch_size": 64, "probe_standardize": True}
CONTROLS = (
    Grid(
        {**DIGITS, **PROBED, **_free("gmje_parametric", "prototypes"), "density": "own"},
        {"prototypes": (2, 10, 50), "seed": SEEDS},
    ),
    Grid({**DIGITS, **PROBED, **_free("simclr"), "density": "gmm"}, {"seed": SEEDS}),
)
"""Additional trials: a linear probe beside the samples, and the number of prototypes."""


def ceilings(dimensions: int, components: int) -> str:
    """The largest volume and spread of densities of unit vectors."""
    volume, spread = -dimensions * math.log(dimensions), math.sqrt(2 * components / (components - 1))
    return (
        f"ceilings for unit vectors: density_volume -D log D = {volume:.1f} (D = {dimensions}), density_trace 1, "
        f"spread sqrt(2K/(K-1)) = {spread:.2f} (K = {components})"
    )


CONFIDENT = Metric("sample_confident", "maximize", percent=True)
COVERAGE, FRECHET = Metric("sample_coverage", "maximize"), Metric("frechet_digits", "minimize")
GEOMETRY = (Metric("density_volume"), Metric("density_trace"), Metric("spread"))
ROWS = ("method", "density")
TABLE_2 = {
    ("simclr", "gmm"): {"density_volume": -878.99, "density_trace": 0.85, "spread": 0.55},
    ("gje", "gaussian"): {"density_volume": -636.15, "density_trace": 0.99},
    ("gmje_parametric", "own"): {"density_volume": -621.58, "density_trace": 1.00, "spread": 1.43},
}

ASSUMED = (
    assumed.ONLY_42,
    assumed.REPORTS,
    *printed.not_legible(NAME),
    Assumption("chosen on the digits", ("tau", "entropy_weight"), ("gmje_parametric",)),
    Assumption(
        "ends in a sigmoid for pixels from 0 to 1, where the paper has Tanh for pixels from -1 to 1 (a sigmoid of "
        "twice the input, rescaled), and has 4 x 4 transposed convolutions without the paper's output padding",
        ("decoder",),
    ),
    Assumption("the paper uses only the first density of each method", ("density",)),
    Assumption(
        "unlike in the paper, GJE's Gaussian is fitted to 10,000 latents, and a decoder stops when the error on "
        "held-out images no longer falls",
        ("density_images", "adhoc_patience"),
    ),
)

SWEEP = Sweep(
    about="images sampled from densities of representations: volume and spread beside quality and coverage; unlike in "
    "the paper, GJE's Gaussian is fitted to 10,000 latents and decoders stop early",
    presets={
        "paper": _grids(PAPER, OWN, printed.seeds(NAME)),
        "digits": _grids(DIGITS, OWN_DIGITS, SEEDS),
        "controls": CONTROLS,
    },
    paper=assumed.GMJE,
    assumptions={"paper": ASSUMED},
    figures=(
        Table(
            "densities",
            ROWS,
            (CONFIDENT, COVERAGE, *GEOMETRY),
            presets=("paper",),
            published={"paper": TABLE_2},
            place="Table 2",
            note=ceilings(128, 50),
        ),
        Table(
            "densities_digits",
            ROWS,
            (CONFIDENT, COVERAGE, FRECHET, *GEOMETRY),
            presets=("digits",),
            place="Table 2",
            note=ceilings(32, 10),
        ),
        Table(
            "prototypes",
            ("method", "prototypes"),
            (PROBE, CONFIDENT, COVERAGE, FRECHET),
            presets=("controls",),
            place="4.3",
        ),
    ),
    claims=claimed.LATENT_GENERATION,
)
