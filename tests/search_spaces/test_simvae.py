"""The sweeps of the SimVAE paper have its protocol, and on the digits equal budgets and chosen settings."""

import itertools
import math
from collections.abc import Mapping

import pytest

from search_spaces import simvae_style
from search_spaces._simvae_protocols import DATASETS, METHODS
from sweeper.definition import Search, Table, registry
from tests.cases import for_each
from tests.search_spaces.grids import configs_of
from tests.trainables.small import image_trial
from trainables.catalog import METHODS as ALL_METHODS
from trainables.data.datasets import catalog
from trainables.data.datasets.celeba import BINARY
from trainables.image_trial import ImageTrial
from trainables.tasks.images.stream import images_per_step, steps_per_epoch
from trainables.tasks.images.task import image_method

CONTENT = "simvae_content"
EQUAL_COST = [
    (CONTENT, "digits"),
    ("simvae_style", "digits"),
    ("simvae_style", "digits_tint"),
    ("simvae_generation", "digits"),
    ("augmentation_ablation", "digits"),
    ("variance_ablation", "digits"),
]
"""Presets in which every trial encodes as many images as any other."""
GREY = ("mnist", "fashion_mnist")


def train_images(config: ImageTrial) -> int:
    counts = catalog.DATASETS[config.data.dataset].declaration.train
    assert counts
    return sum(counts)


def encoded(config: ImageTrial) -> tuple[int, int]:
    """Steps, and images that each of them encodes."""
    method, images = image_method(ALL_METHODS[config.method]), train_images(config)
    steps = config.training.epochs * steps_per_epoch(config, images)
    return steps, images_per_step(config, method, images) * method.encoded_count(config.options)


def trained(name: str, preset: str) -> list[ImageTrial]:
    return [config for config in configs_of(name, preset) if config.method != "random"]


@for_each(("name", "preset"), EQUAL_COST)
def test_all_methods_encode_equally_many_digits(name: str, preset: str) -> None:
    """With 10 views of an image 128 is not divisible."""
    for config in trained(name, preset):
        assert encoded(config) == (1503, 120 if config.method == "simvae" else 128)


@for_each(("name", "preset"), EQUAL_COST)
def test_all_methods_on_digits_have_the_settings_of_the_reference(name: str, preset: str) -> None:
    for config in configs_of(name, preset):
        layers, training, optimiser = config.layers, config.gradient, config.optimiser
        assert (config.encoder.encoder, layers.hidden, config.encoder.features) == ("relu_mlp", "256+256", 10)
        assert (layers.decoder, layers.decoder_hidden) == ("relu_mlp", "256+256")
        assert (training.lr, training.weight_decay) == (1e-3, 0)
        assert (optimiser.optimiser, optimiser.lr_schedule, optimiser.adam_epsilon) == ("adam", "constant", 1e-8)
        assert training.report_every >= training.epochs and not config.pixel_views.normalise
        assert config.views.flip == 0 and (config.views.crop_scale == 0.4 or name == "augmentation_ablation")
        assert (config.content.content_probe_epochs, config.content.content_probe_lr) in ((200, 1e-2), (0, 3e-4))


def test_methods_on_digits_have_the_hyperparameters_of_the_reference() -> None:
    options = {config.method: config.options for config in configs_of(CONTENT, "digits")}
    variances = {method: own.sigma_x2 for method, own in options.items() if hasattr(own, "sigma_x2")}
    assert variances == {"vae": 0.1, "beta_vae": 0.005, "cr_vae": 0.005, "simvae": 0.005}
    simvae, vicreg = options["simvae"], options["vicreg"]
    assert (simvae.views, simvae.sigma2, simvae.centre_precision) == (10, 0.15, 0)
    assert (vicreg.invariance_weight, vicreg.variance_weight, vicreg.covariance_weight) == (25, 25, 25)
    assert (options["simclr"].tau, options["cr_vae"].consistency_weight, options["beta_vae"].beta) == (0.7, 0.1, 1)


def test_the_tinted_digits_have_jitter_that_hides_the_hue() -> None:
    for config in configs_of("simvae_style", "digits_tint"):
        views = config.views
        assert (config.data.dataset, views.hue, views.jitter, views.crop_scale) == ("digits_tint", 0.5, 0.8, 0.4)
        assert views.brightness == views.contrast == views.saturation == 0.8 and config.content.styles == "hue"


def test_no_projector_stands_between_the_losses_and_the_representation() -> None:
    for preset in ("paper", "digits"):
        discriminative = [
            config for config in configs_of(CONTENT, preset) if hasattr(config.options, "projector_width")
        ]
        assert {config.method for config in discriminative} == {"simclr", "moco_v2", "vicreg"}
        assert all(config.options.projector_width == 0 for config in discriminative)


@pytest.mark.parametrize("name", [CONTENT, "simvae_style", "simvae_generation"])
def test_the_papers_trials_have_its_networks_views_and_schedule(name: str) -> None:
    """An epoch is a pass over all images, and a step encodes 128 (SimVAE 12, with 10 views)."""
    for config in configs_of(name, "paper"):
        views, grey = config.views, config.data.dataset in GREY
        assert (config.encoder.encoder, config.layers.decoder, config.encoder.features) == (
            ("relu_mlp", "relu_mlp", 10) if grey else ("simvae_resnet", "simvae_deconv", 64)
        )
        assert (config.layers.hidden, config.layers.decoder_hidden) == ("500+500+2000", "2000+500+500")
        assert (views.crop_scale, views.flip, config.pixel_views.flip_direction) == (
            0.4 if grey else 0.6,
            0.5,
            "vertical",
        )
        jitter = (views.brightness, views.contrast, views.saturation, views.hue, views.jitter)
        assert jitter == ((0,) * 5 if grey else (0.8, 0.8, 0.8, 0.2, 0.8))
        assert config.pixel_views.binarise == (config.data.dataset == "mnist") and not config.pixel_views.normalise
        assert (config.optimiser.optimiser, config.optimiser.lr_schedule) == ("adam", "constant")
        if config.method != "random":
            assert encoded(config)[1] == (120 if config.method == "simvae" else 128)
            discriminative = config.method in ("simclr", "moco_v2", "vicreg")
            assert config.training.epochs == (600 if discriminative else 400)


