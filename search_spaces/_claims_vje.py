"""Claims of VJE (arXiv 2602.05639), by the sweep that can judge them. Numbers are shares in [0, 1]."""

import math

from search_spaces import _assumptions as assumed
from search_spaces._claims import CONTROLS, DIGITS, PAPER, best, judged_by
from sweeper.claims import Claim, Filter, Side, Where

JOINT = "auroc_joint"
OPTIMUM: Where = {"beta": 1.0, "nu": 0.5}
"""The cell of the grid that the paper reports."""
TRAINED: Where = {**OPTIMUM, "epochs": Filter(">", 0)}
ALL_CELLS = Side(JOINT, {}, "largest", "beta+nu")

TABLE_3 = {
    "airplane": 0.872, "automobile": 0.976, "bird": 0.851, "cat": 0.828, "deer": 0.884, "dog": 0.897, "frog": 0.909,
    "horse": 0.935, "ship": 0.940, "truck": 0.937,
}  # fmt: skip
"""Class of CIFAR-10, in the order of `normal_class` -> published AUROC of the joint score at `OPTIMUM`."""

ANOMALY_GRID = judged_by(
    ("paper", "digits", "digits_long", "fashion"),
    Claim("VJE-11", "class-averaged AUROC at beta 1, nu 0.5", "Fig. 4", Side(JOINT, OPTIMUM), "~", 0.903, 0.02, PAPER, "0.903 ± 0.043"),
    Claim("VJE-12a", "the best KL weight is 1", "Fig. 4", Side(JOINT, {"nu": 0.5}, "argmax", "beta"), "~", 1.0, 0.25, published="1"),
    Claim("VJE-12b", "a KL weight of 1 beats 0.5", "Fig. 4", Side(JOINT, OPTIMUM), ">", Side(JOINT, {"beta": 0.5, "nu": 0.5})),
    Claim("VJE-13", "the best degrees of freedom are small", "Fig. 4", Side(JOINT, {"beta": 1.0}, "argmax", "nu"), "<", 1.5, published="0.25 to 1"),
    Claim("VJE-14", "neighbours of the optimum are as good", "5.3", Side(JOINT, {"beta": 1.0, "nu": (0.25, 0.5, 1.0)}, "range", "nu"), "<", 0.01, published="0.897 to 0.903"),
    Claim("VJE-15a", "detection worsens as nu grows", "5.3, 5.4", Side(JOINT, {"beta": 1.0}, "correlation", "nu"), "<", 0.0),
    Claim("VJE-15b", "nu 0.5 beats nu 20", "5.3, 5.4", Side(JOINT, OPTIMUM), ">", Side(JOINT, {"beta": 1.0, "nu": 20.0})),
    Claim("VJE-16a", "no KL is worse than beta 1", "Fig. 4", Side(JOINT, OPTIMUM), ">", Side(JOINT, {"beta": 0.0, "nu": 0.5})),
    Claim("VJE-16b", "a strong KL is worse than beta 1", "Fig. 4", Side(JOINT, OPTIMUM), ">", Side(JOINT, {"beta": 2.0, "nu": 0.5})),
    Claim("VJE-17b", "the cat is hardest", "Table 3", Side(JOINT, OPTIMUM, "argmin", "normal_class"), "~", 3, 0.0, PAPER, "0.828"),
    *(
        Claim(f"VJE-17{letter}", f"the {name}'s AUROC", "Table 3", Side(JOINT, {**OPTIMUM, "normal_class": index}), "~", figure, 0.02, PAPER, f"{figure:.3f}")
        for letter, (index, (name, figure)) in zip("cadefghijk", enumerate(TABLE_3.items()), strict=True)
    ),
    Claim("VJE-18a", "one setting suits all classes: no cell is much better", "5.3", ALL_CELLS, "~", Side(JOINT, OPTIMUM), 0.02),
    Claim("VJE-18b", "one setting suits all classes: their spread is small", "5.3", Side(JOINT, OPTIMUM, "deviation", "normal_class"), "<", 0.05, published="0.043"),
    Claim("VJE-19", "with the Gaussian (nu = inf) the posterior's variance collapses", "5.3", Side("posterior_variance", {"beta": 1.0, "nu": math.inf}), "<", 0.05, presets=(*CONTROLS, "paper_gaussian")),
    Claim("VJE-20a", "the joint score beats the variance", "5.3", Side(JOINT, OPTIMUM), ">", Side("auroc_variance", OPTIMUM), published="0.903 > 0.867"),
    Claim("VJE-20b", "the variance beats the entropy as a score", "5.3", Side("auroc_variance", OPTIMUM), ">", Side("auroc_entropy", OPTIMUM), published="0.867 > 0.852"),
    Claim("VJE-21a", "direction and radius together beat direction alone", "5.3", Side(JOINT, OPTIMUM), ">", Side("auroc_dir", OPTIMUM)),
    Claim("VJE-21b", "direction and radius together beat radius alone", "5.3", Side(JOINT, OPTIMUM), ">", Side("auroc_rad", OPTIMUM)),
    Claim("VJE-22", "over the grid AUROC correlates with the posterior's entropy", "5.3", Side(JOINT, {}, "correlation", "posterior_entropy"), ">", 0.5, published="r = 0.896"),
    Claim("VJE-23", "over the grid AUROC correlates with the summed variance of the posterior", "5.3", Side(JOINT, {}, "correlation", "posterior_variance"), ">", 0.5, published="r = 0.817"),
    Claim("VJE-50", "scores at the posterior's mean are as good as with eight samples", "A", Side(JOINT, {**TRAINED, "score_samples": 0}), "~", Side(JOINT, {**TRAINED, "score_samples": 8}), 0.01, CONTROLS),
    Claim("VJE-53", "the detector comes from training, not from the initial features", "5.3", Side(JOINT, {**TRAINED, "score_samples": 0}), ">", Side(JOINT, {**OPTIMUM, "epochs": 0}), presets=CONTROLS),
)  # fmt: skip

