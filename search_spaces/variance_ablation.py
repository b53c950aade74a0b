"""The variance sigma_x2 of a pixel's likelihood, which weights reconstruction against the prior (SimVAE, Fig. 8).

The larger the variance, the more of the image the latents may lose. Finally a VAE's posterior collapses onto its prior:
its variance `var_mean` is then 1. SimVAE's prior holds the views of an image together and leaves their centre free. The
paper's figure has SimVAE, and its text says the same of all VAEs. The VAE here is also the beta-VAE, whose `beta` is 1.
The preset `fashion` has only SimVAE on Fashion-MNIST, for 2 epochs of 468 steps instead of 400 epochs.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_simvae as claimed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import Keys
from search_spaces._simvae_protocols import GMM, KNN, OWN, OWN_DIGITS, PROBE_LINEAR, PROBE_MLP, method_grids
from sweeper.definition import Assumption, Heatmap, Metric, Sweep, Table

VARIANCES = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0)
"""The paper does not state its values."""
VARIANCES_DIGITS = (0.005, *VARIANCES)
EVALUATED: Keys = {"content_probe_epochs": 200, "content_knn": 15, "reconstructions": True}


def _free(own: Keys) -> Keys:
    return {key: value for key, value in own.items() if key != "sigma_x2"}


VAES, SETS = ("vae", "cr_vae", "simvae"), ("mnist", "cifar10")
PAPER = method_grids(
    VAES,
    {method: _free(own) for method, own in OWN.items()},
    protocols.paper_protocols({**protocols.CONTENT, "reconstructions": True}, SETS),
    {"sigma_x2": VARIANCES},
)
DIGITS = method_grids(
    VAES,
    {method: _free(own) for method, own in OWN_DIGITS.items()},
    [{**protocols.DIGITS, **EVALUATED, "content_probe_lr": protocols.PROBE_LR_DIGITS}],
    {"sigma_x2": VARIANCES_DIGITS},
)
FASHION = method_grids(
    ("simvae",),
    {"simvae": _free(protocols.OWN_FASHION["simvae"])},
    [{**protocols.FASHION, **protocols.CONTENT_FASHION, "gmm_n_init": 0, "reconstructions": True}],
    {"sigma_x2": VARIANCES},
)

SWEEP = Sweep(
    about="class accuracy, reconstructions and posterior of SimVAE and VAEs over the likelihood's variance sigma_x2",
    presets={"paper": PAPER, "digits": DIGITS, "fashion": FASHION},
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (
            *assumed.SIMVAE_ALONE,
            assumed.MLP_PROBE,
            assumed.MIXTURE,
            Assumption("the paper does not state the variances", ("sigma_x2",)),
        )
    },
    figures=(
        *(
            Heatmap(
                metric, "model", "sigma_x2", presets=("paper",), selections=protocols.models(VAES, SETS), place="Fig. 8"
            )
            for metric in (PROBE_MLP, KNN, PROBE_LINEAR, GMM)
        ),
        *(Heatmap(metric, "dataset", "sigma_x2", presets=("fashion",), place="Fig. 8") for metric in (PROBE_MLP, KNN)),
        *(Heatmap(metric, "method", "sigma_x2", presets=("digits",), place="Fig. 8") for metric in (PROBE_MLP, KNN)),
        Table(
            "posterior",
            ("dataset", "method", "sigma_x2"),
            (PROBE_MLP, Metric("reconstruction_mse", "minimize"), Metric("var_mean")),
        ),
    ),
    over="seeds",
    claims=claimed.VARIANCE_ABLATION,
)
