"""Claims of SimVAE (arXiv 2402.01399), by the sweep that can judge them. Numbers are shares in [0, 1]."""

from search_spaces import _assumptions as assumed
from search_spaces._claims import CONTROLS, PAPER, also_by, best, least
from sweeper.claims import Claim, Filter, Side, Where

SIMVAE: Where = {"method": "simvae"}
VAES, ALL_VAES = ("vae", "beta_vae", "cr_vae"), ("vae", "beta_vae", "cr_vae", "simvae")
RIVALS, OTHERS = ("simclr", "moco_v2", "vicreg"), Filter("!=", "simvae")
CLUSTERED = ("random", *RIVALS, *VAES)
"""The methods other than SimVAE with clusters; raw pixels are not clustered."""
TABLES = ("paper", "digits", "fashion")
OF_OTHER_SETS = ("paper", "digits")
"""Presets for claims about MNIST or CIFAR-10, which the digits replace; Fashion-MNIST has its own claims."""


def _on(metric: str, dataset: str, method: str = "simvae") -> Side:
    return Side(metric, {"method": method, "dataset": dataset})


def _best_on(metric: str, dataset: str, methods: tuple[str, ...] | Filter) -> Side:
    return best(metric, {"method": methods, "dataset": dataset})


SIMVAE_CONTENT = (
    Claim("SIM-01a", "SimVAE learns: its MLP probe is above an untrained encoder's", "Table 1", Side("probe_mlp", SIMVAE), ">", Side("probe_mlp", {"method": "random"}), presets=TABLES, published="98.4 > 38.1 ... 51.8 > 16.3"),
    Claim("SIM-01b", "... and so is its k-NN", "Table 1", Side("knn_best", SIMVAE), ">", Side("knn_best", {"method": "random"}), presets=TABLES),
    Claim("SIM-02a", "on MNIST its MLP probe beats every discriminative method", "Table 1", _on("probe_mlp", "mnist"), ">", _best_on("probe_mlp", "mnist", RIVALS), presets=OF_OTHER_SETS, published="98.4 > 97.2"),
    Claim("SIM-02b", "on Fashion its k-NN beats every discriminative method", "Table 1", _on("knn_best", "fashion_mnist"), ">", _best_on("knn_best", "fashion_mnist", RIVALS), presets=PAPER),
    Claim("SIM-03a", "on MNIST it is the best VAE by the MLP probe", "Table 1", _on("probe_mlp", "mnist"), ">", _best_on("probe_mlp", "mnist", VAES), presets=OF_OTHER_SETS, published="98.4 > 98.0"),
    Claim("SIM-03b", "... and by k-NN", "Table 1", _on("knn_best", "mnist"), ">", _best_on("knn_best", "mnist", VAES), presets=OF_OTHER_SETS, published="98.5 > 98.3"),
    Claim("SIM-04", "on Fashion it is level with the best VAE", "Table 1", _on("probe_mlp", "fashion_mnist"), "~", _best_on("probe_mlp", "fashion_mnist", VAES), 0.01, TABLES, "82.1, 82.6"),
    Claim("SIM-05a", "on CelebA its MLP probe is best of all", "Table 1, 5", _on("probe_mlp", "celeba"), ">", _best_on("probe_mlp", "celeba", OTHERS), presets=PAPER, published="95.6 > 94.7"),
    Claim("SIM-05b", "... and by k-NN", "Table 1, 5", _on("knn_best", "celeba"), ">", _best_on("knn_best", "celeba", OTHERS), presets=PAPER, published="93.2 > 92.7"),
    Claim("SIM-06a", "on CIFAR-10 it gains over 10 points on other VAEs by the MLP probe", "Table 1", _on("probe_mlp", "cifar10"), ">", _best_on("probe_mlp", "cifar10", VAES), 0.1, PAPER, "51.8 > 36.8"),
    Claim("SIM-06b", "... and by k-NN", "Table 1", _on("knn_best", "cifar10"), ">", _best_on("knn_best", "cifar10", VAES), 0.1, PAPER, "47.1 > 28.5"),
    Claim("SIM-07", "on CIFAR-10 it stays below discriminative methods", "Table 1", _on("probe_mlp", "cifar10"), "<", least("probe_mlp", {"method": RIVALS, "dataset": "cifar10"}), presets=PAPER, published="51.8 < 56.4"),
    Claim("SIM-08a", "on CIFAR-10 other VAEs are over 25 points behind the best discriminative method", "5", _best_on("probe_mlp", "cifar10", VAES), "<", _best_on("probe_mlp", "cifar10", RIVALS), 0.25, PAPER, "32.9 points"),
    Claim("SIM-08b", "... and SimVAE less than 25", "5", _on("probe_mlp", "cifar10"), ">", _best_on("probe_mlp", "cifar10", RIVALS), -0.25, PAPER, "17.9 points"),
    Claim("SIM-09a", "better than all other VAEs by the MLP probe", "1", Side("probe_mlp", SIMVAE), ">", best("probe_mlp", {"method": VAES}), presets=TABLES),
    Claim("SIM-09b", "... by the mixture's accuracy", "1", Side("gmm_accuracy", SIMVAE), ">", best("gmm_accuracy", {"method": VAES}), presets=TABLES),
    Claim("SIM-09c", "... by NMI", "1", Side("nmi", SIMVAE), ">", best("nmi", {"method": VAES}), presets=TABLES),
    Claim("SIM-10", "better than CR-VAE, the VAE made for views", "1, 5", Side("probe_mlp", SIMVAE), ">", Side("probe_mlp", {"method": "cr_vae"}), presets=TABLES, published="+2.5 CelebA, +15 CIFAR-10"),
    Claim("SIM-11a", "a small likelihood variance beats the plain VAE by the MLP probe", "Table 1", Side("probe_mlp", {"method": "beta_vae"}), ">", Side("probe_mlp", {"method": "vae"}), presets=TABLES, published="36.6 > 30.3 on CIFAR-10"),
    Claim("SIM-11b", "... and by k-NN", "Table 1", Side("knn_best", {"method": "beta_vae"}), ">", Side("knn_best", {"method": "vae"}), presets=TABLES),
    Claim("SIM-12", "by a linear probe it is the best VAE", "Table 5", Side("probe_linear", SIMVAE), ">", best("probe_linear", {"method": VAES}), presets=TABLES),
    Claim("SIM-13", "by a linear probe on CelebA it is below SimCLR and VICReg", "Table 5", _on("probe_linear", "celeba"), "<", least("probe_linear", {"method": ("simclr", "vicreg"), "dataset": "celeba"}), presets=PAPER, published="87.1 < 94.2"),
    Claim("SIM-14a", "on MNIST every VAE clusters better than every discriminative method", "Tables 5, 6", least("gmm_accuracy", {"method": ALL_VAES, "dataset": "mnist"}), ">", _best_on("gmm_accuracy", "mnist", RIVALS), presets=OF_OTHER_SETS, published="96.2 > 83.7"),
    Claim("SIM-14b", "... and SimVAE by ARI", "Tables 5, 6", _on("ari", "mnist"), ">", _best_on("ari", "mnist", RIVALS), presets=OF_OTHER_SETS, published="93.1 > 77.4"),
    Claim("SIM-15a", "by mixtures SimVAE is best of all on Fashion", "Table 5", _on("gmm_accuracy", "fashion_mnist"), ">", _best_on("gmm_accuracy", "fashion_mnist", CLUSTERED), presets=TABLES, published="71.1"),
    Claim("SIM-15b", "... and the best VAE on CIFAR-10", "Table 5", _on("gmm_accuracy", "cifar10"), ">", _best_on("gmm_accuracy", "cifar10", VAES), presets=OF_OTHER_SETS, published="39.3 > 31.2"),
    Claim("SIM-16a", "by mixtures on CIFAR-10 MoCo beats SimVAE", "Table 5", _on("gmm_accuracy", "cifar10", "moco_v2"), ">", _on("gmm_accuracy", "cifar10"), presets=PAPER, published="52.4 > 39.3"),
    Claim("SIM-16b", "... and SimVAE beats SimCLR and VICReg", "Table 5", _on("gmm_accuracy", "cifar10"), ">", _best_on("gmm_accuracy", "cifar10", ("simclr", "vicreg")), presets=PAPER, published="39.3 > 35.0"),
    Claim("SIM-17a", "by NMI SimVAE is best of all on Fashion", "Table 6", _on("nmi", "fashion_mnist"), ">", _best_on("nmi", "fashion_mnist", CLUSTERED), presets=TABLES, published="77.1"),
    Claim("SIM-17b", "by ARI it is the best VAE on CIFAR-10", "Table 6", _on("ari", "cifar10"), ">", _best_on("ari", "cifar10", VAES), presets=OF_OTHER_SETS, published="12.2"),
    Claim("SIM-18a", "SimVAE's MLP probe on MNIST", "Table 1", _on("probe_mlp", "mnist"), "~", 0.984, 0.01, PAPER, "98.4"),
    Claim("SIM-18b", "SimCLR's k-NN on CIFAR-10", "Table 1", _on("knn_best", "cifar10", "simclr"), "~", 0.64, 0.03, PAPER, "64.0"),
    Claim("SIM-19a", "CR-VAE's mixture on MNIST", "Table 5", _on("gmm_accuracy", "mnist", "cr_vae"), "~", 0.969, 0.02, PAPER, "96.9"),
    Claim("SIM-19b", "beta-VAE's NMI on CIFAR-10", "Table 6", _on("nmi_batch64", "cifar10", "beta_vae"), "~", 0.335, 0.02, PAPER, "33.5"),
    Claim("SIM-40", "VAEs are stable over learning rates, SimCLR is sensitive", "A.7.4, 6", Side("probe_mlp", SIMVAE, "range", "lr"), "<", Side("probe_mlp", {"method": "simclr"}, "range", "lr"), presets=CONTROLS),
    Claim("SIM-41a", "SimVAE's loss settles in fewer epochs than SimCLR's", "A.8", Side("loss", {**SIMVAE, "lr": 1e-3}, "settled", "epoch"), "<", Side("loss", {"method": "simclr", "lr": 1e-3}, "settled", "epoch"), presets=CONTROLS, published="400 < 600 to 800 epochs"),
    Claim("SIM-41b", "... and than VICReg's", "A.8", Side("loss", {**SIMVAE, "lr": 1e-3}, "settled", "epoch"), "<", Side("loss", {"method": "vicreg", "lr": 1e-3}, "settled", "epoch"), presets=CONTROLS, published="400 < 600 to 800 epochs"),
    Claim("SIM-42a", "discriminative training makes the views of an image coincide; SimVAE keeps them apart", "3.3, A.5", least("cosine", {"method": ("simclr", "vicreg"), "lr": 1e-3}), ">", Side("cosine", {**SIMVAE, "lr": 1e-3}), presets=CONTROLS),
)  # fmt: skip

