"""Our own settings for values that the papers do not print, shared by several sweeps."""

from sweeper.definition import Assumption

VJE, SIMVAE, GMJE = "VJE (arXiv 2602.05639)", "SimVAE (arXiv 2402.01399)", "GJE and GMJE (arXiv 2603.26799)"

SEED = Assumption("the values of the seeds", ("seed",))
REPORTS = Assumption("how often a trial is evaluated during training", ("report_every",))
AT_THE_MEAN = Assumption("an image is scored at its posterior's mean", ("score_samples",), ("vje",))
PROBE = Assumption(
    "the paper states only the epochs of its ImageNet probe; here 100, as there, with our rate and batch",
    ("probe_epochs", "probe_lr", "probe_batch_size"),
)
STL10 = (
    Assumption("on STL-10, encoders also train on the unlabelled images", ("dataset",)),
    Assumption("on STL-10 views are blurred: the paper leaves blur out for CIFAR alone", ("blur",)),
)

BATCH = Assumption(
    "128 views, of whatever number of images, as in the released code; Algorithm 1 counts 128 images", ("batch_size",)
)
BOUND = Assumption(
    "the loss of Eq. 4: the squared error over twice the variance, less the entropy; Algorithm 1 divides the squared "
    "error by the number of pixels and adds half the log determinant",
    methods=("simvae",),
)
SCHEDULE = Assumption("constant; the paper states no schedule", ("lr_schedule",))
MLP_PROBE = Assumption(
    "the MLP probe has as many hidden units as the representation has dimensions; the paper states no width"
)
MIXTURE = Assumption("mixtures are fitted to training images; the paper does not say to what", ("gmm_n_init",))
RATIO = Assumption("crops have aspect ratios of 3/4 to 4/3; those of the paper and of the released code, 0.75 to 1.3")
VIEWS = (
    Assumption(
        "vertical, as in a table and in the released code; a caption also mentions horizontal flips",
        ("flip_direction",),
    ),
    RATIO,
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
SIMVAE_TRAINING = (SEED, REPORTS, BATCH, BOUND, SCHEDULE, ADAM)
SIMVAE_ALONE = (*SIMVAE_TRAINING, *COLOUR_VIEWS)
"""Assumptions of SimVAE's own experiments."""
BASELINES = (
    Assumption("the paper sets 0.02 only for the other three", ("sigma_x2",), ("vae",)),
    Assumption("the paper mentions no projector", ("projector_width",), ("simclr", "vicreg")),
    Assumption("600 to 800 in the paper", ("epochs",), ("simclr", "vicreg")),
    Assumption("the paper gives 8e-5 to 1e-3 without assigning values to data sets", ("lr",), ("simclr",)),
    Assumption(
        "invariance weight 25 and covariance weight 1; the paper gives only the variance weight", (), ("vicreg",)
    ),
)
MOCO = Assumption(
    "the paper gives no settings for MoCo", ("lr", "tau", "ema", "queue", "projector_width", "epochs"), ("moco_v2",)
)
SIMVAE_METHODS = (*SIMVAE_ALONE, *BASELINES)
"""Assumptions of SimVAE's experiments that include the methods of comparison."""
RELEASED = (
    SEED,
    REPORTS,
    RATIO,
    Assumption("the released code enlarges CIFAR-10 to 256 pixels before the crop; here it is not"),
    Assumption("the released code names these settings but uses neither", ("content_knn", "gmm_n_init")),
)
"""Assumptions of presets with the settings of SimVAE's released code."""

NO_PROBE_VIEWS = Assumption("probes see images without augmentation; in the paper they see random crops and flips")
CROPS = Assumption("the defaults of the functions that the paper names", ("crop_scale", "flip"))
ONLY_42 = Assumption("the paper has only 42", ("seed",))
MEASURED = Assumption("measured in addition to the paper's linear probe", ("knn", "few_labels", "geometry"))
NO_EXPERIMENT = Assumption(
    "the paper has no such experiment: data set, network, batch, epochs and probe are those of its benchmark",
    ("optimiser", "lr", "weight_decay", "projector_width", "projection"),
)
