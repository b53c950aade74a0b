"""Every setting of a paper's preset is the paper's, or `sweeper describe` says that it is ours."""

import math
from collections.abc import Mapping

import pytest

from search_spaces import _assumptions as assumed
from search_spaces import _gmje_values as printed
from sweeper.definition import Assumption, Value, registry
from tests.cases import for_each
from tests.search_spaces.grids import all_configs_of

Stated = Mapping[str, tuple[Value, ...]]
"""Key -> its values in the text of a paper."""
CLASSES = tuple(range(10))
BETAS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
NUS = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
SMALL: Stated = {
    "dataset": ("cifar10", "cifar100", "stl10"), "encoder": ("resnet18",), "small_stem": (True, False),
    "bottleneck": (128,), "momentum": (0.9,), "weight_decay": (5e-6,), "crop_scale": (0.2,), "flip": (0.5,),
    "brightness": (0.4,), "contrast": (0.4,), "saturation": (0.4,), "hue": (0.1,), "jitter": (0.8,),
    "greyscale": (0.2,),
}  # fmt: skip
"""What VJE says of all its experiments on small images."""
ONE_CLASS: Stated = {**SMALL, "epochs": (800,), "batch_size": (64,), "lr": (5e-6,), "normal_class": CLASSES}
ABLATION: Stated = {**SMALL, "epochs": (200,), "batch_size": (256,), "lr": (0.05,), "beta": (1.0,), "knn": (30,)}
SIMVAE: Stated = {
    "dataset": ("mnist", "fashion_mnist", "celeba", "cifar10"), "optimiser": ("adam",), "normalise": (False,),
    "binarise": (True,), "encoder": ("relu_mlp",), "decoder": ("relu_mlp",), "hidden": ("500+500+2000",),
    "decoder_hidden": ("2000+500+500",), "features": (10, 64), "crop_scale": (0.4, 0.6), "flip": (0.5,),
    "brightness": (0.8,), "contrast": (0.8,), "saturation": (0.8,), "hue": (0.2,), "jitter": (0.8,),
    "lr": (8e-5, 1e-4), "epochs": (0, 400), "views": (10,), "sigma_x2": (0.02,), "sigma2": (0.15,), "tau": (0.7,),
    "consistency_weight": (0.1,), "variance_weight": (25.0,), "content_probe_epochs": (200,), "content_knn": (15,),
}  # fmt: skip
GMJE: Stated = {
    "dataset": ("cifar10", "mnist32"), "encoder": ("resnet18", "strided_convnet"), "small_stem": (True,),
    "optimiser": ("adam",), "brightness": (0.4,), "contrast": (0.4,), "saturation": (0.4,), "hue": (0.1,),
    "jitter": (0.8,), "greyscale": (0.2,),
}  # fmt: skip
"""What our copy of the paper says beside the numbers in `_gmje_values.py`."""
STATED: Mapping[str, Stated] = {
    "anomaly_grid": {**ONE_CLASS, "beta": BETAS, "nu": (*NUS, math.inf)},
    "one_class_benchmark": {
        **ONE_CLASS, "beta": (1.0,), "nu": (0.5,), "encoder": ("resnet18", "lenet_wide", "wide_resnet10_4"),
        "decoder": ("lenet_wide",), "features": (128,), "contrast_normalise": (True,), "optimiser": ("adam",),
        "lr": (5e-6, 1e-4), "weight_decay": (5e-6, 5e-7), "batch_size": (64, 200, 512),
        "epochs": (0, 350, 500, 800, 1000), "pretrain_epochs": (350,), "tau": (0.5,),
        "crop_scale": (0.2, 0.08, 1.0), "flip": (0.5, 0.0), "jitter": (0.8, 0.0), "greyscale": (0.2, 0.0),
    },
    "nu_ablation": {**ABLATION, "nu": (1.0, 3.0, 7.0, 20.0, 50.0, math.inf)},
    "loss_ablation": {**ABLATION, "nu": (3.0,), "terms": ("dir+rad+kl", "dir+kl", "dir+rad", "rad+kl", "rad", "dir")},
    "ssl_cifar10": {
        **ABLATION, "epochs": (0, 800), "nu": (3.0,), "projector_layers": (2, 3), "projector_width": (2048, 4096),
    },
    "imagenet_linear": {
        **ABLATION, "dataset": ("imagenet",), "encoder": ("resnet50",), "nu": (3.0,), "bottleneck": (512,),
        "epochs": (100,), "warmup_epochs": (10,), "blur": (0.5,), "probe_epochs": (100,), "probe_lr": (0.05,),
        "probe_batch_size": (256,), "probe_weight_decay": (5e-6,),
    },
    "simvae_content": SIMVAE,
    "simvae_style": SIMVAE,
    "simvae_generation": {**SIMVAE, "adhoc_lr": (1e-4,)},
    "j_ablation": {**SIMVAE, "views": (2, 4, 6, 8, 10)},
    "variance_ablation": SIMVAE,
    "augmentation_ablation": SIMVAE,
    "synthetic_alignment": {**GMJE, "components": (1, 3)},
    "memory_bank": GMJE,
    "ssl_benchmark": GMJE,
    "latent_generation": GMJE,
}  # fmt: skip
"""Sweep -> what the papers, or the authors' recipes that `one_class_benchmark` names, say of its settings.

Of the other sweeps no paper has the experiment, or it was not read."""
PAPERS = {"paper", "paper_gaussian"}
NO_EXPERIMENT = {
    "collapse_ablation", "contamination", "design_choices", "j_budget", "lambda_ablation", "normal_images",
    "ood_detection", "ssl_search", "supervised", "vje_search",
}  # fmt: skip
EVALUATION = {"sheets", "reconstructions", "probe_curve", "density_pictures"}
"""What is shown of a trial, and changes nothing in it."""


