"""Claims of GJE and GMJE (arXiv 2603.26799), by the sweep that can judge them. Numbers are shares in [0, 1]."""

from search_spaces import _assumptions as assumed
from search_spaces._claims import CONTROLS, DIGITS, PAPER, also_by, best, judged_by
from sweeper.claims import Claim, Filter, Side, Where

COMPONENTS = ("components",)
JEPA: Where = {"method": "jepa_pairs"}
PROCESS: Where = {"method": "gaussian_process"}
GNG: Where = {"method": "gmje_gng"}
MDN: Where = {"method": "gmje_mdn_pairs", "initial_floor": 0.1, "starts": 4}
PLAIN_MDN: Where = {"method": "gmje_mdn_pairs", "initial_floor": 0.0, "starts": 1}
"""The MDN without our annealing and additional starts, and with them."""
NLL, ENERGY = "nll_excess", "energy_distance"


def _em(components: int) -> Where:
    return {"method": "gmje_em", "components": components}


SYNTHETIC_ALIGNMENT = judged_by(
    PAPER,
    Claim("GMJ-01a", "a predictor by squared error (JEPA) averages the branches", "5.1, L", Side("branches", JEPA), "<", 0.5),
    Claim("GMJ-01b", "... so its energy distance is larger than the MDN's", "5.1, L", Side("energy_distance_point", JEPA), ">", Side(ENERGY, MDN)),
    Claim("GMJ-03a", "the dual process cannot separate branches either", "Figs. 4b, 6b", Side("branches", PROCESS), "<", 0.5),
    Claim("GMJ-03b", "... and is as good as one Gaussian", "Figs. 4b, 6b", Side(NLL, PROCESS), "~", Side(NLL, _em(1)), 0.1),
    Claim("GMJ-04a", "one Gaussian has no variance between components", "Figs. 4c, 6c", Side("variance_between", _em(1)), "<", 0.001),
    Claim("GMJ-04b", "... and absorbs the ambiguity into its own", "Figs. 4c, 6c", Side("variance_within", _em(1)), ">", Side("variance_within", MDN)),
    Claim("GMJ-05a", "EM with three components beats one by the density", "Figs. 4d, 6d", Side(NLL, _em(3)), "<", Side(NLL, _em(1))),
    Claim("GMJ-05b", "... and by the energy distance in B", "Figs. 4d, 6d", Side(ENERGY, {**_em(3), "dataset": "synthetic_b"}), "<", Side(ENERGY, {**_em(1), "dataset": "synthetic_b"})),
    Claim("GMJ-06a", "... but it misses branches", "Figs. 4d, 6d", Side("branches", _em(3)), "<", 0.9),
    Claim("GMJ-06b", "... and its density is coarse", "Figs. 4d, 6d", Side(NLL, _em(3)), ">", 0.5),
    Claim("GMJ-07a", "by its density GNG follows the branches better than EM", "Figs. 4e, 6e", Side(NLL, GNG), "<", Side(NLL, _em(3))),
    Claim("GMJ-07b", "... and by the branches that it finds", "Figs. 4e, 6e", Side("branches", GNG), ">", Side("branches", _em(3))),
    Claim("GMJ-08", "GNG finds the components by itself: it beats EM with the same number", "4.5", Side(NLL, GNG), "<", Side(NLL, _em(30)), presets=COMPONENTS),
    Claim("GMJ-17a", "more components bring a mixture nearer to the density", "Thm. 1, Cor. 1", Side(NLL, {"method": "gmje_em"}, "correlation", "components"), "<", 0.0, presets=COMPONENTS),
    Claim("GMJ-17b", "... so that 30 components are close to it", "Thm. 1, Cor. 1", Side(NLL, _em(30)), "<", 0.1, presets=COMPONENTS),
    Claim("GMJ-09a", "the MDN has the best density", "Figs. 4f to 7", Side(NLL, MDN), "<", Side(NLL, GNG)),
    Claim("GMJ-09b", "... and the best energy distance", "Figs. 4f to 7", Side(ENERGY, MDN), "<", Side(ENERGY, GNG)),
    Claim("GMJ-10a", "the MDN beats GNG as printed, without annealing", "P.2.3", Side(NLL, PLAIN_MDN), "<", Side(NLL, GNG)),
    Claim("GMJ-10b", "... and finds all branches", "P.2.3", Side("branches", PLAIN_MDN), ">", 0.99),
    Claim("GMJ-11", "the MDN's means lie on the branches", "Figs. 5b, 7b", Side("branches", MDN), ">", 0.99),
    Claim("GMJ-12", "its standard deviations equal the noise", "Figs. 5c, 7c", Side("sigma_mean", MDN), "~", 0.05, 0.005),
    Claim("GMJ-13", "its weights stay near a third", "Figs. 5a, 7a", Side("pi_error", MDN), "<", 0.05, published="1/3"),
    Claim("GMJ-14", "in A the variance between branches is the ambiguous part of the total", "Eq. 106", Side("variance_between", {**MDN, "dataset": "synthetic_a"}), "~", 0.56, 0.02),
    Claim("GMJ-16a", "its uncertainty is calibrated: its density is near the true one", "D.3", Side(NLL, MDN), "<", 0.05),
    Claim("GMJ-16b", "... and its 90 % intervals contain 90 % of the targets", "D.3", Side("coverage", MDN), "~", 0.9, 0.02),
    Claim("GMJ-02", "a predictor by squared error predicts the mean over the branches", "Figs. 4a, 6a", Side("mean_distance", JEPA), "<", 0.1),
    Claim("GMJ-15a", "one joint Gaussian predicts the same variance for all x", "3.3", Side("sigma_deviation", _em(1)), "<", 0.01),
    Claim("GMJ-15b", "... and the dual process does not", "3.3", Side("sigma_deviation", PROCESS), ">", 0.01),
    Claim("GMJ-15c", "... nor does the MDN", "3.3", Side("sigma_deviation", MDN), ">", 0.01),
)  # fmt: skip