VJE: Where = {"method": "vje", "projector_width": 0}
PROJECTED: Where = {"method": "vje", "projector_width": Filter(">", 0)}
ANY_VJE: Where = {"method": "vje"}
SIMSIAM: Where = {"method": "simsiam"}
VICREG: Where = {"method": "vicreg"}
TABLES = ("paper", "digits", "fashion")
SSL_CIFAR10 = (
    Claim("VJE-03a", "VJE's linear probe beats SimSiam's", "Table 2", Side("probe_z", VJE), ">", Side("probe_z", SIMSIAM), presets=TABLES, published="92.1 > 91.8"),
    Claim("VJE-03b", "VJE's linear probe beats VICReg's", "Table 2", Side("probe_z", VJE), ">", Side("probe_z", VICREG), presets=TABLES, published="92.1 > 89.4"),
    Claim("VJE-04", "by k-NN SimSiam is slightly ahead of VJE", "Table 2", Side("knn_z", SIMSIAM), ">", Side("knn_z", VJE), presets=TABLES, published="90.60 > 89.98"),
    Claim("VJE-05", "by k-NN VJE beats VICReg", "Table 2", Side("knn_z", VJE), ">", Side("knn_z", VICREG), presets=TABLES, published="89.98 > 86.37"),
    Claim("VJE-06a", "the embedding z is better than the posterior mean mu by k-NN", "Table 2", Side("knn_z", VJE), ">", Side("knn_mu", VJE), presets=TABLES, published="89.98 > 89.02"),
    Claim("VJE-06b", "z is better than mu by a linear probe", "Table 2", Side("probe_z", VJE), ">", Side("probe_mu", VJE), presets=TABLES, published="92.1 > 90.8"),
    Claim("VJE-07a", "z and mu agree closely", "Table 2, 5.2", Side("knn_z", VJE), "~", Side("knn_mu", VJE), 0.015, TABLES, "gap 0.96 points"),
    Claim("VJE-07b", "the posterior's mean has the embedding's direction", "Table 2, 5.2", Side("mu_cosine", VJE), ">", 0.9, presets=TABLES),
    Claim("VJE-08a", "late in training k-NN is stable", "Fig. 3", Side("knn_z", {**VJE, "epoch": Filter(">", 400)}, "deviation", "epoch"), "<", 0.01, presets=PAPER),
    Claim("VJE-08b", "k-NN rises over training", "Fig. 3", Side("knn_z", VJE, "correlation", "epoch"), ">", 0.0, presets=PAPER),
    Claim("VJE-08a", "late in training k-NN is stable", "Fig. 3", Side("knn_z", {**VJE, "epoch": Filter(">", 40)}, "deviation", "epoch"), "<", 0.01, presets=DIGITS),
    Claim("VJE-08b", "k-NN rises over training", "Fig. 3", Side("knn_z", VJE, "correlation", "epoch"), ">", 0.0, presets=DIGITS),
    Claim("VJE-09", "a two-layer projector does not help", "5.2", Side("knn_z", PROJECTED), "<", Side("knn_z", VJE), presets=TABLES, published="89.5 < 89.98"),
    Claim("VJE-10a", "VJE's linear probe", "Table 2", Side("probe_z", VJE), "~", 0.921, 0.01, PAPER, "92.1"),
    Claim("VJE-10b", "VJE's k-NN", "Table 2", Side("knn_z", VJE), "~", 0.8998, 0.01, PAPER, "89.98"),
    Claim("VJE-10c", "SimSiam's linear probe", "Table 2", Side("probe_z", SIMSIAM), "~", 0.918, 0.01, PAPER, "91.8"),
    Claim("VJE-47a", "competitive on CIFAR-100: within 2 points of the better rival", "abstract", Side("probe_z", {**ANY_VJE, "dataset": "cifar100"}), ">", best("probe_z", {"method": ("simsiam", "vicreg"), "dataset": "cifar100"}), -0.02, ("paper_sets",)),
    Claim("VJE-47b", "... and on STL-10", "abstract", Side("probe_z", {**ANY_VJE, "dataset": "stl10"}), ">", best("probe_z", {"method": ("simsiam", "vicreg"), "dataset": "stl10"}), -0.02, ("paper_sets",)),
    Claim("VJE-49", "on small images blur does not help: less than half a point of k-NN", "5.2", Side("knn_z", {"blur": 0.5}), "<", Side("knn_z", {"blur": 0.0}), -0.005, CONTROLS),
    Claim("VJE-10d", "VICReg's k-NN", "Table 2", Side("knn_z", VICREG), "~", 0.8637, 0.01, PAPER, "86.37"),
)  # fmt: skip

