"""Which images a trial trains on, their order and their views: of its own content, seed and data, and nothing else; its
full evaluations.

Shapes: B images of C channels, H by W pixels; J views.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from tests.image_files import write_imagenet
from tests.trainables.small import HERE, IMAGE_METHODS, image_trial
from trainables.catalog import METHODS, task_of
from trainables.config import resolve, stream_key
from trainables.contract import Batch, ImageMethod
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files import ImageFiles
from trainables.data.splits import all_classes_split, one_class_split
from trainables.image_trial import Data, ImageTrial
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.sections import Value
from trainables.tasks.images import preflight
from trainables.tasks.images.stream import (
    PREFETCH_STEPS,
    ImageStream,
    make_splits,
    select_classes,
    steps_per_epoch,
)
from trainables.tasks.images.task import Images, image_method
from trainables.training.metric_names import metric_names
from trainables.training.stacks import build_models

THREE = Data(normal_class=3)
FILES: dict[str, Value] = {
    "dataset": "imagenet", "normal_class": None, "batch_size": 4, "rotation": 0.0, "shift": 0.0, "crop_scale": 0.2,
}  # fmt: skip
"""Three steps of four of the twelve images of `write_imagenet`."""
INDICES = torch.arange(20)
FOUR = torch.tensor([3, 0, 7, 19])
FILE_INDICES = torch.tensor([0, 5, 7, 9])


@cache
def digits() -> Dataset:
    return load("digits", Path())


def config_of(method: str = "vje", /, **changes: Value) -> ImageTrial:
    config = resolve({
        "method": method, "normal_class": 3, "width": 8, "features": 4, "batch_size": 20, "rotation": 10.0,
        "shift": 0.5, **({"bottleneck": 4} if method == "vje" else {}), **changes,
    })  # fmt: skip
    assert isinstance(config, ImageTrial)
    return config


def stream_of(config: ImageTrial, dataset: Dataset | None = None, peers: Peers = SINGLE_PROCESS) -> ImageStream:
    """A trial's stream, by default of the digits."""
    split = select_classes(dataset or digits(), config.data)
    return ImageStream(config, image_method(METHODS[config.method]), split, "cpu", peers)


def _drawn(config: ImageTrial, epoch: int = 2, step: int = 1) -> list[Tensor]:
    """What a trial draws: order, views, weights (without biases and norms, which may be constants)."""
    stream = stream_of(config)
    order = stream.order(epoch)
    (model,) = build_models([config], {"views": (1, 8, 8)})
    weights = [parameter.detach() for parameter in model.parameters() if parameter.dim() > 1]
    return [order, *stream.batch(order[step], epoch, step)["views"], *weights]