SIZES = ("paper_sizes",)
QUEUE: Where = {"method": "moco_v2"}
BANK: Where = {"method": "smc_gmje"}
DRAWN: Where = {**BANK, "resampling": "multinomial"}
LATE, EARLY = Filter(">", 500), Filter("<", 100)
MEMORY_BANK = judged_by(
    (*PAPER, *DIGITS),
    *also_by(
        (
            Claim("GMJ-18", "the particle bank beats the queue", "Fig. 8, 5.2.1", Side("probe_z", DRAWN), ">", Side("probe_z", QUEUE), 0.01, published="81.99 > 78.08"),
            Claim("GMJ-25a", "systematic and multinomial resampling are interchangeable", "4.7.3", Side("probe_z", DRAWN), "~", Side("probe_z", {**BANK, "resampling": "systematic"}), 0.01),
            Claim("GMJ-25b", "... and so is alias resampling", "4.7.3", Side("probe_z", DRAWN), "~", Side("probe_z", {**BANK, "resampling": "alias"}), 0.01),
        ),
        {"probe_z": "probe_5"},
    ),
    Claim("GMJ-19", "late in training the queue's loss is less stable", "Fig. 8", Side("loss", {**QUEUE, "epoch": LATE}, "deviation", "epoch"), ">", Side("loss", {**BANK, "epoch": LATE}, "deviation", "epoch"), presets=PAPER),
    Claim("GMJ-20", "early in training both behave alike", "5.2.1", Side("loss", {**QUEUE, "epoch": EARLY}), "~", Side("loss", {**BANK, "epoch": EARLY}), 0.1, PAPER),
    Claim("GMJ-21a", "the effective sample size falls", "Fig. 8, 4.7", Side("ess", BANK, "correlation", "epoch"), "<", 0.0),
    Claim("GMJ-21b", "... below half", "Fig. 8, 4.7", Side("ess", {**BANK, "bank": 256}), "<", 128, presets=PAPER),
    Claim("GMJ-21b", "... below half", "Fig. 8, 4.7", Side("ess", {**BANK, "bank": 128}), "<", 128, presets=DIGITS),
    Claim("GMJ-22", "a small bank beats a large queue", "4.7", Side("probe_5", {**BANK, "bank": 16}), ">", Side("probe_5", {**QUEUE, "queue": 128}), presets=DIGITS),
    Claim("GMJ-23", "valuable particles are cloned", "4.7, 5.2.1", Side("bank_distinct", BANK), "<", 0.9),
    Claim("GMJ-24", "the bank costs at most a tenth of a second per trial more than the queue", "4.7", Side("seconds", BANK), "<", Side("seconds", QUEUE), -0.1, DIGITS),
    Claim("GMJ-29b", "MoCo's probe with 256 negatives", "5.2.1", Side("probe_z", QUEUE), "~", 0.7808, 0.01, PAPER, "78.08"),
    Claim("GMJ-29c", "SMC-GMJE's probe with 256 particles", "5.2.1", Side("probe_z", DRAWN), "~", 0.8199, 0.01, PAPER, "81.99"),
    Claim("GMJ-18", "the particle bank beats the queue at each size", "Fig. 8, 5.2.1", Side("probe_z", {**DRAWN, "bank": 64}), ">", Side("probe_z", {**QUEUE, "queue": 64}), 0.01, SIZES, "81.99 > 78.08 at 256"),
    Claim("GMJ-22", "a small bank beats a large queue", "4.7", Side("probe_z", {**BANK, "bank": 64}), ">", Side("probe_z", {**QUEUE, "queue": 256}), presets=SIZES),
    Claim("SIM-46", "a tighter bound on mutual information (more negatives) does not help", "3.3", Side("probe_5", {**QUEUE, "queue": 128}), "~", Side("probe_5", {**QUEUE, "queue": 16}), 0.01, DIGITS, paper=assumed.SIMVAE),
)  # fmt: skip


