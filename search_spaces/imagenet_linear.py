"""Linear classification on ImageNet, with each trial trained on several GPUs (VJE, Table 1)."""

from search_spaces import _assumptions as assumed
from search_spaces import _claims_vje as claimed
from search_spaces._protocols import MOCO_V2_VIEWS, SEEDS, VJE_DIGITS
from sweeper.definition import Assumption, Grid, Metric, Sweep, Table

PAPER = Grid(
    fixed={
        "method": "vje",
        "dataset": "imagenet",
        "encoder": "resnet50",
        "small_stem": False,
        "bottleneck": 512,
        "beta": 1.0,
        "nu": 3.0,
        "epochs": 100,
        "warmup_epochs": 10,
        "batch_size": 256,
        "workers": 8,
        "lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 5e-6,
        **MOCO_V2_VIEWS,
        "blur": 0.5,
        "probe_epochs": 100,
        "probe_lr": 0.05,
        "probe_batch_size": 256,
        "probe_weight_decay": 5e-6,
        "report_every": 10,
    },
    axes={"seed": SEEDS},
)
DIGITS = Grid({**VJE_DIGITS, "beta": 1.0, "nu": 3.0, "epochs": 40, "warmup_epochs": 4, "workers": 2}, {"seed": SEEDS})

TOP_1, TOP_5 = Metric("probe_z", "maximize", percent=True), Metric("probe_top5_z", "maximize", percent=True)
TABLE_1 = {
    ("vje",): {"probe_z": 65.6, "probe_top5_z": 86.8},
    ("simclr",): {"probe_z": 66.5},
    ("byol",): {"probe_z": 66.5},
    ("swav",): {"probe_z": 66.5},
    ("simsiam",): {"probe_z": 68.1},
    ("vicreg",): {"probe_z": 68.6},
}

SWEEP = Sweep(
    about="top-1 and top-5 of a linear probe on VJE's representation, with trials data-parallel over devices",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.VJE,
    assumptions={"paper": (assumed.SEED, assumed.REPORTS, Assumption("how many GPUs share a batch", ("workers",)))},
    figures=(Table("accuracy", ("method",), (TOP_1, TOP_5), published={"paper": TABLE_1}, place="Table 1"),),
    claims=claimed.IMAGENET_LINEAR,
)