_STYLE = (
    Claim("SIM-20", "SimVAE knows the style best", "Fig. 4", Side("style_hair", SIMVAE), ">", best("style_hair", {"method": OTHERS}), published="67.5 > 66.4"),
    Claim("SIM-21", "every VAE keeps more style than every discriminative method", "Fig. 4", least("style_hair", {"method": ALL_VAES}), ">", best("style_hair", {"method": ("simclr", "vicreg")}), published="64.4 > 52.8"),
    Claim("SIM-22", "discriminative training loses style below an untrained encoder", "Fig. 4", best("style_hair", {"method": ("simclr", "vicreg")}), "<", Side("style_hair", {"method": "random"}), published="52.8 < 56.2"),
    Claim("SIM-24a", "content and style together: SimVAE is first by the class", "Fig. 4", Side("probe_mlp", SIMVAE), ">", best("probe_mlp", {"method": OTHERS}), published="95.6"),
    Claim("SIM-24b", "... and by the style", "Fig. 4", Side("style_hair", SIMVAE), ">", best("style_hair", {"method": OTHERS}), published="67.5"),
)  # fmt: skip
SIMVAE_STYLE = (
    *also_by(_STYLE, {"style_hair": "style_ink"}),
    *(claim for claim in also_by(_STYLE, {"style_hair": "style_hue"}, "digits_tint") if claim.presets != PAPER),
    Claim("SIM-25", "on average over attributes SimVAE knows the style best", "Fig. 4, 5", Side("style_mean", SIMVAE), ">", best("style_mean", {"method": OTHERS}), presets=TABLES),
    Claim("SIM-23a", "SimVAE's hair colour", "Fig. 4", Side("style_hair", SIMVAE), "~", 0.675, 0.01, PAPER, "67.5"),
    Claim("SIM-23b", "SimCLR's hair colour", "Fig. 4", Side("style_hair", {"method": "simclr"}), "~", 0.52, 0.01, PAPER, "52.0"),
)  # fmt: skip