IMAGENET_LINEAR = (
    Claim("VJE-01a", "top-1 of the linear probe", "Table 1", Side("probe_z"), "~", 0.656, 0.008, PAPER, "65.6 ± 0.4"),
    Claim("VJE-01b", "top-5 of the linear probe", "Table 1", Side("probe_top5_z"), "~", 0.868, 0.008, PAPER, "86.8"),
    Claim("VJE-02a", "below all five baselines, by their published numbers", "Table 1, 6", Side("probe_z"), "<", 0.665, presets=PAPER, published="65.6 < 66.5"),
    Claim("VJE-02b", "within 3 points of the best baseline, by its published number", "Table 1, 6", Side("probe_z"), ">", 0.656, presets=PAPER, published="68.6"),
)  # fmt: skip

FINITE: Where = {"nu": (1.0, 3.0, 7.0, 20.0, 50.0), "dataset": "cifar10"}
NU_ABLATION = (
    Claim("VJE-26a", "k-NN hardly depends on a finite nu", "Table 5", Side("knn_z", FINITE, "range", "nu"), "<", 0.01, published="0.8 points"),
    Claim("VJE-26b", "the probe hardly depends on a finite nu", "Table 5", Side("probe_z", FINITE, "range", "nu"), "<", 0.015, published="1.2 points"),
    Claim("VJE-27a", "a smaller nu is slightly better", "Table 5", Side("knn_z", FINITE, "correlation", "nu"), "<", 0.0, published="86.18 to 85.4"),
    Claim("VJE-27b", "3 is best on STL-10", "Table 5", Side("knn_z", {"dataset": "stl10"}, "argmax", "nu"), "~", 3.0, 0.0, PAPER, "79.7"),
    Claim("VJE-28a", "the Gaussian limit fails by k-NN", "Table 5", Side("knn_z", {"nu": 50.0, "dataset": "cifar10"}), ">", Side("knn_z", {"nu": math.inf, "dataset": "cifar10"}), 0.4, published="85.4, 29.0"),
    Claim("VJE-28b", "the Gaussian limit fails by the probe", "Table 5", Side("probe_z", {"nu": 50.0, "dataset": "cifar10"}), ">", Side("probe_z", {"nu": math.inf, "dataset": "cifar10"}), 0.2, published="88.08, 62.0"),
    Claim("VJE-29", "its failure is a collapse of the variance", "5.3", Side("var_mean", {"nu": math.inf}), "<", 0.01),
    Claim("VJE-30a", "k-NN at nu 1", "Table 5", Side("knn_z", {"nu": 1.0, "dataset": "cifar10"}), "~", 0.8618, 0.01, PAPER, "86.18"),
    Claim("VJE-30b", "the probe of the Gaussian on STL-10", "Table 5", Side("probe_z", {"nu": math.inf, "dataset": "stl10"}), "~", 0.557, 0.05, PAPER, "55.7"),
    Claim("VJE-31", "nu matters less for representations than for detection", "5.4", Side("knn_z", {"nu": (1.0, 3.0, 20.0)}, "range", "nu"), "<", Side(JOINT, {"beta": 1.0, "nu": (1.0, 3.0, 20.0)}, "range", "nu", "anomaly_grid")),
)  # fmt: skip


