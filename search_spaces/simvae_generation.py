"""Images decoded from representations: reconstructions and samples of each class (SimVAE: Table 7 and the pictures of
reconstructions and samples).

SimCLR and VICReg have no decoder, so a decoder is trained on their frozen representations. FID needs Inception weights,
set by `--set fid_weights=FILE`; without them it is not reported. The digits use `frechet_digits` instead. It is 0.80 ±
0.20 for training images (mean ± standard deviation over 200 draws of 500). For samples of class-wise pixel Gaussians,
which need no network, it is 2.19 ± 0.20, with a `sample_accuracy` of 96.7 ± 0.4 % (40 draws).

The preset `fashion` uses only Fashion-MNIST: 2 epochs of 468 steps instead of the paper's 400 epochs, and 2 decoder
epochs instead of at most 80.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_simvae as claimed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import Keys
from search_spaces._simvae_protocols import AUTOENCODERS, DATASETS, OWN, OWN_DIGITS, method_grids, published
from sweeper.definition import Assumption, Metric, Sweep, Table

METHODS = ("simclr", "vicreg", *AUTOENCODERS)
DECODED: Keys = {"reconstructions": True, "adhoc_epochs": 80, "adhoc_lr": 1e-4, "sheets": True}
SAMPLES = {name: 5000 if name == "celeba" else 1000 for name in DATASETS}
"""Number of samples per class, 10,000 in total."""

PAPER = method_grids(
    METHODS,
    OWN,
    [
        {**protocol, "samples_per_class": SAMPLES[str(protocol["dataset"])]}
        for protocol in protocols.paper_protocols(DECODED)
    ],
)
DIGITS = method_grids(
    METHODS,
    OWN_DIGITS,
    [{**protocols.DIGITS, **DECODED, "adhoc_epochs": 200, "adhoc_lr": 1e-3, "samples_per_class": 100}],
)
FASHION = method_grids(
    METHODS,
    protocols.OWN_FASHION,
    [{**protocols.FASHION, **DECODED, "adhoc_epochs": 2, "adhoc_lr": 1e-3, "samples_per_class": 100}],
)

MSE, FID, FRECHET = (Metric(name, "minimize") for name in ("reconstruction_mse", "fid", "frechet_digits"))
ACCURACY, DIVERSITY = Metric("sample_accuracy", "maximize", percent=True), Metric("diversity")
TABLE_7 = {
    "vae": ((0.029, 150.1), (0.012, 99.4), (0.016, 162.9), (0.008, 365.4)),
    "beta_vae": ((0.029, 155.3), (0.008, 99.9), (0.005, 163.8), (0.004, 376.7)),
    "cr_vae": ((0.030, 153.0), (0.008, 98.7), (0.005, 159.3), (0.004, 374.4)),
    "simvae": ((0.026, 152.7), (0.009, 96.1), (0.004, 157.8), (0.003, 349.9)),
}

SWEEP = Sweep(
    about="reconstructions and samples of each class: squared error, Frechet distances, accuracy and diversity",
    presets={"paper": PAPER, "digits": DIGITS, "fashion": FASHION},
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (
            *assumed.SIMVAE_METHODS,
            Assumption("10,000 samples; the paper does not state the number", ("samples_per_class",)),
            Assumption("a maximum; the paper stops after 10 to 80", ("adhoc_epochs",)),
        )
    },
    figures=(
        Table(
            "generation",
            ("method",),
            (MSE, FID),
            columns="dataset",
            presets=("paper",),
            place="Table 7",
            published={"paper": published(TABLE_7, (MSE, FID))},
        ),
        Table(
            "generation_fashion",
            ("method",),
            (MSE, DIVERSITY),
            columns="dataset",
            presets=("fashion",),
            place="Table 7",
            published={
                "fashion": published({name: [row[1][:1]] for name, row in TABLE_7.items()}, (MSE,), ("fashion_mnist",))
            },
        ),
        Table(
            "generation_digits", ("method",), (MSE, FRECHET, ACCURACY, DIVERSITY), presets=("digits",), place="Table 7"
        ),
    ),
    claims=claimed.SIMVAE_GENERATION,
)
