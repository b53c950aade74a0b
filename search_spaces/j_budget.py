"""Do more views J of an image pay off if every trial has the same budget (SimVAE, beside its ablation of J)?

A search over J and the keys that should suit it: the variances of the prior and of the likelihood, and the learning
rate. All trials encode the same number of images per step and in total (`batch_unit=views`), so more views per image
mean fewer images. The importance of `views` and the contour over `views` and `sigma_x2` give the answer. Because the
prior of the centres is uniform, `sigma2` only scales the latents and can only matter through the initial weights.

The objective is the accuracy of an MLP probe, the paper's criterion, on validation images held out of the training
images. Probes train only at the end, so there is no pruner: all trials are complete, which importances require.
Importances also require every J, so the sampler is quasi-Monte Carlo: TPE proposed 10 views in 43 of 80 trials and 2
views in 4. `--axis views=2,4,6,8,10 --sampler tpe --wave 16` tunes each J in a separate study.
"""

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from search_spaces import _assumptions as assumed
from search_spaces import _simvae_protocols as protocols
from search_spaces._protocols import Keys, not_searched
from search_spaces._simvae_protocols import OWN, OWN_DIGITS
from sweeper.definition import Assumption, Metric, Search, Sweep

OBJECTIVE = Metric("val_probe_mlp", "maximize", percent=True)


def _search(protocol: Keys, lr: tuple[float, float], sigma_x2: tuple[float, float]) -> Search:
    space: dict[str, BaseDistribution] = {
        "views": IntDistribution(2, 10, step=2),
        "sigma2": FloatDistribution(0.015, 1.5, log=True),
        "sigma_x2": FloatDistribution(*sigma_x2, log=True),
        "lr": FloatDistribution(*lr, log=True),
    }
    budget: Keys = {"method": "simvae", "batch_unit": "views", "batch_size": 128}
    fixed = not_searched({**protocol, **budget}, space)
    return Search(space, fixed, trials=64, metric=OBJECTIVE, wave=32, sampler="qmc")


(CIFAR10,) = protocols.paper_protocols({**OWN["simvae"], **protocols.CONTENT, "gmm_n_init": 0}, ("cifar10",))
PAPER = _search({**CIFAR10, "validation": 0.1}, lr=(8e-6, 8e-4), sigma_x2=(0.002, 0.2))

DIGITS = _search(
    {
        **protocols.DIGITS,
        **OWN_DIGITS["simvae"],
        **protocols.CONTENT_DIGITS,
        "gmm_n_init": 0,
        "validation": 0.2,
        "epochs": protocols.EPOCHS_HELD_OUT_DIGITS,
        "report_every": protocols.EPOCHS_HELD_OUT_DIGITS,
    },
    lr=(1e-4, 1e-2),
    sigma_x2=(0.0005, 0.5),
)

SWEEP = Sweep(
    about="the best MLP probe of SimVAE over views, both variances and lr, with an equal budget of images",
    presets={"paper": PAPER, "digits": DIGITS},
    paper=assumed.SIMVAE,
    assumptions={
        "paper": (
            Assumption(
                "the paper has no search: the space, the budget and the validation images are ours",
                ("views", "sigma2", "sigma_x2", "lr", "batch_unit", "batch_size", "validation"),
            ),
            assumed.REPORTS,
            assumed.BOUND,
            assumed.SCHEDULE,
            assumed.MLP_PROBE,
            *assumed.COLOUR_VIEWS,
            assumed.ADAM,
        )
    },
    contours=(("views", "sigma_x2"), ("views", "lr")),
)
