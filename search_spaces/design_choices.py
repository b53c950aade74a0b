"""Design choices that the papers argue for but do not ablate, with and without, on scikit-learn's digits: one preset
per paper.

- `vje`: the variance shared by posterior and likelihood, the split into direction and length, the stop-gradient, the
  fixed scale of lengths (VJE, sections 3 and 4).
- `simvae`: the reconstruction, which keeps an image's views and their style apart (SimVAE, sections 3.2 and 3.3).
- `gmje`: the attraction of the views, and what prevents JEPA's collapse (GJE, sections 2 and O.3); both sides of a
  projector, and cosine versus dot product (SimVAE, sections 3.3 and A.5); the joint Gaussian's prediction of targets.
"""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_gmje as of_gmje
from search_spaces import _claims_simvae as of_simvae
from search_spaces import _claims_vje as of_vje
from search_spaces import _gmje_protocols as gmje_protocols
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import COSINE, KNN, KNN_MU, PROBE, PROBE_5, RANK, SEEDS, TRACE, VJE_DIGITS, Keys
from search_spaces._simvae_protocols import OWN_DIGITS, PROBE_MLP
from sweeper.definition import Grid, Metric, Sweep, Table

JEPA: Keys = {"method": "jepa", "ema": 0.99, "predictor_width": 128}
VJE_CHOICES: tuple[Keys, ...] = (
    {},
    {"shared_variance": False},
    {"likelihood": "euclidean"},
    {"target_gradient": True},
    {"radial_scale": "learned"},
    {"radial_scale": "normalised"},
)
SIMVAE_CHOICES: tuple[Keys, ...] = (
    {"method": "simvae"},
    {"method": "simvae", "reconstruction_weight": 0.0},
    {"method": "simclr"},
    {"method": "vicreg"},
    {"method": "random"},
)
GMJE_CHOICES: tuple[Keys, ...] = (
    {"method": "gje"},
    {"method": "gje", "alignment_weight": 0.0},
    JEPA,
    {**JEPA, "symmetric": True},
    {**JEPA, "standardise": False},
    {**JEPA, "symmetric": True, "standardise": False},
    {"method": "simclr"},
    {"method": "simclr", "similarity": "dot"},
)
"""Settings of the trials of a choice besides the protocol. Trials with a paper's own choice leave out its key."""
VJE_PROTOCOL: Keys = {**VJE_DIGITS, "beta": 1.0, "nu": 3.0}
SIMVAE_PROTOCOL: Keys = {
    **protocols.DIGITS,
    "content_probe_epochs": 200,
    "content_probe_lr": protocols.PROBE_LR_DIGITS,
    "styles": "ink+slant",
    "knn": 30,
    "geometry": "representation",
}
GMJE_PROTOCOL: Keys = {**gmje_protocols.COLLAPSE_DIGITS, "compare_projection": True, "prediction": True}


def _simvae(own: Keys) -> Grid:
    method = str(own["method"])
    pinned = frozenset({"epochs"} if method == "random" else ())
    return Grid({**SIMVAE_PROTOCOL, **OWN_DIGITS[method], **own}, {"seed": SEEDS}, pinned=pinned)


SWEEP = Sweep(
    about="design choices that VJE, SimVAE and GJE argue for but do not ablate, with and without, on the digits",
    presets={
        "vje": tuple(Grid({**VJE_PROTOCOL, **own}, {"seed": SEEDS}) for own in VJE_CHOICES),
        "simvae": tuple(map(_simvae, SIMVAE_CHOICES)),
        "gmje": tuple(Grid({**GMJE_PROTOCOL, **own}, {"seed": SEEDS}) for own in GMJE_CHOICES),
    },
    paper=f"{assumed.VJE}, {assumed.SIMVAE}, {assumed.GMJE}",
    figures=(
        Table(
            "vje_choices",
            ("shared_variance", "likelihood", "target_gradient", "radial_scale"),
            (KNN, KNN_MU, PROBE, Metric("var_mean"), Metric("var_cv"), Metric("mu_cosine"), Metric("error_auroc")),
            presets=("vje",),
            place="3, 4",
        ),
        Table(
            "simvae_choices",
            ("method", "reconstruction_weight"),
            (PROBE_MLP, Metric("style_mean", "maximize", percent=True), COSINE, Metric("view_variance_z"), RANK, TRACE),
            presets=("simvae",),
            place="3",
        ),
        Table(
            "gmje_choices",
            ("method", "alignment_weight", "symmetric", "standardise", "similarity"),
            (
                *(PROBE_5, Metric("probe_5_projection", "maximize", percent=True), RANK, TRACE, COSINE),
                *(Metric("view_variance_z"), Metric("view_variance_projection")),
                *(Metric("predicted_error", "minimize"), Metric("predicted_coverage")),
            ),
            presets=("gmje",),
            place="2, 3",
        ),
    ),
    over="seeds",
    claims=(*of_vje.DESIGN, *of_simvae.DESIGN, *of_gmje.DESIGN),
)
