"""Every sweep in `search_spaces`: its trials, its learning rate, what of it is ours, its views, published figures."""

import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sweeper.commands.descriptions import describe, describe_sweep
from sweeper.definition import Assumption, Grid, Metric, Search, Selection, SpecError, Sweep, Table, Value, registry
from sweeper.definition.figures import Heatmap
from sweeper.planning.cohorts import content_hash
from tests.cases import for_each
from tests.search_spaces.grids import (
    CLASSES,
    COUNTS,
    GRIDS,
    all_configs_of,
    configs_of,
    each_preset,
    metrics_of,
    trials_of,
)
from trainables.config import keys, resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.training.checks import check_trials

ROOT = Path(__file__).parents[2]
CHANNELS = {name: source.declaration.shape[0] for name, source in DATASETS.items()}
WITHOUT_FILES = {"digits", "digits_tint"}
"""Data sets that need no files."""


def test_these_are_all_the_sweeps_and_the_first_preset_is_the_papers() -> None:
    grids = [
        (name, preset)
        for name in registry.names()
        for preset in registry.find(name).presets
        if registry.find(name).grids(preset)
    ]
    assert grids == list(COUNTS)


@pytest.mark.slow
@each_preset
def test_every_trial_resolves_and_no_two_are_equal(name: str, preset: str) -> None:
    configs = all_configs_of(name, preset)
    assert len(configs) == len(set(configs)) == COUNTS[name, preset]
    assert all(resolve(config.flat()) == config for config in configs)


@pytest.mark.parametrize(
    ("name", "trial", "of_all"),
    [("anomaly_grid", "e8ffd53057604310", "8b544c0d73c06ee0"), ("ssl_cifar10", "9fdbc580ea39ad2b", "2b8eed09c9f3009c")],
)
def test_trials_keep_their_ids(name: str, trial: str, of_all: str) -> None:
    """Stores are continued by them, so a key that is added later must not be part of these trials."""
    ids = [trial.id for trial in trials_of(name, "digits")]
    assert (ids[0], content_hash(sorted(ids))) == (trial, of_all)


def test_ids_of_a_grid_that_uses_sgd_are_of_the_keys_of_before_there_was_another_optimiser() -> None:
    assert {key for config in configs_of("anomaly_grid", "digits") for key in config.flat()} == {
        "method", "dataset", "normal_class", "held_out", "validation", "encoder", "width", "features", "small_stem",
        "seed", "epochs", "batch_size", "lr", "momentum", "weight_decay", "warmup_epochs", "precision",
        "channels_last", "workers", "report_every", "crop_scale", "crop_ratio", "flip", "brightness", "contrast",
        "saturation", "hue", "jitter", "greyscale", "blur", "rotation", "shift", "knn", "knn_temperature",
        "probe_epochs", "probe_lr", "probe_batch_size", "probe_standardize", "outliers", "beta", "nu", "terms",
        "bottleneck", "projector_width", "score_samples",
    }  # fmt: skip


@for_each(("name", "preset"), [key for key in COUNTS if key[1].startswith("digits")])
def test_the_digits_can_serve_every_trial(name: str, preset: str) -> None:
    configs = configs_of(name, preset)
    assert {config.data.dataset for config in configs} <= WITHOUT_FILES
    least = 1 if name == "normal_images" else 2  # of ten images all are a batch
    assert all(result.steps >= least for result in check_trials(configs, Path()))


@each_preset
def test_outliers_are_of_other_sets_of_as_many_channels(name: str, preset: str) -> None:
    for config in configs_of(name, preset):
        inside = config.data.dataset
        assert inside not in config.evaluation.outlier_sets
        for outside in set(config.evaluation.outlier_sets) & {"svhn", *CLASSES}:
            assert CHANNELS[outside] == CHANNELS[inside]


# No sweep that ships and no example relies on the default learning rate, at which VJE can diverge.


@for_each("name", registry.names())
def test_every_preset_sets_or_searches_the_learning_rate(name: str) -> None:
    for preset in registry.find(name).presets:
        for part in registry.find(name).parts(preset):
            if "lr" in keys(str(part.fixed["method"])):
                assert "lr" in {*part.fixed, *part.axes, *part.searched}


