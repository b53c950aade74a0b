"""The sweeps of the GMJE paper have its settings, and small ones that suit the digits.

The collapses and their remedies differ by what is at stake, and by nothing else of a common protocol.
"""

import pytest

from search_spaces import memory_bank
from search_spaces.collapse_ablation import FAILURES, STATES, SWEEP
from sweeper.definition import Grid
from tests.cases import for_each
from tests.search_spaces.grids import configs_of
from trainables.tasks.images.stream import steps_per_epoch

DIGITS = 1257
"""Training images of the digits."""


@pytest.mark.parametrize("name", ["ssl_benchmark", "memory_bank"])
def test_papers_protocol(name: str) -> None:
    """Beside the numbers in the table of `_gmje_values.py`."""
    for config in configs_of(name, "paper"):
        views = config.views
        assert config.optimiser.optimiser == "sgd"
        assert (config.data.dataset, config.encoder.encoder, config.encoder.small_stem) == ("cifar10", "resnet18", True)
        assert (views.crop_scale, views.crop_ratio) == (0.08, 4 / 3), "the defaults of the crop that the paper names"
        assert (views.flip, views.jitter, views.hue, views.greyscale, views.blur) == (0.5, 0.8, 0.1, 0.2, 0.0)


def test_the_queue_and_the_bank_of_memory_bank_differ_in_nothing_else() -> None:
    for preset, sizes in (("paper", {memory_bank.SIZE}), ("digits", {16, 128})):
        configs = configs_of("memory_bank", preset)
        by_method = {
            method: [config for config in configs if config.method == method] for method in ("moco_v2", "smc_gmje")
        }
        assert {config.options.queue for config in by_method["moco_v2"]} == sizes
        assert {config.options.bank for config in by_method["smc_gmje"]} == sizes
        own = {"method", "queue", "bank", "resampling", "seed"}
        assert len({tuple((k, v) for k, v in config.flat().items() if k not in own) for config in configs}) == 1


@pytest.mark.parametrize("name", ["ssl_benchmark", "memory_bank"])
def test_digits_train_for_about_250_steps_and_have_a_probe_on_five_labels(name: str) -> None:
    for config in configs_of(name, "digits"):
        if config.method not in ("random", "pixels"):
            assert config.training.epochs * steps_per_epoch(config, DIGITS) == 252
        assert config.embeddings.few_labels == 5 and config.embeddings.geometry == "projection"


@pytest.mark.parametrize("preset", ["paper", "digits"])
def test_the_benchmark_has_the_same_methods_on_both_data_sets(preset: str) -> None:
    """All but autoencoders and those of other papers' tables."""
    configs = configs_of("ssl_benchmark", preset)
    assert {config.method for config in configs} == {
        *("simclr", "byol", "moco_v2", "swav", "vicreg", "jepa", "vje", "random", "pixels"),
        *("gje", "gmje_parametric", "gmje_mdn", "dam_gmje", "smc_gmje", "smc_joint_gmje", "hsic", "gpje"),
    }
    features = {config.options.random_features for config in configs if config.method == "gpje"}
    assert features == {0, 1024 if preset == "paper" else 128}


def test_parametric_prototypes_on_digits_have_the_weights_that_train() -> None:
    """Tau 1, lambda 0.05 over 1 - m, twice the squared distance, one prototype for both views."""
    (config, *_) = [config for config in configs_of("ssl_benchmark", "digits") if config.method == "gmje_parametric"]
    options, size = config.options, config.encoder.features
    assert options.projector_width == 0 and options.entropy_weight / (2 * size) == pytest.approx(0.05)
    assert (options.tau, options.alignment_weight, options.tied) == (1.0, 2.0, True)


PROTOCOL = {"dataset", "encoder", "epochs", "lr", "batch_size", "projection", "few_labels", "geometry"}


def _cells(preset: str) -> dict[tuple[str, str], Grid]:
    """The grid of each cell of the table."""
    cells = {}
    for name, pair in FAILURES.items():
        for state, where in zip(STATES, pair, strict=True):
            (grid,) = (grid for grid in SWEEP.grids(preset) if where.items() <= grid.fixed.items())
            cells[name, state] = grid
    return cells


@pytest.mark.parametrize("preset", SWEEP.presets)
def test_a_collapse_and_its_remedy_share_the_protocol(preset: str) -> None:
    cells = _cells(preset)
    for name in FAILURES:
        collapsed, remedied = (cells[name, state].fixed for state in STATES)
        assert collapsed != remedied
        assert {key: collapsed[key] for key in PROTOCOL} == {key: remedied[key] for key in PROTOCOL}


@for_each(
    ("name", "key"),
    [
        ("no entropy", "entropy_weight"),
        ("symmetric dual", "symmetric"),
        ("small targets", "standardise"),
        ("long kernel", "length"),
        ("two clusters", "entropy_weight"),
        ("leaky MDN", "leaky"),
        ("data as modes", "numerator"),
    ],
)
@for_each("preset", SWEEP.presets)
def test_one_key_is_at_stake(preset: str, name: str, key: str) -> None:
    collapsed, remedied = (_cells(preset)[name, state].fixed for state in STATES)
    assert {each for each in (*collapsed, *remedied) if collapsed.get(each) != remedied.get(each)} == {key}