def _same(left: Sequence[Tensor], right: Sequence[Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize(
    "change", [{"beta": 0.1, "nu": 9.0}, {"lr": 0.9, "weight_decay": 0.5}, {"epochs": 7}, {"report_every": 3}]
)
def test_members_with_equal_seed_and_data_share_everything(change: dict[str, Value]) -> None:
    assert stream_key(config_of()) == stream_key(config_of(**change))
    assert all(_same(_drawn(config_of()), _drawn(config_of(**change))))


@pytest.mark.parametrize("change", [{"seed": 1}, {"normal_class": 4}])
def test_another_seed_or_class_changes_everything(change: dict[str, Value]) -> None:
    ours, other = config_of(), config_of(**change)
    assert stream_key(ours) != stream_key(other)
    assert not any(_same(_drawn(ours), _drawn(other)))


def test_the_same_images_are_augmented_differently_by_another_seed() -> None:
    ours, other = (list(stream_of(config_of(seed=seed)).batch(INDICES, 0, 0)["views"]) for seed in (0, 1))
    assert not any(_same(ours, other))


def test_views_and_orders_are_all_different() -> None:
    """Draws for another view, step or epoch have other numbers."""
    stream = stream_of(config_of())
    views = [view for epoch, step in ((0, 0), (0, 1), (1, 0)) for view in stream.batch(INDICES, epoch, step)["views"]]
    for drawn in (views, [stream.order(epoch) for epoch in range(3)]):
        assert not any(torch.equal(drawn[i], drawn[j]) for i in range(len(drawn)) for j in range(i))


def test_order_has_no_repeats_and_drops_the_incomplete_batch() -> None:
    stream = stream_of(config_of(batch_size=50))
    images = len(select_classes(digits(), THREE).train_images)
    assert 100 < images < 150 and stream.steps == 2
    seen = set()
    for epoch in range(8):
        order = stream.order(epoch)
        assert order.shape == (2, 50) and len(set(order.flatten().tolist())) == 100
        seen |= set(order.flatten().tolist())
    assert seen == set(range(images))


def test_draws_neither_read_nor_move_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = _drawn(config_of())
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert all(_same(first, _drawn(config_of())))


def test_a_batch_must_not_exceed_the_training_images() -> None:
    images = len(select_classes(digits(), THREE).train_images)
    assert steps_per_epoch(config_of(batch_size=images), images) == 1
    with pytest.raises(ValueError) as error:
        steps_per_epoch(config_of(batch_size=images + 1), images)
    assert str(error.value) == (
        f"batch_size must not exceed the {images} training images of digits with normal_class=3, "
        f"but got batch_size={images + 1}"
    )


def test_split_selects_one_class_all_classes_or_all_but_some() -> None:
    single, whole, others = (select_classes(digits(), data) for data in (THREE, Data(), Data(held_out="3+5")))
    assert set(single.train_labels.tolist()) == {3} and single.outlier is not None and len(single.test_images) == 537
    assert set(whole.train_labels.tolist()) == set(range(10)) and whole.held_out_images is None
    assert set(others.train_labels.tolist()) == set(others.test_labels.tolist()) == set(range(10)) - {3, 5}
    assert others.held_out_images is not None and len(others.held_out_images) + len(others.test_images) == 537


def test_holding_out_other_classes_is_another_stream() -> None:
    """The key of a trial that holds out no classes has never changed."""
    keys = [stream_key(config_of(normal_class=None, held_out=held_out)) for held_out in ("", "3", "5", "3+5")]
    assert len(set(keys)) == 4 and keys[0] == ("digits", None, 0)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("method", ["vje", "cr_vae"])
def test_several_processes_draw_what_one_draws(method: str, size: int) -> None:
    """The concatenated entries of the parts equal those of a single process."""
    config = config_of(method, crop_scale=0.3)
    whole, *ranks = (
        stream_of(config, peers=peers) for peers in (Peers(), *(Peers(rank, size) for rank in range(size)))
    )
    batch, parts = whole.batch(INDICES, 1, 0), [stream.batch(INDICES, 1, 0) for stream in ranks]
    for name, images in batch.items():
        joined = [torch.cat(views) for views in zip(*(part[name] for part in parts), strict=True)]
        assert all(_same(joined, images))


# --- The entries of a batch ---

PIXELS = one_class_split(digits(), 3).train_images[FOUR] / 16
MEAN, STD = 0.305470, 0.376049


class Everything(ImageMethod):
    """A method that reads all entries, and one view of each image."""

    reads = frozenset({"views", "view_pixels", "plain", "plain_pixels"})

    @classmethod
    def view_count(cls, config: object) -> int:
        return 1


def _batch(**changes: float | bool) -> Batch:
    stream = ImageStream(config_of(**changes), Everything, one_class_split(digits(), 3), "cpu")
    return stream.batch(FOUR, 0, 0)


@pytest.mark.parametrize(("name", "count"), [("vje", 2), ("simvae", 10), ("vae", 1), ("cr_vae", 1)])
def test_a_batch_has_what_the_method_reads_and_as_many_views_as_it_says(name: str, count: int) -> None:
    method = METHODS[name]
    assert issubclass(method, ImageMethod)
    batch = stream_of(config_of(name)).batch(FOUR, 0, 0)
    assert batch.keys() == method.reads
    sizes = {"views": count, "view_pixels": count, "plain": 1, "plain_pixels": 1}
    assert {entry: len(images) for entry, images in batch.items()} == {entry: sizes[entry] for entry in batch}
    assert {image.shape for images in batch.values() for image in images} == {(4, 1, 8, 8)}


def test_the_number_of_views_is_a_hyperparameter() -> None:
    assert len(stream_of(config_of("simvae", views=4)).batch(FOUR, 0, 0)["views"]) == 4


def test_plain_images_are_those_of_the_data_set_and_views_are_augmented() -> None:
    batch = _batch()
    torch.testing.assert_close(batch["plain_pixels"][0], PIXELS)
    assert not torch.allclose(batch["view_pixels"][0], PIXELS, atol=0.05)
    assert batch["view_pixels"][0].min() >= 0 and batch["view_pixels"][0].max() <= 1


def test_without_augmentation_a_view_is_the_plain_image() -> None:
    batch = _batch(rotation=0.0, shift=0.0)
    torch.testing.assert_close(batch["view_pixels"][0], PIXELS)
    torch.testing.assert_close(batch["views"][0], (PIXELS - MEAN) / STD)


@pytest.mark.parametrize("entry", ["view", "plain"])
def test_images_are_prepared_from_the_pixels_beside_them(entry: str) -> None:
    """So a decoder learns the pixels of the very view that the encoder saw."""
    batch = _batch()
    pixels, prepared = batch[f"{entry}_pixels"][0], batch["views" if entry == "view" else "plain"][0]
    torch.testing.assert_close(prepared, (pixels - MEAN) / STD)


def test_pixels_can_be_left_as_they_are_or_made_binary() -> None:
    batch = _batch(normalise=False, binarise=True)
    for entry in ("view", "plain"):
        pixels, prepared = batch[f"{entry}_pixels"][0], batch["views" if entry == "view" else "plain"][0]
        assert torch.equal(prepared, pixels) and set(pixels.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(batch["plain_pixels"][0], (PIXELS > 0.5).float())


def test_channels_last_is_only_a_layout() -> None:
    ordinary, last = (_batch(channels_last=flag) for flag in (False, True))
    for entry in ("views", "plain"):
        assert torch.equal(ordinary[entry][0], last[entry][0])
        assert last[entry][0].is_contiguous(memory_format=torch.channels_last)


class Labelled(Everything):
    """A method that reads the labels, too."""

    reads = frozenset({"plain_pixels", "labels"})


@pytest.mark.parametrize("size", [1, 3])
def test_labels_are_those_of_the_images_in_every_process(size: int) -> None:
    split = all_classes_split(digits())
    streams = [
        ImageStream(config_of(normal_class=None), Labelled, split, "cpu", Peers(rank, size)) for rank in range(size)
    ]
    indices = streams[0].order(1)[2]
    parts = [stream.batch(indices, 1, 2) for stream in streams]
    labels = torch.cat([part["labels"] for part in parts])
    assert labels.dtype == torch.int64 and torch.equal(labels, split.train_labels[indices])
    pixels = torch.cat([part["plain_pixels"][0] for part in parts])
    torch.testing.assert_close(pixels, split.train_images[indices] / 16)


def test_with_batches_of_views_steps_cost_the_same_for_any_number_of_views() -> None:
    """There are batch_size / J images in a batch, and as many views in an epoch as there are images."""
    for name, encoded in (("vae", 1), ("cr_vae", 2), ("simvae", 10), ("vje", 2)):
        stream = stream_of(config_of(name, batch_size=40, batch_unit="views"))
        assert (
            stream.batch_size == 40 // encoded and stream.steps == len(one_class_split(digits(), 3).train_images) // 40
        )
        assert stream.order(0).shape == (stream.steps, stream.batch_size)
        batch = stream.batch(stream.order(0)[0], 0, 0)
        images = [image for entry in ("views", "plain") for image in batch.get(entry, ())]
        assert sum(map(len, images)) == 40


# --- Validation images are held out ---


@pytest.mark.parametrize("data", [Data(normal_class=3), Data(held_out="3+5"), Data()], ids=["one", "held out", "all"])
def test_both_parts_have_the_training_images_without_those_held_out(data: Data) -> None:
    test, validation = make_splits(digits(), replace(data, validation=0.2))
    assert validation is not None and torch.equal(test.train_images[:], validation.train_images[:])
    whole, none = make_splits(digits(), data)
    assert none is None and len(whole.train_images) > len(test.train_images)
    assert torch.equal(whole.test_images[:], test.test_images[:]) and torch.equal(whole.test_labels, test.test_labels)
    rows = [{bytes(image.numpy().tobytes()) for image in part[:]} for part in (test.train_images, test.test_images)]
    held = {bytes(image.numpy().tobytes()) for image in validation.test_images[:]}
    assert held and not held & rows[0] and not held & rows[1]


def test_members_share_the_remaining_images() -> None:
    first, second = (make_splits(digits(), Data(validation=0.2)) for _ in range(2))
    assert first.test.train_images is second.test.train_images
    assert first.validation and second.validation and first.validation.test_images is second.validation.test_images


def test_trials_that_hold_out_another_share_share_no_stream() -> None:
    keys = [
        stream_key(image_trial({"method": "vje", "validation": share, "held_out": classes}))
        for share in (0.0, 0.1, 0.2)
        for classes in ("", "3")
    ]
    assert len(set(keys)) == 6 and keys[:2] == [("digits", None, 0), ("digits", None, 0, "3")]


# --- Image files: decoded ahead, each once, and cropped while they are decoded ---


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_imagenet(tmp_path)
    return tmp_path


def _stream(root: Path, method: str = "vje", peers: Peers = SINGLE_PROCESS, **changes: Value) -> ImageStream:
    return stream_of(config_of(method, **{**FILES, **changes}), load("imagenet", root), peers)


def test_decoding_ahead_changes_no_view(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image is decoded once, PREFETCH_STEPS in advance, whatever is expected in between."""
    stream = _stream(root)
    asked: list[list[int]] = []
    real = ImageFiles.crops

    def crops(self: ImageFiles, indices: Tensor, *others: Any) -> Any:
        asked.append(indices.tolist())
        return real(self, indices, *others)

    order = stream.order(0)
    assert order.shape == (3, 4) and sorted(order.flatten().tolist()) == list(range(12))
    alone = [stream.batch(order[step], 0, step)["views"] for step in range(3)]
    monkeypatch.setattr(ImageFiles, "crops", crops)
    for step in range(3):
        assert all(_same(stream.batch(order[step], 0, step)["views"], alone[step]))
        stream.prefetch(order, 0, step + 1)
        assert asked == order[: min(3, step + 1 + PREFETCH_STEPS)].tolist()
    stream.prefetch(order, 0, 0)  # what is expected and never fetched is forgotten
    stream.prefetch(order, 0, 2)
    assert list(stream._decoding) == [(0, 2)]


def test_files_are_cropped_once_and_each_view_by_itself(root: Path) -> None:
    """A crop depends on the image's index in the batch, not on other images."""
    stream = _stream(root)
    first, second = stream.batch(FILE_INDICES, 0, 0)["views"]
    assert first.shape == (4, 3, 224, 224) and not torch.equal(first, second)
    swapped, _ = stream.batch(torch.tensor([0, 7, 5, 9]), 0, 0)["views"]
    assert torch.equal(first[[0, 3]], swapped[[0, 3]]) and not torch.equal(first[[1, 2]], swapped[[2, 1]])


def test_without_crops_all_views_and_plain_images_are_central(root: Path) -> None:
    pixels = load("imagenet", root).train_images[FILE_INDICES] / 255
    mean, std = (torch.tensor(channels).view(3, 1, 1) for channels in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for view in _stream(root, crop_scale=1.0).batch(FILE_INDICES, 0, 0)["views"]:
        torch.testing.assert_close(view, (pixels - mean) / std)
    batch = _stream(root, "cr_vae", decoder="simvae_deconv").batch(FILE_INDICES, 0, 0)
    torch.testing.assert_close(batch["plain_pixels"][0], pixels)
    torch.testing.assert_close(batch["plain"][0], (pixels - mean) / std)


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_draw_of_files_what_one_draws(size: int, root: Path) -> None:
    """The concatenated views of the parts equal those of a single process."""
    whole, *ranks = (_stream(root, peers=peers) for peers in (Peers(), *(Peers(rank, size) for rank in range(size))))
    parts = zip(*(stream.batch(FILE_INDICES, 1, 0)["views"] for stream in ranks), strict=True)
    assert all(_same([torch.cat(views) for views in parts], whole.batch(FILE_INDICES, 1, 0)["views"]))


@for_each("method", IMAGE_METHODS)
def test_full_evaluations_hold_the_metrics_of_every_evaluation(method: str) -> None:
    """Among them those of trials on one class, which are asked for alone."""
    evaluations = task_of(method).full_evaluations(IMAGE_METHODS[method])
    full = [image_trial({"method": method, "epochs": 0, **keys}) for keys in evaluations]
    names = {name for config in full for name in metric_names(config, 10)}
    for keys in ({"knn": 3}, {"probe_epochs": 2}, {"normal_class": 3}, {"content_knn": 2}, {"gmm_n_init": 3}):
        if "normal_class" in keys and IMAGE_METHODS[method].needs_labels():
            continue
        config = image_trial({"method": method, "epochs": 0, **keys})
        assert set(metric_names(config, 10)) <= names


def test_a_random_batch_has_labels_of_all_classes_for_a_method_that_reads_them() -> None:
    config = image_trial({"method": "classifier"})
    _, shapes, batch = task_of("classifier").random_batch(config, METHODS["classifier"], 200) or (None, {}, {})
    assert shapes == {"views": (1, 8, 8), "logits": (10,)} and len(batch["views"]) == 1
    assert batch["labels"].dtype == torch.int64 and batch["labels"].unique().tolist() == [*range(10)]
    others = task_of("vje").random_batch(image_trial({"method": "vje"}), METHODS["vje"], 4)
    assert others and others.shapes == {"views": (1, 8, 8)} and others.batch.keys() == {"views"}


def test_data_that_are_kept_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    real = preflight.load

    def load(name: str, data: Path) -> object:
        loaded.append(name)
        return real(name, data)

    preflight._kept.cache_clear()
    monkeypatch.setattr(preflight, "load", load)
    for seed in range(3):
        Images().keep_data(image_trial({"method": "vje", "seed": seed}), HERE)
    config = image_trial({"method": "vje"})
    assert loaded == ["digits"] and preflight.dataset_of(config, HERE) is preflight.dataset_of(config, HERE)
