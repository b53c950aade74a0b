"""Published figures are the papers', and each has a cell that is measured."""

import itertools
import math

import pytest

from sweeper.spec import Sweep, Value, registry
from sweeper.spec.views import Table
from tests.search_spaces.grids import (
    GRIDS,
    configs_of,
)


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
