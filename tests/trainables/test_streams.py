"""Everything random derives from the trial's own content: seed and data, and nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainables.config import TrialConfig, Value, resolve
from trainables.data.datasets import Dataset, load
from trainables.streams import Stream, generator, models, split, steps_per_epoch, stream_key

SHAPE = (1, 8, 8)


@cache
def _digits() -> Dataset:
    return load("digits", Path())


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**given, "batch_size": 20, "rotation": 10.0, "shift": 0.5, **changes})


def _drawn(config: TrialConfig, epoch: int = 2, step: int = 1) -> list[Tensor]:
    """Everything a trial draws: order, views, noise, weights (not biases and norms, which may begin at constants)."""
    stream = Stream(config, split(_digits(), config.data.normal_class), "cpu")
    order = stream.order(epoch)
    views = stream.views(order[step], epoch, step, 2)
    weights = [parameter.detach() for parameter in models([config], SHAPE)[0].parameters() if parameter.dim() > 1]
    return [order, *views, stream.noise((2, 20, 4), epoch, step), *weights]


def _same(left: list[Tensor], right: list[Tensor]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(left, right, strict=True)]


@pytest.mark.parametrize(
    "change", [{"beta": 0.1, "nu": 9.0}, {"lr": 0.9, "weight_decay": 0.5}, {"epochs": 7}, {"report_every": 3}]
)
def test_equal_seed_and_data_share_everything(change: dict[str, Value]) -> None:
    assert stream_key(_config()) == stream_key(_config(**change))
    assert all(_same(_drawn(_config()), _drawn(_config(**change))))


@pytest.mark.parametrize("change", [{"seed": 1}, {"normal_class": 4}])
def test_another_seed_or_class_differs_in_all(change: dict[str, Value]) -> None:
    ours, other = _config(), _config(**change)
    assert stream_key(ours) != stream_key(other)
    assert not any(_same(_drawn(ours), _drawn(other)))


def test_the_same_images_are_augmented_differently_by_another_seed() -> None:
    ours, other = (
        Stream(_config(seed=seed), split(_digits(), 3), "cpu").views(torch.arange(20), 0, 0, 2) for seed in (0, 1)
    )
    assert not any(_same(ours, other))


def test_views_noise_and_epochs_are_all_different() -> None:
    """No draw repeats another's numbers: of another view, step, epoch or purpose."""
    stream = Stream(_config(), split(_digits(), 3), "cpu")
    indices = stream.order(0)[0]
    views = [*stream.views(indices, 0, 0, 2), *stream.views(indices, 0, 1, 2), *stream.views(indices, 1, 0, 2)]
    noise = [stream.noise((20, 4), epoch, step) for epoch in (0, 1) for step in (0, 1)]
    for drawn in (views, noise, [stream.order(epoch) for epoch in range(3)]):
        assert not any(torch.equal(drawn[i], drawn[j]) for i in range(len(drawn)) for j in range(i))


def test_order_has_no_repeats_and_drops_the_incomplete_batch() -> None:
    config = _config(batch_size=50)
    stream = Stream(config, split(_digits(), 3), "cpu")
    images = len(split(_digits(), 3).train_images)
    assert 100 < images < 150 and stream.steps == 2
    seen = set()
    for epoch in range(8):
        order = stream.order(epoch)
        assert order.shape == (2, 50) and len(set(order.flatten().tolist())) == 100
        seen |= set(order.flatten().tolist())
    assert seen == set(range(images))


def test_without_augmentation_a_view_is_the_normalised_image() -> None:
    stream = Stream(_config(rotation=0.0, shift=0.0), split(_digits(), 3), "cpu")
    (view,) = stream.views(torch.arange(20), 0, 0, 1)
    pixels = split(_digits(), 3).train_images[:20] / 16
    torch.testing.assert_close(view, (pixels - 0.305470) / 0.376049)


def test_draws_neither_read_nor_move_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = _drawn(_config())
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert all(_same(first, _drawn(_config())))


def test_generators_are_known_numbers() -> None:
    """A change of the hashing would silently make every sweep on record irreproducible."""
    assert generator("order", ("digits", 3, 0), 0).initial_seed() == 10536567748675528602


def test_members_of_one_stream_begin_alike_but_for_their_hyperparameters() -> None:
    configs = [_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)]
    first, second, third = models(configs, SHAPE)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True))
    assert [model.get_buffer("beta").item() for model in (first, second, third)] == [0.5, 2.0, 1.0]
    assert second.get_buffer("nu").item() == 7.0
    assert not any(a is b for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_channels_last_is_only_a_layout() -> None:
    plain, last = (
        Stream(_config(channels_last=flag), split(_digits(), 3), "cpu").views(torch.arange(20), 0, 0, 2)
        for flag in (False, True)
    )
    assert all(
        torch.equal(a, b) and b.is_contiguous(memory_format=torch.channels_last)
        for a, b in zip(plain, last, strict=True)
    )


def test_a_batch_must_fit() -> None:
    images = len(split(_digits(), 3).train_images)
    assert steps_per_epoch(_config(batch_size=images), images) == 1
    with pytest.raises(ValueError) as error:
        steps_per_epoch(_config(batch_size=images + 1), images)
    assert str(error.value) == (
        f"batch_size must not exceed the {images} training images of digits with normal_class=3, "
        f"but got batch_size={images + 1}"
    )
