"""Settings that several sweeps share and that their papers do not print: they are ours."""

from sweeper.definition import Assumption

VJE, SIMVAE, GMJE = "VJE (arXiv 2602.05639)", "SimVAE (arXiv 2402.01399)", "GJE and GMJE (arXiv 2603.26799)"

SEED = Assumption("the values of the seeds", ("seed",))
REPORTS = Assumption("how often a trial is evaluated while it trains", ("report_every",))
PROBE = Assumption("the paper has the epochs of the probe alone", ("probe_lr", "probe_batch_size"))
UNLABELLED = Assumption("on STL-10, encoders train on the images without a label, too", ("dataset",))

BATCH = Assumption(
    "the paper has a batch of 128 and does not say of what: a step encodes about 128 images, as in the released code",
    ("batch_size",),
)
VIEWS = (
    Assumption("vertical, as in a table and in the released code; a caption has horizontal, too", ("flip_direction",)),
    Assumption("crops have aspect ratios of 3/4 to 4/3, which the paper rounds to 0.75 and 1.3"),
)
COLOUR_VIEWS = (
    *VIEWS,
    Assumption("colours change before the crop, as in the released code", ("jitter_first",)),
    Assumption("the paper's tables leave open the shortcuts and the blocks of a stage", ("encoder", "decoder")),
)
ADAM = Assumption(
    "1e-4 of the released code, over the 128 views that it sums; the paper does not say", ("adam_epsilon",)
)
SIMVAE_ALONE = (SEED, REPORTS, BATCH, *COLOUR_VIEWS)
"""Of SimVAE's experiments."""
SIMVAE_METHODS = (
    *SIMVAE_ALONE,
    Assumption("the paper sets 0.02 for the other three alone", ("sigma_x2",), ("vae",)),
    Assumption("the paper mentions no projector", ("projector_width",), ("simclr", "vicreg")),
    Assumption("the paper has 600 to 800", ("epochs",), ("simclr", "vicreg")),
    Assumption("the paper has 8e-5 to 1e-3, and not for which data set", ("lr",), ("simclr",)),
    Assumption("invariance weight 25 and covariance weight 1; the paper has the variance's alone", (), ("vicreg",)),
)
"""Of SimVAE's experiments with the methods that it is compared with."""
MOCO = Assumption("the paper gives no settings of MoCo", ("lr", "tau", "ema", "queue"), ("moco_v2",))
RELEASED = (
    SEED,
    REPORTS,
    Assumption("the released code enlarges CIFAR-10 to 256 pixels before the crop; here it is not"),
    Assumption("the released code names these and uses neither", ("content_knn", "gmm_n_init")),
)
"""Of presets with the settings of the code that the authors of SimVAE released."""

NO_PROBE_VIEWS = Assumption("probes see images without augmentation; the paper's see random crops and flips")
NOT_LEGIBLE = "not legible in our copy of the paper"
"""What is said of numbers of GJE and GMJE: the paper prints them, but most were lost in the text that was read."""
SGD = Assumption(NOT_LEGIBLE, ("lr", "momentum", "weight_decay"))
MEASURED = Assumption("measured beside the paper's linear probe", ("knn", "few_labels", "geometry"))
NO_EXPERIMENT = Assumption(
    "the paper has no such experiment: data set, network, batch and epochs are those of its benchmark",
    ("optimiser", "lr", "weight_decay", "projector_width", "projection"),
)
