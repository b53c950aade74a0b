"""Our own settings for values that the papers do not print, shared by several sweeps."""

from sweeper.definition import Assumption

VJE, SIMVAE, GMJE = "VJE (arXiv 2602.05639)", "SimVAE (arXiv 2402.01399)", "GJE and GMJE (arXiv 2603.26799)"

SEED = Assumption("the values of the seeds", ("seed",))
REPORTS = Assumption("how often a trial is evaluated during training", ("report_every",))
PROBE = Assumption(
    "the paper states only the epochs of its ImageNet probe; here 100, as there, with our rate and batch",
    ("probe_epochs", "probe_lr", "probe_batch_size"),
)
UNLABELLED = Assumption("on STL-10, encoders also train on the unlabelled images", ("dataset",))

BATCH = Assumption(
    "the paper states a batch of 128 without a unit; here a step encodes about 128 images, as in the released code",
    ("batch_size",),
)
VIEWS = (
    Assumption(
        "vertical, as in a table and in the released code; a caption also mentions horizontal flips",
        ("flip_direction",),
    ),
    Assumption("crops have aspect ratios of 3/4 to 4/3, which the paper rounds to 0.75 and 1.3"),
)
COLOUR_VIEWS = (
    *VIEWS,
    Assumption("colours are jittered before the crop, as in the released code", ("jitter_first",)),
    Assumption("the paper's tables do not specify the shortcuts and the blocks of a stage", ("encoder", "decoder")),
)
ADAM = Assumption(
    "1e-4 from the released code, divided by the 128 views over which it sums; the paper states no value",
    ("adam_epsilon",),
)
SIMVAE_ALONE = (SEED, REPORTS, BATCH, *COLOUR_VIEWS)
"""Assumptions of SimVAE's own experiments."""
SIMVAE_METHODS = (
    *SIMVAE_ALONE,
    Assumption("the paper sets 0.02 only for the other three", ("sigma_x2",), ("vae",)),
    Assumption("the paper mentions no projector", ("projector_width",), ("simclr", "vicreg")),
    Assumption("600 to 800 in the paper", ("epochs",), ("simclr", "vicreg")),
    Assumption("the paper gives 8e-5 to 1e-3 without assigning values to data sets", ("lr",), ("simclr",)),
    Assumption(
        "invariance weight 25 and covariance weight 1; the paper gives only the variance weight", (), ("vicreg",)
    ),
)
"""Assumptions of SimVAE's experiments that include the methods of comparison."""
MOCO = Assumption("the paper gives no settings for MoCo", ("lr", "tau", "ema", "queue"), ("moco_v2",))
RELEASED = (
    SEED,
    REPORTS,
    Assumption("the released code enlarges CIFAR-10 to 256 pixels before the crop; here it is not"),
    Assumption("the released code names these settings but uses neither", ("content_knn", "gmm_n_init")),
)
"""Assumptions of presets with the settings of SimVAE's released code."""

NO_PROBE_VIEWS = Assumption("probes see images without augmentation; in the paper they see random crops and flips")
PROBE_BATCH = Assumption("the paper does not state the probe's batch", ("probe_batch_size",))
PROBE_CURVE = Assumption(
    "the settings of the benchmark's probe; the paper states none here", ("probe_epochs", "probe_lr", "probe_batch_size")
)
CROPS = Assumption("the defaults of the functions that the paper names", ("crop_scale", "flip"))
ONLY_42 = Assumption("the paper has only 42", ("seed",))
MEASURED = Assumption("measured in addition to the paper's linear probe", ("knn", "few_labels", "geometry"))
NO_EXPERIMENT = Assumption(
    "the paper has no such experiment: data set, network, batch and epochs are those of its benchmark",
    ("optimiser", "lr", "weight_decay", "projector_width", "projection"),
)
