"""Streams of image files: decoded ahead, each once, and cropped while they are decoded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.image_files import write_imagenet
from tests.trainables.tasks.images.streams import FILES, config_of, stream_of
from trainables.data.datasets.catalog import load
from trainables.data.image_files import ImageFiles
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.sections import Value
from trainables.tasks.images.stream import PREFETCH_STEPS, ImageStream

INDICES = torch.tensor([0, 5, 7, 9])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_imagenet(tmp_path)
    return tmp_path


def _stream(root: Path, method: str = "vje", peers: Peers = SINGLE_PROCESS, **changes: Value) -> ImageStream:
    return stream_of(config_of(method, **{**FILES, **changes}), load("imagenet", root), peers)


def _same(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


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
        assert _same(stream.batch(order[step], 0, step)["views"], alone[step])
        stream.prefetch(order, 0, step + 1)
        assert asked == order[: min(3, step + 1 + PREFETCH_STEPS)].tolist()
    stream.prefetch(order, 0, 0)  # what is expected and never fetched is forgotten
    stream.prefetch(order, 0, 2)
    assert list(stream._decoding) == [(0, 2)]


def test_files_are_cropped_once_and_each_view_by_itself(root: Path) -> None:
    """A crop depends on the image's index in the batch, not on other images."""
    stream = _stream(root)
    first, second = stream.batch(INDICES, 0, 0)["views"]
    assert first.shape == (4, 3, 224, 224) and not torch.equal(first, second)
    swapped, _ = stream.batch(torch.tensor([0, 7, 5, 9]), 0, 0)["views"]
    assert torch.equal(first[[0, 3]], swapped[[0, 3]]) and not torch.equal(first[[1, 2]], swapped[[2, 1]])


def test_without_crops_all_views_and_plain_images_are_central(root: Path) -> None:
    pixels = load("imagenet", root).train_images[INDICES] / 255
    mean, std = (torch.tensor(channels).view(3, 1, 1) for channels in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    for view in _stream(root, crop_scale=1.0).batch(INDICES, 0, 0)["views"]:
        torch.testing.assert_close(view, (pixels - mean) / std)
    batch = _stream(root, "cr_vae", decoder="simvae_deconv").batch(INDICES, 0, 0)
    torch.testing.assert_close(batch["plain_pixels"][0], pixels)
    torch.testing.assert_close(batch["plain"][0], (pixels - mean) / std)


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_draw_what_one_draws(size: int, root: Path) -> None:
    """The concatenated views of the parts equal those of a single process."""
    whole, *ranks = (_stream(root, peers=peers) for peers in (Peers(), *(Peers(rank, size) for rank in range(size))))
    parts = zip(*(stream.batch(INDICES, 1, 0)["views"] for stream in ranks), strict=True)
    assert _same(tuple(torch.cat(views) for views in parts), whole.batch(INDICES, 1, 0)["views"])