MSE, FID = "reconstruction_mse", "frechet_digits"
SIMVAE_GENERATION = (
    Claim("SIM-26", "images decoded from discriminative representations lack style", "Figs. 2, 3", least(MSE, {"method": ("simclr", "vicreg")}), ">", best(MSE, {"method": ALL_VAES}), presets=TABLES),
    Claim("SIM-27", "SimVAE reconstructs best", "Table 7", _on(MSE, "cifar10"), "<", least(MSE, {"method": VAES, "dataset": "cifar10"}), presets=OF_OTHER_SETS, published=".003 < .004"),
    Claim("SIM-28", "SimVAE has the lowest Frechet distance", "Table 7", _on("fid", "cifar10"), "<", least("fid", {"method": VAES, "dataset": "cifar10"}), presets=PAPER, published="349.9 < 365.4"),
    Claim("SIM-28", "SimVAE has the lowest Frechet distance", "Table 7", Side(FID, SIMVAE), "<", least(FID, {"method": VAES}), presets=("digits",)),
    Claim("SIM-29a", "the VAE's reconstruction error on MNIST", "Table 7", _on(MSE, "mnist", "vae"), "~", 0.029, 0.003, PAPER, ".029"),
    Claim("SIM-29b", "the VAE's FID on MNIST", "Table 7", _on("fid", "mnist", "vae"), "~", 150.1, 10, PAPER, "150.1"),
    Claim("SIM-30", "samples of each class are recognisable", "Fig. 9", Side("sample_accuracy", SIMVAE), ">", 0.8, presets=("digits",)),
)  # fmt: skip

