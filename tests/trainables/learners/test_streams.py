"""All random numbers derive from the trial's own content: seed and data, and nothing else."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.folder_files import write_imagenet
from trainables.config.sections import Data
from trainables.config.trial import TrialConfig, Value, resolve
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files.decoding import ImageFiles
from trainables.learners.data_parallel import Peers
from trainables.learners.streams import (
    PREFETCH_STEPS,
    Stream,
    build_models,
    seeded_generator,
    select_classes,
    steps_per_epoch,
    stream_key,
)

SHAPE = (1, 8, 8)
THREE = Data(normal_class=3)
FILES: dict[str, Value] = {
    "dataset": "imagenet", "normal_class": None, "batch_size": 4, "rotation": 0.0, "shift": 0.0, "crop_scale": 0.2,
}  # fmt: skip


@cache
def _digits() -> Dataset:
    return load("digits", Path())


def _config(**changes: Value) -> TrialConfig:
    defaults: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**defaults, "batch_size": 20, "rotation": 10.0, "shift": 0.5, **changes})


def _drawn(config: TrialConfig, epoch: int = 2, step: int = 1) -> list[Tensor]:
    """Everything a trial draws: order, views, noise, weights (without biases and norms, which may be constants)."""
    stream = Stream(config, select_classes(_digits(), config.data), "cpu")
    order = stream.order(epoch)
    views = stream.views(order[step], epoch, step, 2)
    weights = [parameter.detach() for parameter in build_models([config], SHAPE)[0].parameters() if parameter.dim() > 1]
    return [order, *views, stream.noise((2, 20, 4), epoch, step), *weights]


def _same(left: list[Tensor], right: list[Tensor]) -> list[bool]:
    return [torch.equal(left_BCHW, right_BCHW) for left_BCHW, right_BCHW in zip(left, right, strict=True)]


@pytest.mark.parametrize(
    "change", [{"beta": 0.1, "nu": 9.0}, {"lr": 0.9, "weight_decay": 0.5}, {"epochs": 7}, {"report_every": 3}]
)
def test_members_with_equal_seed_and_data_share_everything(change: dict[str, Value]) -> None:
    assert stream_key(_config()) == stream_key(_config(**change))
    assert all(_same(_drawn(_config()), _drawn(_config(**change))))


@pytest.mark.parametrize("change", [{"seed": 1}, {"normal_class": 4}])
def test_another_seed_or_class_changes_everything(change: dict[str, Value]) -> None:
    ours, other = _config(), _config(**change)
    assert stream_key(ours) != stream_key(other)
    assert not any(_same(_drawn(ours), _drawn(other)))


def test_the_same_images_are_augmented_differently_by_another_seed() -> None:
    ours, other = (
        Stream(_config(seed=seed), select_classes(_digits(), THREE), "cpu").views(torch.arange(20), 0, 0, 2)
        for seed in (0, 1)
    )
    assert not any(_same(ours, other))


def test_views_noise_and_epochs_are_all_different() -> None:
    """Draws for another view, step, epoch or purpose have other numbers."""
    stream = Stream(_config(), select_classes(_digits(), THREE), "cpu")
    indices = stream.order(0)[0]
    views = [*stream.views(indices, 0, 0, 2), *stream.views(indices, 0, 1, 2), *stream.views(indices, 1, 0, 2)]
    noise = [stream.noise((20, 4), epoch, step) for epoch in (0, 1) for step in (0, 1)]
    for drawn in (views, noise, [stream.order(epoch) for epoch in range(3)]):
        assert not any(torch.equal(drawn[i], drawn[j]) for i in range(len(drawn)) for j in range(i))


def test_order_has_no_repeats_and_drops_the_incomplete_batch() -> None:
    config = _config(batch_size=50)
    stream = Stream(config, select_classes(_digits(), THREE), "cpu")
    images = len(select_classes(_digits(), THREE).train_images)
    assert 100 < images < 150 and stream.steps == 2
    seen = set()
    for epoch in range(8):
        order = stream.order(epoch)
        assert order.shape == (2, 50) and len(set(order.flatten().tolist())) == 100
        seen |= set(order.flatten().tolist())
    assert seen == set(range(images))


def test_without_augmentation_a_view_is_the_normalised_image() -> None:
    stream = Stream(_config(rotation=0.0, shift=0.0), select_classes(_digits(), THREE), "cpu")
    (view,) = stream.views(torch.arange(20), 0, 0, 1)
    pixels = select_classes(_digits(), THREE).train_images[:20] / 16
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
    assert seeded_generator("order", ("digits", 3, 0), 0).initial_seed() == 10536567748675528602


def test_members_of_one_stream_start_with_equal_weights() -> None:
    configs = [_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)]
    first, second, third = build_models(configs, SHAPE)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True))
    assert [model.get_buffer("beta").item() for model in (first, second, third)] == [0.5, 2.0, 1.0]
    assert second.get_buffer("nu").item() == 7.0
    assert not any(a is b for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_channels_last_is_only_a_layout() -> None:
    plain, last = (
        Stream(_config(channels_last=flag), select_classes(_digits(), THREE), "cpu").views(torch.arange(20), 0, 0, 2)
        for flag in (False, True)
    )
    assert all(
        torch.equal(a, b) and b.is_contiguous(memory_format=torch.channels_last)
        for a, b in zip(plain, last, strict=True)
    )


def test_a_batch_must_not_exceed_the_training_images() -> None:
    images = len(select_classes(_digits(), THREE).train_images)
    assert steps_per_epoch(_config(batch_size=images), images) == 1
    with pytest.raises(ValueError) as error:
        steps_per_epoch(_config(batch_size=images + 1), images)
    assert str(error.value) == (
        f"batch_size must not exceed the {images} training images of digits with normal_class=3, "
        f"but got batch_size={images + 1}"
    )


def test_split_selects_one_class_all_classes_or_all_but_some() -> None:
    single, whole, others = (select_classes(_digits(), data) for data in (THREE, Data(), Data(held_out="3+5")))
    assert set(single.train_labels.tolist()) == {3} and single.outlier is not None and len(single.test_images) == 537
    assert set(whole.train_labels.tolist()) == set(range(10)) and whole.held_out_images is None
    assert set(others.train_labels.tolist()) == set(others.test_labels.tolist()) == set(range(10)) - {3, 5}
    assert others.held_out_images is not None and len(others.held_out_images) + len(others.test_images) == 537


def test_holding_out_other_classes_is_another_stream() -> None:
    """The key of a trial that holds out no classes has never changed."""
    keys = [stream_key(_config(normal_class=None, held_out=held_out)) for held_out in ("", "3", "5", "3+5")]
    assert len(set(keys)) == 4 and keys[0] == ("digits", None, 0)


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_draw_what_one_draws(size: int, tmp_path: Path) -> None:
    """For tensors and for files: the concatenated views and noise of the parts equal those of a single process."""
    write_imagenet(tmp_path)
    digits, files = _config(crop_scale=0.3), _config(**FILES)
    for config, dataset in ((digits, _digits()), (files, load("imagenet", tmp_path))):
        parts = select_classes(dataset, config.data)
        peers = (Peers(), *(Peers(rank, size) for rank in range(size)))
        whole, *ranks = (Stream(config, parts, "cpu", peer) for peer in peers)
        (indices, *_), batch = whole.order(1), config.training.batch_size
        joined = [torch.cat(views) for views in zip(*(stream.views(indices, 1, 0, 2) for stream in ranks), strict=True)]
        assert all(_same(joined, whole.views(indices, 1, 0, 2)))
        noise = torch.cat([stream.noise((2, batch, 4), 1, 0) for stream in ranks], dim=1)
        assert torch.equal(noise, whole.noise((2, batch, 4), 1, 0))
        assert ranks[0].noise((0,), 1, 0).shape == (0,)


def _files(tmp_path: Path, **changes: Value) -> Stream:
    """Three steps of four of twelve images."""
    write_imagenet(tmp_path)
    config = _config(**{**FILES, **changes})
    return Stream(config, select_classes(load("imagenet", tmp_path), config.data), "cpu")


def test_decoding_ahead_changes_no_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image is decoded once, AHEAD steps in advance, whatever is expected in between."""
    stream = _files(tmp_path)
    decoded: list[list[int]] = []
    real = ImageFiles.crops

    def crops(self: ImageFiles, indices: Tensor, *others: Any) -> Any:
        decoded.append(indices.tolist())
        return real(self, indices, *others)

    order = stream.order(0)
    assert order.shape == (3, 4) and sorted(order.flatten().tolist()) == list(range(12))
    alone = [stream.views(order[step], 0, step, 2) for step in range(3)]
    monkeypatch.setattr(ImageFiles, "crops", crops)
    for step in range(3):
        assert all(_same(stream.views(order[step], 0, step, 2), alone[step]))
        stream.prefetch(order, 0, step + 1, 2)
        assert decoded == order[: min(3, step + 1 + PREFETCH_STEPS)].tolist()
    stream.prefetch(order, 0, 0, 2)  # what is expected and never fetched is forgotten
    stream.prefetch(order, 0, 2, 2)
    assert list(stream._decoding) == [(0, 2)]


def test_files_are_cropped_once_and_each_view_by_itself(tmp_path: Path) -> None:
    """A crop depends on the image's index in the batch, not on other images; without crops all views are central."""
    stream, indices = _files(tmp_path), torch.tensor([0, 5, 7, 9])
    first, second = stream.views(indices, 0, 0, 2)
    assert first.shape == (4, 3, 224, 224) and not torch.equal(first, second)
    swapped, _ = stream.views(torch.tensor([0, 7, 5, 9]), 0, 0, 2)
    assert torch.equal(first[[0, 3]], swapped[[0, 3]]) and not torch.equal(first[[1, 2]], swapped[[2, 1]])
    central = Stream(_config(**{**FILES, "crop_scale": 1.0}), stream._split, "cpu").views(indices, 0, 0, 2)
    pixels = stream._split.train_images[indices] / 255
    mean, std = (torch.tensor(channels).view(3, 1, 1) for channels in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for view in central:
        torch.testing.assert_close(view, (pixels - mean) / std)