def numbers_of(name: str, method: str) -> list[printed.Number]:
    """The rows of the table for a method of a sweep."""
    rows = [number for number in printed.NUMBERS if number.sweep == name]
    return [number for number in rows if not number.methods or method in number.methods.split("+")]


def test_each_sweep_has_an_experiment_of_a_paper_or_has_none() -> None:
    assert {*STATED, *NO_EXPERIMENT} == set(registry.names()) and not STATED.keys() & NO_EXPERIMENT
    assert {number.sweep for number in printed.NUMBERS} <= set(STATED)


@for_each("name", STATED)
def test_every_setting_of_a_papers_preset_is_stated_or_said_to_be_ours(name: str) -> None:
    sweep = registry.find(name)
    undeclared = set[tuple[str, str, Value]]()
    of_papers = [(preset, part) for preset in sorted(PAPERS & set(sweep.presets)) for part in sweep.parts(preset)]
    for preset, part in of_papers:
        method = str(part.fixed["method"])
        ours = {key for each in sweep.assumptions[preset] for key in each.keys if method in (each.methods or (method,))}
        ours |= {*EVALUATION, "method", *(number.key for number in numbers_of(name, method))}
        for key in {*part.fixed, *part.axes} - ours:
            values = {value for value in part.values(key) if value not in STATED[name].get(key, ())}
            undeclared |= {(method, key, value) for value in values}
    assert not undeclared


@for_each("number", printed.NUMBERS)
def test_the_presets_are_made_from_the_table(number: printed.Number) -> None:
    """Of an axis one value is the paper's, and one epoch fits a model without gradients. A row of all methods holds for
    those without a row of their own."""
    configs = [each.complete() for each in all_configs_of(number.sweep, "paper")]
    rows = {
        str(config["method"]): [row for row in numbers_of(number.sweep, str(config["method"])) if row.key == number.key]
        for config in configs
    }
    methods = {method for method, own in rows.items() if number in own and (number.methods or len(own) == 1)}
    own = [config for config in configs if config["method"] in methods]
    found = {config[number.key] for config in own if config.get("epochs") or number.key == "epochs"}
    assert methods >= set(number.methods.split("+") if number.methods else ())
    axis = number.key in ("seed", "components", "epochs")
    assert number.value in found and (axis or len(found) == 1)


@for_each("name", sorted({number.sweep for number in printed.NUMBERS}))
def test_the_description_says_which_numbers_were_lost(name: str) -> None:
    assert set(printed.not_legible(name)) <= set(registry.find(name).assumptions["paper"])


def test_a_number_that_is_read_is_no_longer_said_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = printed.Number("memory_bank", "moco_v2+smc_gmje", "tau", 0.1, "P.3.4", printed.LOST)
    monkeypatch.setattr(printed, "NUMBERS", (lost,))
    (assumption,) = printed.not_legible("memory_bank")
    assert assumption == Assumption(f"{printed.NOT_LEGIBLE} (P.3.4)", ("tau",), ("moco_v2", "smc_gmje"))
    monkeypatch.setattr(printed, "NUMBERS", (lost._replace(value=0.2, read=printed.READ),))
    assert not printed.not_legible("memory_bank") and printed.values("memory_bank", "smc_gmje") == {"tau": 0.2}


@for_each("name", [name for name in STATED if registry.find(name).paper == assumed.GMJE])
def test_nothing_is_said_to_be_missing_in_a_paper_of_which_our_copy_lost_the_numbers(name: str) -> None:
    for assumption in registry.find(name).assumptions["paper"]:
        assert "does not state" not in assumption.why and "gives no" not in assumption.why, assumption