VIEWS_OF_OTHER_SETS = (*OF_OTHER_SETS, "digits_images")
J_ABLATION = (
    Claim("SIM-31a", "more views are better by the MLP probe on MNIST", "Fig. 7", Side("probe_mlp", {"dataset": "mnist"}, "correlation", "views"), ">", 0.0, presets=VIEWS_OF_OTHER_SETS),
    Claim("SIM-31b", "... by k-NN on CIFAR-10", "Fig. 7", Side("knn_best", {"dataset": "cifar10"}, "correlation", "views"), ">", 0.0, presets=VIEWS_OF_OTHER_SETS),
    Claim("SIM-31c", "... by mixtures on CIFAR-10", "Fig. 7", Side("gmm_accuracy", {"dataset": "cifar10"}, "correlation", "views"), ">", 0.0, presets=VIEWS_OF_OTHER_SETS),
    Claim("SIM-33a", "... by k-NN on Fashion", "Fig. 6", Side("knn_best", {"dataset": "fashion_mnist"}, "correlation", "views"), ">", 0.0, presets=("paper", "fashion")),
    Claim("SIM-33b", "... by mixtures on Fashion", "Fig. 6", Side("gmm_accuracy", {"dataset": "fashion_mnist"}, "correlation", "views"), ">", 0.0, presets=("paper", "fashion")),
    Claim("SIM-32", "ten views gain over a point on two if the batch grows with them", "A.8", Side("probe_mlp", {"views": 10}), ">", Side("probe_mlp", {"views": 2}), 0.01, ("digits_images",)),
)  # fmt: skip

OF_THE_FIGURE = (*PAPER, "colours")
"""Presets with k-NN and mixtures, which Fig. 6 shows."""


def _over_crops(metric: str, methods: tuple[str, ...]) -> Side:
    return Side(metric, {"method": methods}, "correlation", "crop_scale")


def _range_over_crops(metric: str, method: str) -> Side:
    return Side(metric, {"method": method}, "range", "crop_scale")