EXACT: Where = {"method": "gpje", "random_features": 0}
FEATURES: Where = {"method": "gpje", "random_features": 128}


def _probe(*methods: str, metric: str = "probe_z") -> Side:
    return Side(metric, {"method": methods[0]}) if len(methods) == 1 else best(metric, {"method": methods})


SSL_BENCHMARK = judged_by(
    (*PAPER, *DIGITS),
    *also_by(
        (
            Claim("GMJ-27a", "SimCLR beats BYOL", "Table 1", _probe("simclr"), ">", _probe("byol"), published="81.50 > 79.04"),
            Claim("GMJ-27b", "BYOL and MoCo are equal", "Table 1", _probe("byol"), "~", _probe("moco_v2"), 0.01, published="79.04, 79.02"),
            Claim("GMJ-28", "SMC-GMJE is last", "Table 1", _probe("smc_gmje"), "<", Side("probe_z", {"method": ("simclr", "byol", "moco_v2")}, "smallest", "method"), published="74.52 < 79.02"),
            Claim("GMJ-32", "GMJE is as good as the contrastive methods", "7", best("probe_z", {"method": ("gje", "gmje_parametric", "smc_gmje")}), "~", best("probe_z", {"method": ("simclr", "byol", "moco_v2")}), 0.02),
            Claim("GMJ-34", "joint modelling beats a deterministic predictor (JEPA)", "1, 2", _probe("gje"), ">", _probe("jepa")),
            Claim("GMJ-35", "a conditional mixture helps representations", "4.4", _probe("gmje_mdn"), ">", _probe("gje")),
            Claim("GMJ-56a", "GJE trains without momentum encoder as well as MoCo with one", "3.2, 6", _probe("gje"), "~", _probe("moco_v2"), 0.02),
            Claim("GMJ-56b", "... and better than BYOL", "3.2, 6", _probe("gje"), ">", _probe("byol")),
            Claim("GMJ-68a", "prototypes repair the repulsion of images of the same class by instance discrimination", "4.6", _probe("gmje_parametric"), ">", _probe("simclr")),
        ),
        {"probe_z": "probe_5"},
    ),
    Claim("GMJ-68b", "... images of the same class are nearer to each other than with SimCLR", "4.6", Side("class_distance", {"method": "gmje_parametric"}), "<", Side("class_distance", {"method": "simclr"})),
    Claim("GMJ-29a", "SimCLR's probe", "Table 1", _probe("simclr"), "~", 0.815, 0.01, PAPER, "81.50"),
    Claim("GMJ-30a", "SMC-GMJE does not collapse: its rank", "5.2.2", Side("effective_rank", {"method": "smc_gmje"}), ">", 5),
    Claim("GMJ-30b", "... and its probe", "5.2.2", _probe("smc_gmje"), ">", _probe("random")),
    Claim("GMJ-31", "SwAV, VICReg, Parametric GMJE and GMJE-MDN fail at this budget", "5.2.2", _probe("swav", "vicreg", "gmje_parametric", "gmje_mdn"), "<", _probe("smc_gmje")),
    Claim("GMJ-55", "entropy fills the space better than VICReg's hinge", "O.4", Side("effective_rank", {"method": "gje"}), ">", Side("effective_rank", {"method": "vicreg"})),
    Claim("GMJ-70", "random features approximate the exact dual", "F.1", Side("probe_5", {"method": "gpje", "random_features": 1024}), "~", Side("probe_5", {"method": "gpje", "random_features": 0}), 0.02, PAPER),
    Claim("GMJ-70", "random features approximate the exact dual", "F.1", Side("probe_5", {"method": "gpje", "random_features": 128}), "~", Side("probe_5", {"method": "gpje", "random_features": 0}), 0.02, DIGITS),
    Claim("GMJ-33", "on a four times longer schedule SMC-GMJE is level with MoCo", "5.2.2", Side("probe_5", {"method": "smc_gmje", "epochs": 112}), "~", Side("probe_5", {"method": "moco_v2", "epochs": 112}), 0.01, CONTROLS),
    Claim("GMJ-67", "DaM-GMJE and SimCLR train alike at the same temperature", "4.6", Side("probe_5", {"method": "dam_gmje"}), "~", Side("probe_5", {"method": "simclr", "tau": 0.2}), 0.01, CONTROLS),
    Claim("GMJ-69", "full covariances keep style that contrastive methods erase", "4.6", Side("style_ink", {"method": "gje", "styles": "ink+slant"}), ">", Side("style_ink", {"method": "simclr", "styles": "ink+slant"}), presets=CONTROLS),
    Claim("GMJ-71a", "the exact dual's time per epoch rises with the batch size", "3.3, F, G", Side("seconds", {**EXACT, "batch_size": 1024}), ">", Side("seconds", {**EXACT, "batch_size": 64}), presets=CONTROLS),
    Claim("GMJ-71b", "... unlike the primal's", "3.3, F, G", Side("seconds", {"method": "gje", "batch_size": 1024}), "<", Side("seconds", {"method": "gje", "batch_size": 64}), presets=CONTROLS),
    Claim("GMJ-71c", "... and unlike that of random features", "3.3, F, G", Side("seconds", {**FEATURES, "batch_size": 1024}), "<", Side("seconds", {**FEATURES, "batch_size": 64}), presets=CONTROLS),
    Claim("GMJ-74a", "the general particle bank learns", "N", _probe("smc_joint_gmje", metric="probe_5"), ">", _probe("random", metric="probe_5")),
    Claim("GMJ-74b", "... as well as SMC-GMJE", "N", _probe("smc_joint_gmje", metric="probe_5"), "~", _probe("smc_gmje", metric="probe_5"), 0.02),
    Claim("SIM-45", "InfoNCE with cosine aligns the views of an image fully", "A.5", Side("cosine", {"method": "simclr"}), ">", 0.9, paper=assumed.SIMVAE),
    Claim("SIM-47", "clustering methods (here SwAV) also make the views of an image coincide", "3.3", Side("cosine", {"method": "swav"}), ">", 0.9, paper=assumed.SIMVAE),
)  # fmt: skip