@pytest.mark.parametrize(
    ("dataset", "method", "steps"),
    [("mnist", "simvae", 5000), ("cifar10", "simvae", 4166), ("celeba", "simvae", 13_564), ("mnist", "cr_vae", 937)],
)
def test_epochs_have_the_steps_of_the_paper(dataset: str, method: str, steps: int) -> None:
    (config, *_) = [
        config for config in configs_of(CONTENT, "paper") if (config.data.dataset, config.method) == (dataset, method)
    ]
    assert steps_per_epoch(config, train_images(config)) == steps


def test_the_papers_evaluation_is_that_of_section_8() -> None:
    for config in configs_of(CONTENT, "paper"):
        content = config.content
        assert (content.content_probe_epochs, content.content_probe_lr) == (200, 3e-4)
        assert (content.content_probe_batch_size, content.content_knn, content.gmm_n_init) == (128, 15, 200)


def test_the_authors_code_has_its_own_layers_loss_and_evaluation() -> None:
    for config in configs_of(CONTENT, "authors_code"):
        options, content, grey = config.options, config.content, config.data.dataset in GREY
        assert (content.content_probe_batch_size, content.content_knn, content.gmm_n_init) == (64, 20, 20)
        assert (options.sigma_x2, options.likelihood) == (0.01005, "bernoulli" if grey else "gaussian")
        assert config.optimiser.adam_epsilon * 128 == pytest.approx(1e-4) and config.gradient.lr == 8e-5
        assert grey or (config.encoder.encoder, config.views.jitter) == ("simvae_resnet_authors", 1.0)
        assert not grey or (config.layers.hidden, config.layers.decoder_hidden) == ("2000+500+500", "500+500+2000")
        assert options.entropy_weight == pytest.approx(2 * math.pi)
        if config.method == "simvae":
            assert (options.views, config.gradient.batch_size) == (2, 64) and options.authors_centre
        else:
            assert options.sampled_prior


def published(name: str, table: str, preset: str = "paper") -> Mapping[tuple[object, ...], Mapping[str, float]]:
    (cells,) = [view.published[preset] for view in registry.find(name).of_kind(Table) if view.name == table]
    return cells


@pytest.mark.parametrize(
    ("table", "absent"),
    [
        ("mlp_probe_and_knn", set()),
        ("linear_probe_and_mixture", {("moco_v2", "celeba")}),
        ("clusters", {("moco_v2", "celeba"), *(("random", dataset) for dataset in DATASETS)}),
    ],
)
def test_the_paper_has_a_figure_of_each_method_and_data_set(table: str, absent: set[tuple[str, str]]) -> None:
    cells = published(CONTENT, table)
    assert set(cells) == {(method, dataset) for method in METHODS for dataset in DATASETS} - absent
    assert all(len(figures) == 2 for figures in cells.values())


def test_the_papers_j_ablation_has_as_many_images_as_fit_into_128_views() -> None:
    for preset in ("paper", "authors_code"):
        sizes = {config.options.views: config.gradient.batch_size for config in configs_of("j_ablation", preset)}
        assert sizes == {2: 64, 4: 32, 6: 21, 8: 16, 10: 12}
        assert {config.batches.batch_unit for config in configs_of("j_ablation", preset)} == {"images"}


def test_the_digits_fix_the_views_of_a_step_or_its_images() -> None:
    """With fixed views all J cost the same up to a remainder, with fixed images in proportion to J."""
    for config in configs_of("j_ablation", "digits"):
        steps, images = encoded(config)
        assert 0 <= config.gradient.batch_size - images < config.options.views
        assert steps == 167 * (1260 // config.gradient.batch_size)
    for config in configs_of("j_ablation", "digits_images"):
        steps, images = encoded(config)
        assert images == config.gradient.batch_size * config.options.views
        assert steps == 83 * (1260 // config.gradient.batch_size)


def test_the_levels_of_augmentation_become_stronger_in_every_respect() -> None:
    levels = sorted(
        {
            (
                config.views.crop_scale,
                config.views.brightness,
                config.views.contrast,
                config.views.saturation,
                config.views.hue,
            )
            for config in configs_of("augmentation_ablation", "colours")
        }
    )
    assert len(levels) == 4
    for strong, weak in itertools.pairwise(levels):
        assert strong[0] < weak[0] and all(more > less for more, less in zip(strong[1:], weak[1:], strict=True))
    assert all(config.views.jitter == 0.8 for config in configs_of("augmentation_ablation", "colours"))


def test_the_attributes_of_faces_are_those_of_the_data_set() -> None:
    assert set(simvae_style.ATTRIBUTES) == set(BINARY) and len(BINARY) == 20


def test_every_trial_of_the_j_budget_encodes_equally_many_digits() -> None:
    """1,505 steps, though a fifth of the images is held out, of 120 to 128 images."""
    search = registry.find("j_budget").presets["digits"]
    assert isinstance(search, Search)
    for views in range(2, 11, 2):
        config = image_trial({**search.fixed, "views": views})
        steps = config.training.epochs * steps_per_epoch(config, 1008)
        images = images_per_step(config, image_method(ALL_METHODS["simvae"]), 1008) * views
        assert steps == 1505 and 120 <= images <= 128