@pytest.mark.parametrize(
    "file", ["README.md", "sweeper/guides/running.md", "sweeper/guides/searches.md", "CONTRIBUTING.md"]
)
def test_every_sweep_in_the_documentation_sets_it(file: str) -> None:
    """Or changes a preset that ships."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    sweeps = [block for block in blocks if "Sweep(" in block]
    assert sweeps and all('"lr": ' in block or "from search_spaces." in block for block in sweeps)


@pytest.mark.parametrize("name", ["lr", "vje"])
def test_its_description_says_where_the_default_is_too_high(name: str) -> None:
    assert "is too high for VJE on `digits` with the default network" in " ".join(describe(name).split())


def test_another_default_would_change_the_ids_of_trials() -> None:
    """A trial has the defaults in its id, so those that rely on this one would all be trained again."""
    by_default, as_it_is, lower = (
        content_hash(resolve({"method": "vje", **changes}).flat()) for changes in ({}, {"lr": 0.05}, {"lr": 0.002})
    )
    assert by_default == as_it_is != lower


# What of a paper's preset is ours: it is named, set by the preset, and in the list of `sweeper describe ours`.


NAMED = ("paper", "authors_code", "paper_gaussian")
"""Presets with the settings of a paper or of its authors' code."""
TABLE = Table("losses", ("seed",), (Metric("loss", "minimize"),))
SPACE = Grid({"method": "vje", "nu": 3.0}, {"seed": (0, 1)}), Grid({"method": "simclr", "tau": 0.5}, {})


@for_each("name", registry.names())
def test_each_paper_preset_says_what_of_it_is_ours(name: str) -> None:
    sweep = registry.find(name)
    assert "arXiv" in sweep.paper
    assert {preset for preset in sweep.presets if preset in NAMED} == set(sweep.assumptions)
    assert all(assumption.why for each in sweep.assumptions.values() for assumption in each)


@for_each("name", registry.names())
def test_every_named_key_exists_and_is_set_in_its_preset(name: str) -> None:
    sweep = registry.find(name)
    for preset, assumptions in sweep.assumptions.items():
        parts = sweep.parts(preset)
        for assumption in assumptions:
            own = [part for part in parts if not assumption.methods or part.fixed["method"] in assumption.methods]
            set_keys = set[str]()
            for part in own:
                searched = part.searched if isinstance(part, Search) else {}
                assert {*part.fixed, *part.axes, *searched} <= set(keys(str(part.fixed["method"])))
                set_keys |= {*part.fixed, *part.axes, *searched}
            assert own and set(assumption.keys) <= set_keys


@pytest.mark.parametrize(
    ("assumption", "preset", "message"),
    [
        (Assumption("chosen", ("lr",)), "paper", "an assumption names lr, which preset paper does not set"),
        (
            Assumption("chosen", ("tau",), ("vje",)),
            "paper",
            "an assumption names tau, which preset paper does not set for vje",
        ),
        (
            Assumption("chosen", (), ("byol",)),
            "paper",
            "an assumption about preset paper: no method 'byol'; there are: simclr, vje",
        ),
    ],
)
def test_an_assumption_about_what_a_preset_does_not_set_is_refused(
    assumption: Assumption, preset: str, message: str
) -> None:
    Sweep("about", {"paper": SPACE}, (TABLE,), assumptions={"paper": (Assumption("c", ("nu", "seed", "tau")),)})
    with pytest.raises(SpecError) as refused:
        Sweep("about", {"paper": SPACE}, (TABLE,), assumptions={preset: (assumption,)})
    assert str(refused.value) == message


def test_a_variant_with_other_presets_has_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "digits_search.py").write_text(
        "from dataclasses import replace\nfrom search_spaces import vje_search\n"
        'SWEEP = replace(vje_search.SWEEP, presets={"digits": vje_search.SWEEP.presets["digits"]})\n'
    )
    assert "that are ours" in describe_sweep("vje_search")
    assert " ours" not in describe_sweep(str(tmp_path / "digits_search.py"))


def test_what_is_largely_a_reconstruction_says_so() -> None:
    benchmark, synthetic = registry.find("ssl_benchmark"), registry.find("synthetic_alignment")
    (smc,) = (each for each in benchmark.assumptions["paper"] if each.methods == ("smc_joint_gmje",))
    assert "largely our reconstruction" in smc.why and "the particle weights at the start of a step" in smc.why
    assert "largely our reconstruction" in synthetic.assumptions["paper"][0].why


@for_each("name", registry.names())
def test_the_description_of_a_sweep_has_all_of_them(name: str) -> None:
    sweep = registry.find(name)
    text = " ".join(describe(name).split())
    for preset, assumptions in sweep.assumptions.items():
        assert f"settings of {preset} that are ours, and not those of {sweep.paper}:" in text
        for assumption in assumptions:
            assert assumption.why in text and ", ".join(assumption.keys) in text
    others = [preset for preset in sweep.presets if preset not in NAMED]
    assert (f"all settings of {' and '.join(others)} are ours" in text) == bool(others and sweep.assumptions)


