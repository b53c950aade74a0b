"""The order of images and their views derive from the trial's own content: seed and data, and nothing else.

Shapes: B images of C channels, H by W pixels; J views.
"""

import pytest
import torch
from torch import Tensor

from tests.trainables.tasks.images.streams import THREE, config_of, digits, stream_of
from trainables.config import stream_key
from trainables.image_trial import Data, ImageTrial
from trainables.learners.data_parallel import Peers
from trainables.sections import Value
from trainables.tasks.images.stream import select_classes, steps_per_epoch
from trainables.training.stacks import build_models

INDICES = torch.arange(20)


def _drawn(config: ImageTrial, epoch: int = 2, step: int = 1) -> list[Tensor]:
    """What a trial draws: order, views, weights (without biases and norms, which may be constants)."""
    stream = stream_of(config)
    order = stream.order(epoch)
    (model,) = build_models([config], {"views": (1, 8, 8)})
    weights = [parameter.detach() for parameter in model.parameters() if parameter.dim() > 1]
    return [order, *stream.batch(order[step], epoch, step)["views"], *weights]


def _same(left: list[Tensor], right: list[Tensor]) -> list[bool]:
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
        assert all(_same(joined, list(images)))