def _of(method: str, density: str) -> Where:
    return {"method": method, "density": density}


OWN, GAUSSIAN, MIXTURE = _of("gmje_parametric", "own"), _of("gje", "gaussian"), _of("simclr", "gmm")
CONFIDENT, VOLUME = "sample_confident", "density_volume"
LATENT_GENERATION = judged_by(
    (*PAPER, *DIGITS),
    Claim("GMJ-36a", "volume: GMJE above GJE", "Table 2", Side(VOLUME, OWN), ">", Side(VOLUME, GAUSSIAN), published="-621.58 > -636.15"),
    Claim("GMJ-36b", "volume: GJE above SimCLR with a fitted mixture", "Table 2", Side(VOLUME, GAUSSIAN), ">", Side(VOLUME, MIXTURE), published="-636.15 > -878.99"),
    Claim("GMJ-37", "trace: GMJE above SimCLR", "Table 2", Side("density_trace", OWN), ">", Side("density_trace", MIXTURE), published="1.00 > 0.85"),
    Claim("GMJ-38", "prototypes spread further than SimCLR's fitted means", "Table 2", Side("spread", OWN), ">", Side("spread", MIXTURE), published="1.43 > 0.55"),
    Claim("GMJ-39a", "GMJE's volume", "Table 2", Side(VOLUME, OWN), "~", -621.58, 6, PAPER, "-621.58"),
    Claim("GMJ-39b", "the prototypes' spread", "Table 2", Side("spread", OWN), "~", 1.43, 0.05, PAPER, "1.43"),
    Claim("GMJ-40a", "GMJE's own density gives the best samples", "Fig. 10, 5.3", Side(CONFIDENT, OWN), ">", Side(CONFIDENT, MIXTURE)),
    Claim("GMJ-40b", "... by the Frechet distance", "Fig. 10, 5.3", Side("frechet_digits", OWN), "<", Side("frechet_digits", MIXTURE), presets=DIGITS),
    Claim("GMJ-41a", "GJE's samples are less diverse than GMJE's", "Fig. 10", Side("sample_coverage", GAUSSIAN), "<", Side("sample_coverage", OWN)),
    Claim("GMJ-41b", "... and smoother", "Fig. 10", Side(CONFIDENT, GAUSSIAN), "<", Side(CONFIDENT, OWN)),
    Claim("GMJ-42a", "one Gaussian is too restrictive: a mixture fitted to GJE samples better", "5.3", Side(CONFIDENT, _of("gje", "gmm")), ">", Side(CONFIDENT, GAUSSIAN)),
    Claim("GMJ-42b", "... and so does a mixture fitted to SimCLR", "5.3", Side(CONFIDENT, MIXTURE), ">", Side(CONFIDENT, _of("simclr", "gaussian"))),
    Claim("GMJ-43a", "a density learned in training beats one fitted afterwards", "5.3, 6", Side(CONFIDENT, OWN), ">", Side(CONFIDENT, _of("gmje_parametric", "gmm"))),
    Claim("GMJ-43b", "... and a density fitted to GMJE's encoder is better than one fitted to SimCLR's", "5.3, 6", Side(CONFIDENT, _of("gmje_parametric", "gmm")), ">", Side(CONFIDENT, MIXTURE)),
    Claim("GMJ-44", "GMJE's samples lie within the clusters of real latents", "Fig. 9", Side("sample_precision", OWN), ">", 0.8),
    Claim("GMJ-45", "... without losing discriminative use: its probe is as good as SimCLR's", "6", Side("probe_z", {**OWN, "prototypes": 10}), "~", Side("probe_z", MIXTURE), 0.02, CONTROLS),
    Claim("GMJ-46a", "too few prototypes blur: two are less confident than ten", "6", Side(CONFIDENT, {**OWN, "prototypes": 2}), "<", Side(CONFIDENT, {**OWN, "prototypes": 10}), presets=CONTROLS),
    Claim("GMJ-46b", "too many prototypes die: fifty cover less than ten", "6", Side("sample_coverage", {**OWN, "prototypes": 50}), "<", Side("sample_coverage", {**OWN, "prototypes": 10}), presets=CONTROLS),
    Claim("GMJ-47", "the log-determinant spreads prototypes by itself", "4.3", Side("spread", OWN), ">", 1.2, published="1.43"),
)  # fmt: skip