def _terms(metric: str, *terms: str, dataset: str = "cifar10") -> Side:
    return Side(metric, {"terms": terms if len(terms) > 1 else terms[0], "dataset": dataset})


FULL, NO_RADIUS, NO_KL, NO_DIRECTION = "dir+rad+kl", "dir+kl", ("dir+rad", "dir"), ("rad+kl", "rad")
LOSS_ABLATION = (
    Claim("VJE-32a", "without the radial term the probe is the same", "Table 6", _terms("probe_z", FULL), "~", _terms("probe_z", NO_RADIUS), 0.01, published="88.91, 88.97"),
    Claim("VJE-32b", "without the radial term k-NN is the same", "Table 6", _terms("knn_z", FULL), "~", _terms("knn_z", NO_RADIUS), 0.01, published="86.18, 86.08"),
    Claim("VJE-33a", "without KL the probe falls to near chance", "Table 6", _terms("probe_z", FULL), ">", _terms("probe_z", *NO_KL), 0.4, published="88.9 to 22.7, 15.7"),
    Claim("VJE-33b", "without KL k-NN falls to near chance", "Table 6", _terms("knn_z", FULL), ">", _terms("knn_z", *NO_KL), 0.4, published="86.2 to 19.9, 13.4"),
    Claim("VJE-34", "without KL the posterior's variance collapses", "Table 7", Side("var_mean", {"terms": NO_KL}), "<", 0.01, published="0.00"),
    Claim("VJE-35a", "with KL but no direction the posterior becomes the prior", "Table 7", Side("var_mean", {"terms": "rad+kl"}), ">", 0.85, published="0.99"),
    Claim("VJE-35b", "... and is isotropic", "Table 7", Side("var_cv", {"terms": "rad+kl"}), "<", 0.02, published="0.00"),
    Claim("VJE-36", "without direction accuracy is lost, with or without KL", "Table 6", Side("probe_z", {"terms": FULL}), ">", best("probe_z", {"terms": NO_DIRECTION}, "terms"), published="88.9 > 31.6, 19.1"),
    Claim("VJE-37a", "the radial term alone shrinks the variance", "Table 7", Side("var_mean", {"terms": "rad"}), "<", 0.4, published="0.07 to 0.32"),
    Claim("VJE-37b", "... but keeps it nearly isotropic", "Table 7", Side("var_cv", {"terms": "rad"}), "<", Side("var_cv", {"terms": FULL}), published="at most 0.11"),
    Claim("VJE-38a", "the full loss keeps a moderate variance", "Table 7", Side("var_mean", {"terms": FULL}), "~", 0.3, 0.1, published="0.28 to 0.33"),
    Claim("VJE-38b", "... that is clearly anisotropic", "Table 7", Side("var_cv", {"terms": FULL}), ">", 0.5, published="0.70 to 0.78"),
    Claim("VJE-39", "only losses with direction and KL keep accuracy", "Tables 6, 7", Side("knn_z", {"terms": NO_RADIUS}), ">", best("knn_z", {"terms": ("dir+rad", *NO_DIRECTION, "dir")}, "terms"), published="86.1 > 25.4"),
    Claim("VJE-41", "the radial term ties the length of the posterior's mean to the embedding's", "5.4", Side("radius_difference", {"terms": FULL}), "<", Side("radius_difference", {"terms": NO_RADIUS})),
    Claim("VJE-40a", "the probe without radius on CIFAR-100", "Table 6", _terms("probe_z", NO_RADIUS, dataset="cifar100"), "~", 0.62, 0.01, PAPER, "62.00"),
    Claim("VJE-40b", "the variance of the radial term alone on CIFAR-100", "Table 7", _terms("var_mean", "rad", dataset="cifar100"), "~", 0.32, 0.05, PAPER, "0.32"),
)  # fmt: skip

