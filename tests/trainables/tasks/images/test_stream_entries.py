"""The entries of a batch of images: views and plain images, prepared for the encoder and in [0, 1].

Shapes: B images of C channels, H by W pixels.
"""

import pytest
import torch

from tests.trainables.tasks.images.streams import config_of, digits, stream_of
from trainables.catalog import METHODS
from trainables.contract import Batch, ImageMethod
from trainables.data.splits import one_class_split
from trainables.tasks.images.stream import ImageStream

INDICES = torch.tensor([3, 0, 7, 19])
PIXELS = one_class_split(digits(), 3).train_images[INDICES] / 16
MEAN, STD = 0.305470, 0.376049


class Everything(ImageMethod):
    """A method that reads all entries, and one view of each image."""

    reads = frozenset({"views", "view_pixels", "plain", "plain_pixels"})

    @classmethod
    def view_count(cls, config: object) -> int:
        return 1


def _batch(**changes: float | bool) -> Batch:
    stream = ImageStream(config_of(**changes), Everything, one_class_split(digits(), 3), "cpu")
    return stream.batch(INDICES, 0, 0)


@pytest.mark.parametrize(("name", "count"), [("vje", 2), ("simvae", 10), ("vae", 1), ("cr_vae", 1)])
def test_a_batch_has_what_the_method_reads_and_as_many_views_as_it_says(name: str, count: int) -> None:
    method = METHODS[name]
    assert issubclass(method, ImageMethod)
    batch = stream_of(config_of(name)).batch(INDICES, 0, 0)
    assert batch.keys() == method.reads
    sizes = {"views": count, "view_pixels": count, "plain": 1, "plain_pixels": 1}
    assert {entry: len(images) for entry, images in batch.items()} == {entry: sizes[entry] for entry in batch}
    assert {image.shape for images in batch.values() for image in images} == {(4, 1, 8, 8)}


def test_the_number_of_views_is_a_hyperparameter() -> None:
    assert len(stream_of(config_of("simvae", views=4)).batch(INDICES, 0, 0)["views"]) == 4


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