TRAP: Where = {"method": "gje", "objective": "nll", "decoupled": False}
CHEAT: Where = {"method": "gje", "objective": "nll", "decoupled": True}
ALIGNED: Where = {"method": "gje", "objective": "alignment", "entropy_weight": 1.0}
NO_ENTROPY: Where = {"method": "gje", "objective": "alignment", "entropy_weight": 0.0}
UNTRAINED: Where = {"method": "random"}
DUAL: Where = {"method": "gpje", "random_features": 0}
HSIC: Where = {"method": "hsic"}
LEAKY: Where = {"method": "gmje_mdn", "leaky": True}
TIGHT: Where = {"method": "gmje_mdn", "leaky": False, "objective": "entropy"}
COLLAPSE_ABLATION = (
    Claim("GMJ-48a", "trace trap: the likelihood under the batch's own moment shrinks embeddings", "3.2, O", Side("norm", TRAP), "<", 0.1),
    Claim("GMJ-48b", "... to worse than untrained", "3.2, O", Side("probe_5", TRAP), "<", Side("probe_5", UNTRAINED)),
    Claim("GMJ-50a", "log-determinant cheat: a decoupled moment shrinks them as well", "O.4", Side("norm", CHEAT), "<", 0.1),
    Claim("GMJ-50b", "... to worse than with entropy", "O.4", Side("probe_5", CHEAT), "<", Side("probe_5", ALIGNED)),
    Claim("GMJ-51a", "entropy cures the trap", "G, O", Side("probe_5", ALIGNED), ">", Side("probe_5", TRAP)),
    Claim("GMJ-51b", "... and keeps the rank", "G, O", Side("effective_rank", ALIGNED), ">", Side("effective_rank", NO_ENTROPY)),
    Claim("GMJ-52", "alignment without entropy collapses completely", "O.2", Side("trace", NO_ENTROPY), "<", 0.01),
    Claim("GMJ-58a", "the symmetric dual collapses", "E", Side("trace", {**DUAL, "symmetric": True}), "<", 0.01),
    Claim("GMJ-58b", "... to worse than untrained", "E", Side("probe_5", {**DUAL, "symmetric": True}), "<", Side("probe_5", UNTRAINED)),
    Claim("GMJ-59", "a momentum encoder with stop-gradient prevents this collapse", "E.2", Side("trace", {**DUAL, "symmetric": False, "standardise": False}), ">", 0.01),
    Claim("GMJ-60", "HSIC alone prevents collapse", "I.4", Side("effective_rank", {**HSIC, "entropy_weight": 0.0}), ">", 3),
    Claim("GMJ-61", "HSIC with entropy learns", "I.4", Side("probe_5", {**HSIC, "entropy_weight": Filter(">", 0)}), ">", Side("probe_5", {**HSIC, "entropy_weight": 0.0})),
    Claim("GMJ-62", "the marginal term of Eq. 23 guards the MDN against collapse", "4.4", Side("trace", {"method": "gmje_mdn", "objective": "literal"}), ">", 0.01),
    Claim("GMJ-63", "an MDN that sees its target copies it", "M", Side("loss_nll", LEAKY), "<", Side("loss_nll", TIGHT)),
    Claim("GMJ-65", "... with uniform routing", "M.3", Side("routing_entropy", LEAKY), ">", 0.9),
    Claim("GMJ-64", "... and loses the semantics", "M.3", Side("probe_5", LEAKY), "<", Side("probe_5", TIGHT)),
)  # fmt: skip
LAMBDA_ABLATION = (
    Claim("GMJ-54", "entropy needs no tuned weight", "O.4", Side("probe_5", {"entropy": "joint", "element_mean": False, "entropy_weight": Filter(">", 0)}, "range", "entropy_weight"), "<", 0.02),
)  # fmt: skip