OOD_DETECTION = (
    Claim("VJE-46a", "out-of-distribution detection by likelihood is strong", "abstract", Side("auroc_joint_svhn", {"dataset": "cifar10"}), ">", 0.9, presets=PAPER),
    Claim("VJE-46b", "likelihood detects better than entropy", "abstract", Side("auroc_joint_svhn", {"dataset": "cifar10"}), ">", Side("auroc_entropy_svhn", {"dataset": "cifar10"}), presets=PAPER),
    Claim("VJE-46a", "out-of-distribution detection by likelihood is strong", "abstract", Side("auroc_joint_held_out"), ">", 0.9, presets=DIGITS),
    Claim("VJE-46b", "likelihood detects better than entropy", "abstract", Side("auroc_joint_held_out"), ">", Side("auroc_entropy_held_out"), presets=DIGITS),
)  # fmt: skip

DESIGN_VJE: Where = {"shared_variance": True, "likelihood": "polar", "target_gradient": False, "radial_scale": "fixed"}
"""VJE with the paper's choices, which are the defaults of keys missing from its trials."""
UNTIED: Where = {"shared_variance": False}
UNSPLIT: Where = {"likelihood": "euclidean"}
WITH_GRADIENT: Where = {"target_gradient": True}
_OWN = ("vje",)
DESIGN = (
    Claim("VJE-42a", "sharing the variance makes the posterior more anisotropic than a variance of its own", "3, 4.2", Side("var_cv", DESIGN_VJE), ">", Side("var_cv", UNTIED), presets=_OWN, paper=assumed.VJE),
    Claim("VJE-42b", "... and its entropy a better indicator of errors", "3, 4.2", Side("error_auroc", DESIGN_VJE), ">", Side("error_auroc", UNTIED), presets=_OWN, paper=assumed.VJE),
    Claim("VJE-43", "the polar form learns better than the Student-t of the embeddings themselves", "4.1 to 4.3, 6", Side("probe_z", DESIGN_VJE), ">", Side("probe_z", UNSPLIT), presets=_OWN, paper=assumed.VJE),
    Claim("VJE-44", "the stop-gradient is no stabiliser: without it training is as good", "3, B.3", Side("probe_z", WITH_GRADIENT), "~", Side("probe_z", DESIGN_VJE), 0.01, _OWN, paper=assumed.VJE),
    Claim("VJE-45a", "a learned radial scale grows through training", "4.3", Side("learned_scale", {"radial_scale": "learned"}, "correlation", "epoch"), ">", 0.0, presets=_OWN, paper=assumed.VJE),
    Claim("VJE-45b", "... without bound: tenfold", "4.3", Side("learned_scale", {"radial_scale": "learned"}), ">", 10, presets=_OWN, paper=assumed.VJE),
    Claim("VJE-48", "the posterior's entropy indicates which images are misclassified", "1, 5.3", Side("error_auroc", DESIGN_VJE), ">", 0.6, presets=_OWN, paper=assumed.VJE),
)  # fmt: skip
