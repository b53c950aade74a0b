"""Every grid in `search_spaces` expands into trials that can run, as many and as long as the paper's."""

import itertools
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from sweeper.plan.trials import Trial, content_hash, enumerate_trials
from sweeper.spec import Grid, Grids, Searches, Selection, Sweep, Value, registry
from sweeper.spec.views import Heatmap, Table
from trainables.config.trial import column_types, keys, resolve
from trainables.config.trial_config import TrialConfig
from trainables.data.datasets.declarations import DECLARATIONS
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluation_sections import Evaluation
from trainables.training.checks.preflight import check_trials
from trainables.training.metric_names import metric_names

COUNTS = {
    ("anomaly_grid", "paper"): 560,
    ("anomaly_grid", "digits"): 560,
    ("anomaly_grid", "digits_long"): 560,
    ("augmentation_ablation", "paper"): 84,
    ("augmentation_ablation", "digits"): 84,
    ("collapse_ablation", "paper"): 51,
    ("collapse_ablation", "digits"): 51,
    ("imagenet_linear", "paper"): 3,
    ("imagenet_linear", "digits"): 3,
    ("j_ablation", "paper"): 30,
    ("j_ablation", "digits"): 45,
    ("j_ablation", "digits_images"): 45,
    ("j_ablation", "authors_code"): 30,
    ("lambda_ablation", "paper"): 72,
    ("lambda_ablation", "digits"): 72,
    ("latent_generation", "paper"): 31,
    ("latent_generation", "digits"): 31,
    ("loss_ablation", "paper"): 54,
    ("loss_ablation", "digits"): 18,
    ("memory_bank", "paper"): 3,
    ("memory_bank", "digits"): 18,
    ("nu_ablation", "paper"): 54,
    ("nu_ablation", "digits"): 18,
    ("ood_detection", "paper"): 6,
    ("ood_detection", "digits"): 30,
    ("simvae_content", "paper"): 96,
    ("simvae_content", "digits"): 24,
    ("simvae_content", "authors_code"): 18,
    ("simvae_generation", "paper"): 72,
    ("simvae_generation", "digits"): 18,
    ("simvae_style", "paper"): 24,
    ("simvae_style", "digits"): 24,
    ("simvae_style", "digits_tint"): 24,
    ("ssl_benchmark", "paper"): 52,
    ("ssl_benchmark", "digits"): 52,
    ("ssl_cifar10", "paper"): 31,
    ("ssl_cifar10", "digits"): 31,
    ("synthetic_alignment", "paper"): 42,
    ("variance_ablation", "paper"): 36,
    ("variance_ablation", "digits"): 63,
}
GRIDS = list(dict.fromkeys(name for name, _ in COUNTS))
"""Sweeps whose presets are grids; `test_searches` tests the others."""
CLASSES = {name: declared.classes for name, declared in DECLARATIONS.items()}
CHANNELS = {name: declared.shape[0] for name, declared in DECLARATIONS.items()}
WITHOUT_FILES = {"digits", "digits_tint"}
"""Data sets that need no files."""
GIVEN_WEIGHTS = {"fid"}
"""Metrics that trials report only if the user provides the weights of a network."""

each_preset = pytest.mark.parametrize(("name", "preset"), COUNTS)


@cache
def trials_of(name: str, preset: str) -> tuple[Trial, ...]:
    _, space = registry.find(name).preset(preset)
    assert isinstance(space, Grid | Grids)
    return enumerate_trials(space.combinations(), lambda combination: resolve(combination).flat())


@cache
def all_configs_of(name: str, preset: str) -> tuple[TrialConfig, ...]:
    return tuple(resolve(trial.config) for trial in trials_of(name, preset))


def configs_of(name: str, preset: str) -> tuple[ImageTrial, ...]:
    """Those of trials on images."""
    return tuple(config for config in all_configs_of(name, preset) if isinstance(config, ImageTrial))


def metrics_of(name: str, preset: str) -> set[str]:
    configs = all_configs_of(name, preset)
    return {
        metric for config in configs for metric in metric_names(config, CLASSES.get(str(config.flat()["dataset"]), 0))
    }


def test_these_are_all_the_sweeps_and_the_first_preset_is_the_papers() -> None:
    grids = [
        (name, preset)
        for name in registry.names()
        for preset, space in registry.find(name).presets.items()
        if isinstance(space, Grid | Grids)
    ]
    assert grids == list(COUNTS)


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