APART: Where = {"method": "gje", "alignment_weight": 0.0}
JOINT: Where = {"method": "gje", "alignment_weight": 1.0}
BARE_JEPA: Where = {"method": "jepa", "symmetric": True, "standardise": False}
ONE_SIDED: Where = {"method": "jepa", "symmetric": True, "standardise": True}
SIMCLR: Where = {"method": "simclr", "similarity": "cosine"}
_OWN = ("gmje",)
DESIGN = (
    Claim("GMJ-53a", "entropy without attraction lets the views drift apart", "O.3", Side("cosine", APART), "<", Side("cosine", JOINT), -0.1, _OWN, paper=assumed.GMJE),
    Claim("GMJ-53b", "... and costs accuracy", "O.3", Side("probe_5", APART), "<", Side("probe_5", JOINT), presets=_OWN, paper=assumed.GMJE),
    Claim("GMJ-57a", "JEPA without stop-gradient and momentum encoder collapses", "2, D.4", Side("trace", BARE_JEPA), "<", 0.01, presets=_OWN, paper=assumed.GMJE),
    Claim("GMJ-57b", "... also where its projections are standardised: few dimensions", "2, D.4", Side("effective_rank", ONE_SIDED), "<", 3, presets=_OWN, paper=assumed.GMJE),
    Claim("GMJ-73a", "the joint Gaussian predicts targets in closed form", "Eq. 10", Side("predicted_error", JOINT), "<", 0.5, presets=_OWN, paper=assumed.GMJE),
    Claim("GMJ-73b", "... with the right uncertainty", "Eq. 10", Side("predicted_coverage", JOINT), "~", 0.9, 0.03, _OWN, paper=assumed.GMJE),
    Claim("SIM-43a", "the layer before a projection head is better", "3.3", Side("probe_5", SIMCLR), ">", Side("probe_5_projection", SIMCLR), presets=_OWN, paper=assumed.SIMVAE),
    Claim("SIM-43b", "... and keeps more variance between an image's views", "3.3", Side("view_variance_z", SIMCLR), ">", Side("view_variance_projection", SIMCLR), presets=_OWN, paper=assumed.SIMVAE),
    Claim("SIM-44", "the cosine beats the dot product in InfoNCE", "A.5", Side("probe_5", SIMCLR), ">", Side("probe_5", {"method": "simclr", "similarity": "dot"}), presets=_OWN, paper=assumed.SIMVAE),
)  # fmt: skip