def test_describe_ours_lists_the_settings_of_all_sweeps() -> None:
    text = " ".join(describe("ours").split())
    for name in registry.names():
        for assumptions in registry.find(name).assumptions.values():
            assert all(assumption.why in text for assumption in assumptions)


# Views show metrics that trials report, and cells whose trials are alike.


GIVEN_WEIGHTS = {"fid"}
"""Metrics that trials report only if the user provides the weights of a network."""


@each_preset
def test_every_metric_of_a_view_is_reported(name: str, preset: str) -> None:
    sweep, reported = registry.find(name).for_preset(preset), metrics_of(name, preset)
    known = {key for config in all_configs_of(name, preset) for key in keys(config.method)}
    assert set(sweep.axes_by_metric) - GIVEN_WEIGHTS <= reported, set(sweep.axes_by_metric) - reported
    assert {axis for axes in sweep.axes_by_metric.values() for axis in axes} <= known
    assert {metric for pair in sweep.correlations for metric in pair} <= reported
    assert sweep.breakdown is None or sweep.breakdown in known
    headline = sweep.headline(preset)
    assert headline.name in reported
    assert headline.direction == ("minimize" if name in ("simvae_generation", "synthetic_alignment") else "maximize")


@pytest.mark.slow
@each_preset
def test_every_varied_key_is_an_axis_or_averaged_on_purpose(name: str, preset: str) -> None:
    """Trials in one cell of a table or heatmap differ only in what the cell averages over: seeds or classes, or what
    a breakdown tells apart.

    Keys that follow from the method or the data set, such as STL-10's blur, do not differ within a cell.
    """
    sweep, flats = (
        registry.find(name).for_preset(preset),
        [config.complete() for config in all_configs_of(name, preset)],
    )
    views: list[Table | Heatmap] = [*sweep.of_kind(Table), *sweep.of_kind(Heatmap)]
    for view in views:
        for cell in cells_of(view, flats).values():
            differing = {key for flat in cell for key in flat if flat[key] != cell[0].get(key)}
            averaged = {"seed", "held_out", "normal_class", *filter(None, [sweep.breakdown])}
            assert differing <= averaged, (view.hyperparameters, differing)


def cells_of(view: Table | Heatmap, flats: Sequence[Mapping[str, Value]]) -> dict[object, list[Mapping[str, object]]]:
    """The trials of each cell of a view, by the labels or values of its axes."""
    cells: dict[object, list[Mapping[str, object]]] = {}
    for selection in view.selections or (Selection({}, {}),):
        for flat in flats:
            if all(flat.get(key) == value for key, value in selection.where.items()):
                cell = tuple(selection.labels.get(axis, flat.get(axis)) for axis in view.axes)
                cells.setdefault(cell, []).append(flat)
    return cells


@each_preset
def test_every_selection_has_trials_and_each_of_its_keys_is_one_of_theirs(name: str, preset: str) -> None:
    sweep, flats = (
        registry.find(name).for_preset(preset),
        [config.complete() for config in all_configs_of(name, preset)],
    )
    views: list[Table | Heatmap] = [*sweep.of_kind(Table), *sweep.of_kind(Heatmap)]
    for selection in {id(selection): selection for view in views for selection in view.selections}.values():
        selected = [flat for flat in flats if all(flat.get(key) == value for key, value in selection.where.items())]
        assert selected and set(selection.where) <= set(keys(str(selected[0]["method"]))), selection


# Published figures are the papers', and each has a cell that is measured.


def tables() -> list[tuple[str, Sweep, Table]]:
    return [(name, sweep, table) for name in GRIDS for sweep in [registry.find(name)] for table in sweep.of_kind(Table)]


@pytest.mark.parametrize(("name", "sweep", "table"), tables(), ids=lambda value: getattr(value, "name", None))
def test_published_figures_have_a_measured_cell(name: str, sweep: Sweep, table: Table) -> None:
    """Exceptions are methods that only ImageNet's published table has. Accuracies are in percent, as in the paper."""
    assert set(table.published) <= set(sweep.presets) and set(table.presets) <= set(sweep.presets)
    percent = {metric.name: metric.percent for metric in table.metrics}
    for preset, cells in table.published.items():
        measured = cells_of(table, [config.complete() for config in configs_of(name, preset)])
        unmeasured = {cell for cell in cells if cell not in measured}
        others = ("simclr", "byol", "swav", "simsiam", "vicreg")
        assert unmeasured == ({(method,) for method in others} if name == "imagenet_linear" else set())
        for metric, figure in itertools.chain.from_iterable(figures.items() for figures in cells.values()):
            assert 0 <= figure <= 100 if percent[metric] else figure >= 0 or metric == "density_volume"