AUGMENTATION_ABLATION = (
    Claim("SIM-34a", "stronger augmentation (smaller crops) helps discriminative methods", "Fig. 6", _over_crops("probe_mlp", RIVALS), "<", 0.0),
    Claim("SIM-34b", "... by k-NN", "Fig. 6", _over_crops("knn_best", RIVALS), "<", 0.0, presets=OF_THE_FIGURE),
    Claim("SIM-34c", "... by mixtures", "Fig. 6", _over_crops("gmm_accuracy", RIVALS), "<", 0.0, presets=OF_THE_FIGURE),
    Claim("SIM-35a", "stronger augmentation hurts plain VAEs", "Fig. 6", _over_crops("probe_mlp", VAES), ">", 0.0),
    Claim("SIM-35b", "... by k-NN", "Fig. 6", _over_crops("knn_best", VAES), ">", 0.0, presets=OF_THE_FIGURE),
    Claim("SIM-35c", "... by mixtures", "Fig. 6", _over_crops("gmm_accuracy", VAES), ">", 0.0, presets=OF_THE_FIGURE),
    Claim("SIM-36a", "stronger augmentation hardly affects SimVAE", "Fig. 6", _range_over_crops("probe_mlp", "simvae"), "<", 0.02),
    Claim("SIM-36b", "SimVAE depends less on it than SimCLR", "Fig. 6", _range_over_crops("probe_mlp", "simvae"), "<", _range_over_crops("probe_mlp", "simclr")),
    Claim("SIM-36c", "... by k-NN", "Fig. 6", _range_over_crops("knn_best", "simvae"), "<", _range_over_crops("knn_best", "simclr"), presets=OF_THE_FIGURE),
    Claim("SIM-36d", "... by mixtures", "Fig. 6", _range_over_crops("gmm_accuracy", "simvae"), "<", _range_over_crops("gmm_accuracy", "simclr"), presets=OF_THE_FIGURE),
)  # fmt: skip


def _over_variance(metric: str, method: str) -> Side:
    return Side(metric, {"method": method, "dataset": "cifar10"}, "correlation", "sigma_x2")


VARIANCE_ABLATION = (
    Claim("SIM-37a", "accuracy falls as the likelihood's variance grows", "Fig. 8", _over_variance("probe_mlp", "simvae"), "<", 0.0),
    Claim("SIM-37b", "... by k-NN", "Fig. 8", _over_variance("knn_best", "simvae"), "<", 0.0, presets=PAPER),
    Claim("SIM-37c", "... by a linear probe", "Fig. 8", _over_variance("probe_linear", "simvae"), "<", 0.0, presets=PAPER),
    Claim("SIM-37d", "... by mixtures", "Fig. 8", _over_variance("gmm_accuracy", "simvae"), "<", 0.0, presets=PAPER),
    Claim("SIM-38a", "... for the VAE alike", "A.8", _over_variance("probe_mlp", "vae"), "<", 0.0, presets=OF_OTHER_SETS),
    Claim("SIM-38b", "... for CR-VAE alike", "A.8", _over_variance("probe_mlp", "cr_vae"), "<", 0.0, presets=OF_OTHER_SETS),
    Claim("SIM-39", "0.02 is the best variance", "A.8", Side("probe_mlp", {"method": "simvae", "dataset": "cifar10"}, "argmax", "sigma_x2"), "~", 0.02, 0.01, published="0.02"),
)  # fmt: skip

WHOLE: Where = {"method": "simvae", "reconstruction_weight": 1.0}
WITHOUT_RECONSTRUCTION: Where = {"method": "simvae", "reconstruction_weight": 0.0}
_OWN, _STYLES, _VIEWS = ("simvae",), "style_mean", "view_variance_z"
DESIGN = (
    Claim("SIM-42b", "discriminative training leaves views of an image less apart than SimVAE", "3.3, A.5", best(_VIEWS, {"method": ("simclr", "vicreg")}), "<", Side(_VIEWS, WHOLE), presets=_OWN, paper=assumed.SIMVAE),
    Claim("SIM-48a", "without reconstruction style is lost", "3.2", Side(_STYLES, WITHOUT_RECONSTRUCTION), "<", Side(_STYLES, WHOLE), -0.05, _OWN, paper=assumed.SIMVAE),
    Claim("SIM-48b", "... and the views of an image coincide more", "3.2", Side(_VIEWS, WITHOUT_RECONSTRUCTION), "<", Side(_VIEWS, WHOLE), presets=_OWN, paper=assumed.SIMVAE),
    Claim("SIM-48c", "... and the class is recognised less", "3.2", Side("probe_mlp", WITHOUT_RECONSTRUCTION), "<", Side("probe_mlp", WHOLE), presets=_OWN, paper=assumed.SIMVAE),
    Claim("SIM-53", "the posterior's entropy indicates which images are misclassified", "1, 6", Side("error_auroc", WHOLE), ">", 0.6, presets=_OWN, paper=assumed.SIMVAE),
)  # fmt: skip