def test_the_columns_of_a_grid_that_uses_sgd_are_those_of_before_there_was_another_optimiser() -> None:
    assert set(column_types(configs_of("anomaly_grid", "digits"))) == {
        "method", "dataset", "normal_class", "held_out", "validation", "encoder", "width", "features", "small_stem",
        "seed", "epochs", "batch_size", "lr", "momentum", "weight_decay", "warmup_epochs", "precision",
        "channels_last", "workers", "report_every", "crop_scale", "crop_ratio", "flip", "brightness", "contrast",
        "saturation", "hue", "jitter", "greyscale", "blur", "rotation", "shift", "knn", "knn_temperature",
        "probe_epochs", "probe_lr", "probe_batch_size", "probe_standardize", "outliers", "beta", "nu", "terms",
        "bottleneck", "projector_width", "score_samples",
    }  # fmt: skip


def test_all_digits_presets_have_one_probe() -> None:
    """It standardises the features, without which it would not converge."""
    probes = {
        tuple(value for key, value in vars(config.evaluation).items() if key.startswith("probe"))
        for name, preset in COUNTS
        if preset == "digits"
        for config in configs_of(name, preset)
        if config.evaluation.probe_epochs
    }
    searches = registry.find("ssl_search").presets["digits"]
    assert isinstance(searches, Searches)
    searched = [search.fixed for search in searches.searches]
    assert len(probes) == 1 and all(fixed["probe_standardize"] is True for fixed in searched)
    assert probes == {tuple(fixed[key] for key in vars(Evaluation()) if key.startswith("probe")) for fixed in searched}


@pytest.mark.parametrize(("name", "preset"), [key for key in COUNTS if key[1].startswith("digits")])
def test_the_digits_can_serve_every_trial(name: str, preset: str) -> None:
    configs = configs_of(name, preset)
    assert {config.data.dataset for config in configs} <= WITHOUT_FILES
    assert all(result.steps >= 2 for result in check_trials(configs, Path()))


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


@each_preset
def test_every_varied_key_is_an_axis_or_averaged_on_purpose(name: str, preset: str) -> None:
    """Trials in one cell of a table or heatmap differ only in what the cell averages over: seeds or classes.

    Keys that follow from the method or the data set, such as STL-10's blur, do not differ within a cell.
    """
    sweep, flats = registry.find(name).for_preset(preset), [config.flat() for config in all_configs_of(name, preset)]
    views: list[Table | Heatmap] = [*sweep.tables, *sweep.heatmaps]
    for view in views:
        for cell in cells_of(view, flats).values():
            differing = {key for flat in cell for key in flat if flat[key] != cell[0].get(key)}
            assert differing <= {"seed", "held_out", "normal_class"}, (view.hyperparameters, differing)


def cells_of(view: Table | Heatmap, flats: list[dict[str, Value]]) -> dict[object, list[Mapping[str, object]]]:
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
    sweep, flats = registry.find(name).for_preset(preset), [config.flat() for config in all_configs_of(name, preset)]
    views: list[Table | Heatmap] = [*sweep.tables, *sweep.heatmaps]
    for selection in {id(selection): selection for view in views for selection in view.selections}.values():
        selected = [flat for flat in flats if all(flat.get(key) == value for key, value in selection.where.items())]
        assert selected and all(key in selected[0] for key in selection.where), selection


@each_preset
def test_outliers_are_of_other_sets_of_as_many_channels(name: str, preset: str) -> None:
    for config in configs_of(name, preset):
        inside = config.data.dataset
        assert inside not in config.evaluation.outlier_sets
        for outside in set(config.evaluation.outlier_sets) & {"svhn", *CLASSES}:
            assert CHANNELS[outside] == CHANNELS[inside]


def tables() -> list[tuple[str, Sweep, Table]]:
    return [(name, sweep, table) for name in GRIDS for sweep in [registry.find(name)] for table in sweep.tables]


@pytest.mark.parametrize(("name", "sweep", "table"), tables(), ids=lambda value: getattr(value, "name", None))
def test_published_figures_have_a_measured_cell(name: str, sweep: Sweep, table: Table) -> None:
    """Exceptions are methods that only ImageNet's published table has. Accuracies are in percent, as in the paper."""
    assert set(table.published) <= set(sweep.presets) and set(table.presets) <= set(sweep.presets)
    axes = (*table.rows, *([table.columns] if table.columns else []))
    percent = {metric.name: metric.percent for metric in table.metrics}
    for preset, cells in table.published.items():
        measured = {tuple(config.flat().get(axis) for axis in axes) for config in configs_of(name, preset)}
        unmeasured = {cell for cell in cells if cell not in measured}
        others = ("simclr", "byol", "swav", "simsiam", "vicreg")
        assert unmeasured == ({(method,) for method in others} if name == "imagenet_linear" else set())
        for metric, figure in itertools.chain.from_iterable(figures.items() for figures in cells.values()):
            assert 0 <= figure <= 100 if percent[metric] else figure >= 0 or metric == "density_volume"