@for_each(
    ("name", "table", "cell", "figures"),
    [
        ("nu_ablation", "accuracy", (1.0, "cifar10"), {"knn_z": 86.18, "probe_z": 89.23}),
        ("nu_ablation", "accuracy", (20.0, "cifar100"), {"knn_z": 53.42, "probe_z": 62.29}),
        ("nu_ablation", "accuracy", (math.inf, "stl10"), {"knn_z": 37.8, "probe_z": 55.7}),
        ("loss_ablation", "accuracy", ("dir+kl", "cifar100"), {"knn_z": 53.34, "probe_z": 62.0}),
        ("loss_ablation", "accuracy", ("dir", "stl10"), {"knn_z": 9.78, "probe_z": 10.0}),
        ("loss_ablation", "variance", ("dir+rad+kl", "cifar10"), {"var_mean": 0.32, "var_cv": 0.78}),
        ("loss_ablation", "variance", ("rad", "cifar100"), {"var_mean": 0.32, "var_cv": 0.11}),
        ("loss_ablation", "variance", ("dir+rad", "stl10"), {"var_mean": 0.0}),
        ("ssl_cifar10", "accuracy", ("vje", 0), {"knn_z": 89.98, "probe_z": 92.1, "knn_mu": 89.02, "probe_mu": 90.8}),
        ("ssl_cifar10", "accuracy", ("simsiam", 2048), {"knn_z": 90.6, "probe_z": 91.8}),
        ("ssl_cifar10", "accuracy", ("vicreg", 4096), {"knn_z": 86.37, "probe_z": 89.4}),
        ("anomaly_grid", "classes", ("automobile",), {"auroc_joint": 0.976}),
        ("anomaly_grid", "classes", ("truck",), {"auroc_joint": 0.937}),
        ("imagenet_linear", "accuracy", ("vje",), {"probe_z": 65.6, "probe_top5_z": 86.8}),
        ("simvae_content", "mlp_probe_and_knn", ("simvae", "celeba"), {"probe_mlp": 95.6, "knn_best": 93.2}),
        ("simvae_content", "mlp_probe_and_knn", ("vicreg", "cifar10"), {"probe_mlp": 69.7, "knn_best": 68.3}),
        (
            *("simvae_content", "linear_probe_and_mixture", ("beta_vae", "fashion_mnist")),
            {"probe_linear": 79.6, "gmm_accuracy": 68.0},
        ),
        ("simvae_content", "clusters", ("cr_vae", "mnist"), {"ari": 94.0, "nmi": 96.9}),
        (
            *("simvae_content", "clusters_in_batches", ("moco_v2", "cifar10")),
            {"ari_batch64": 27.2, "nmi_batch64": 16.5},
        ),
        ("simvae_style", "hair", ("simvae",), {"probe_mlp": 95.6, "style_hair": 67.5}),
        ("simvae_style", "hair", ("simclr",), {"probe_mlp": 93.7, "style_hair": 52.0}),
        ("simvae_generation", "generation", ("vae", "celeba"), {"reconstruction_mse": 0.016, "fid": 162.9}),
        ("simvae_generation", "generation", ("simvae", "cifar10"), {"reconstruction_mse": 0.003, "fid": 349.9}),
        ("imagenet_linear", "accuracy", ("vicreg",), {"probe_z": 68.6}),
        ("ssl_benchmark", "accuracy", ("smc_gmje", None), {"probe_z": 74.52}),
        ("memory_bank", "accuracy", ("smc_gmje", "multinomial", None, 256), {"probe_z": 81.99}),
        (
            *("latent_generation", "densities", ("gmje_parametric", "own")),
            {"density_volume": -621.58, "density_trace": 1.0, "spread": 1.43},
        ),
        ("latent_generation", "densities", ("gje", "gaussian"), {"density_volume": -636.15, "density_trace": 0.99}),
    ],
)
def test_published_figures_are_the_papers(
    name: str, table: str, cell: tuple[Value, ...], figures: dict[str, float]
) -> None:
    (published,) = [candidate.published for candidate in registry.find(name).of_kind(Table) if candidate.name == table]
    assert published["paper"][cell] == figures


def test_the_published_heatmap_is_the_papers() -> None:
    shown = registry.find("anomaly_grid").for_preset("paper").of_kind(Heatmap)
    heatmaps = {heatmap.metric.name: heatmap for heatmap in shown}
    assert heatmaps["auroc_joint"].published["paper"] == {(1.0, 0.5): 0.903, (1.0, 1.0): 0.899, (1.0, 0.25): 0.897}
    at_optimum = [heatmaps[f"auroc_{score}"].published["paper"][1.0, 0.5] for score in ("variance", "entropy")]
    assert at_optimum == [0.867, 0.852]