@pytest.mark.parametrize(
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
    (published,) = [candidate.published for candidate in registry.find(name).tables if candidate.name == table]
    assert published["paper"][cell] == figures


def test_the_published_heatmap_is_the_papers() -> None:
    heatmaps = {heatmap.metric.name: heatmap for heatmap in registry.find("anomaly_grid").heatmaps}
    assert heatmaps["auroc_joint"].published["paper"] == {(1.0, 0.5): 0.903, (1.0, 1.0): 0.899, (1.0, 0.25): 0.897}
    at_optimum = [heatmaps[f"auroc_{score}"].published["paper"][1.0, 0.5] for score in ("variance", "entropy")]
    assert at_optimum == [0.867, 0.852]


@each_preset
def test_choices_on_digits_are_made_on_validation_images(name: str, preset: str) -> None:
    """Only the anomaly grid chooses a best cell. The paper's presets choose on test images."""
    held_out = name == "anomaly_grid" and preset != "paper"
    assert {config.data.validation for config in configs_of(name, preset)} <= {0.2 if held_out else 0.0}
    assert ("val_auroc_joint" in metrics_of(name, preset)) == held_out


def test_the_long_anomaly_grid_is_the_short_one_but_for_size() -> None:
    short, long = (configs_of("anomaly_grid", preset)[0] for preset in ("digits", "digits_long"))
    differing = {key: (value, long.flat()[key]) for key, value in short.flat().items() if long.flat()[key] != value}
    assert differing == {"width": (128, 256), "features": (64, 128), "bottleneck": (64, 128), "epochs": (50, 100)}


def test_barlow_twins_weighs_correlations_by_the_papers_order_and_has_the_authors_scale() -> None:
    """Lambda x P is 41 in its paper, and 10 and 6 here. Unscaled, the loss suits much smaller learning rates."""
    weights = {}
    for preset in ("paper", "digits"):
        configs = [config for config in configs_of("ssl_cifar10", preset) if config.method == "barlow_twins"]
        assert {config.gradient.lr for config in configs} == {0.05 if preset == "paper" else 0.01}
        (options,) = {config.options for config in configs}
        weights[preset] = (options.redundancy_weight * options.projector_width, options.loss_scale)
    assert weights == {"paper": (pytest.approx(10.24), 0.024), "digits": (pytest.approx(6.4), 0.1)}


EPOCHS = {
    "anomaly_grid": 800, "imagenet_linear": 100, "loss_ablation": 200, "nu_ablation": 200, "ood_detection": 800,
    "ssl_cifar10": 800,
}  # fmt: skip


@pytest.mark.parametrize("name", EPOCHS)
def test_the_papers_protocol(name: str) -> None:
    """VJE's sweeps follow vje.md 3 and 4, except that untrained methods have no epochs. Probes do not standardise."""
    for config in configs_of(name, "paper"):
        training, views, small = config.gradient, config.views, config.data.dataset.startswith("cifar")
        one_class = name == "anomaly_grid"
        assert training.epochs == (0 if config.method in ("pixels", "random") else EPOCHS[name])
        assert (training.batch_size, training.lr) == ((64, 5e-6) if one_class else (256, 0.05))
        assert (training.momentum, training.weight_decay) == (0.9, 5e-6)
        assert training.warmup_epochs == (10 if name == "imagenet_linear" else 0)
        assert training.workers == (8 if name == "imagenet_linear" else 1)
        assert (views.crop_scale, views.flip, views.jitter, views.greyscale) == (0.2, 0.5, 0.8, 0.2)
        assert (views.brightness, views.contrast, views.saturation, views.hue) == (0.4, 0.4, 0.4, 0.1)
        assert views.blur == (0.0 if small else 0.5)
        assert config.encoder.small_stem == small
        assert config.encoder.encoder == ("resnet50" if name == "imagenet_linear" else "resnet18")
        assert config.evaluation.probe_epochs == (0 if one_class else 100) and not config.evaluation.probe_standardize
        assert config.evaluation.knn == (0 if name in ("anomaly_grid", "imagenet_linear") else 30)
        if config.method == "vje":
            assert config.options.bottleneck == (512 if name == "imagenet_linear" else 128)
            assert one_class or config.options.beta == 1
            assert name in ("anomaly_grid", "nu_ablation") or config.options.nu == 3
