"""Data sets of the user's own are read as they are, identified by their content, and refused by one line."""

import importlib.util
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from tests.cases import for_each
from trainables import own_code
from trainables.data.datasets import parts
from trainables.data.datasets.dataset import UNLABELLED, listed
from trainables.data.datasets.own_data import forget_own_data, list_own_data, load_own_data
from trainables.data.errors import DataError
from trainables.data.image_files import LazyImages

NAME = "my_data:Cells"
HERE = Path()
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (30, 20, 24, 4), dtype=np.uint8)
LABELS = np.arange(30) % 3


class Cells(Dataset[tuple[Any, int]]):
    """Twenty training and ten test images."""

    def __init__(self, train: bool) -> None:
        part = slice(0, 20) if train else slice(20, 30)
        self.images, self.labels = IMAGES[part], LABELS[part]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], int(self.labels[index])


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own_code, "_imported", {})
    forget_own_data()
    yield
    forget_own_data()


def _own(made: object) -> str:
    """The name of a data set."""
    own_code._imported[NAME] = made
    forget_own_data()
    return NAME


def _refusal(made: object, whole: bool = True) -> str:
    with pytest.raises(DataError) as refused:
        list_own_data(_own(made), HERE, whole)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_class_is_read_as_it_is() -> None:
    listing = list_own_data(_own(Cells), HERE, whole=True)
    assert listed(listing.digest) is listing and listing.shape == (4, 20, 24) and listing.repeated == 0
    assert listing.classes == ("0", "1", "2") and (listing.train, listing.test) == ((7, 7, 6), (3, 3, 4))
    dataset = load_own_data(NAME, HERE, listing.digest, (4, 20, 24))
    assert isinstance(dataset.train_images, Tensor) and dataset.levels == 255
    assert torch.equal(dataset.train_images, torch.from_numpy(IMAGES[:20]).permute(0, 3, 1, 2))
    pixels = IMAGES[:20].reshape(-1, 4) / 255
    np.testing.assert_allclose(dataset.mean, pixels.mean(0))
    np.testing.assert_allclose(dataset.std, pixels.std(0))
    assert torch.equal(dataset.test_labels, torch.from_numpy(LABELS[20:]))


def _pairs() -> object:
    return (IMAGES[:20], LABELS[:20]), (IMAGES[20:], LABELS[20:])


def _tensors() -> object:
    images = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    return (images[:20], torch.from_numpy(LABELS[:20])), TensorDataset(images[20:], torch.from_numpy(LABELS[20:]))


@pytest.mark.parametrize("function", [_pairs, _tensors])
def test_what_a_function_returns_is_the_same_data_set(function: Callable[[], object]) -> None:
    digest = list_own_data(_own(Cells), HERE, whole=False).digest
    assert list_own_data(_own(function), HERE, whole=True).digest == digest


def test_files_of_numpy_are_the_same_data_set(tmp_path: Path) -> None:
    for part, chosen in (("train", slice(0, 20)), ("test", slice(20, 30))):
        np.save(tmp_path / f"{part}_images.npy", IMAGES[chosen])
        np.save(tmp_path / f"{part}_labels.npy", LABELS[chosen])
    digest = list_own_data(_own(Cells), HERE, whole=False).digest
    assert list_own_data("arrays", tmp_path, whole=True).digest == digest
    np.save(tmp_path / "train_groups.npy", np.arange(20) // 2)
    table = np.zeros(20, dtype=[("stain", "i4"), ("plate", "i4")])
    np.save(tmp_path / "train_attributes.npy", table)
    np.save(tmp_path / "test_attributes.npy", table[:10])
    forget_own_data()
    dataset = load_own_data("arrays", tmp_path, "", (4, 20, 24))
    assert dataset.groups is not None and len(dataset.groups.unique()) == 10
    assert [*dataset.attributes] == ["stain", "plate"] and dataset.attributes["plate"].classes == 1
    (tmp_path / "test_images.npy").unlink()
    forget_own_data()
    with pytest.raises(
        DataError, match=r"dataset=arrays needs test_images.npy in .*; put some images that are not used"
    ):
        list_own_data("arrays", tmp_path, whole=False)


@pytest.mark.parametrize("change", ["pixel", "label", "group", "count", "dtype", "shape"])
def test_other_data_have_another_digest(change: str) -> None:
    def data(changed: bool) -> Callable[[], object]:
        images: Any = IMAGES[:20].copy()
        labels, groups = LABELS[:20].copy(), np.arange(20)
        if changed:
            images[7, 3, 3, 1] ^= change == "pixel"
            labels[7] = (labels[7] + (change == "label")) % 3
            groups[3] += change == "group"
            keep = 19 if change == "count" else 20
            images, labels, groups = images[:keep], labels[:keep], groups[:keep]
            images = images[:, :-1] if change == "shape" else images
        tested: Any = IMAGES[20:, :-1] if changed and change == "shape" else IMAGES[20:]
        if changed and change == "dtype":
            images, tested = (array.astype(np.float32) / 255 for array in (images, tested))
        return lambda: ({"images": images, "labels": labels, "groups": groups}, (tested, LABELS[20:]))

    digests = {list_own_data(_own(data(changed)), HERE, whole=False).digest for changed in (False, True)}
    assert len(digests) == 2
    with pytest.raises(DataError, match=r"image_digest=|must match the images"):
        load_own_data(NAME, HERE, "0" * 12, (4, 20, 24))


def test_images_beyond_memory_are_read_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_own_data(_own(Cells), HERE, "", (4, 20, 24))
    monkeypatch.setattr(parts, "MAX_BYTES", 0)
    dataset = load_own_data(_own(Cells), HERE, "", (4, 20, 24))
    images = dataset.train_images
    assert isinstance(images, LazyImages) and isinstance(whole.train_images, Tensor)
    assert torch.equal(images[torch.tensor([3, 11, 0])], whole.train_images[[3, 11, 0]])
    mask = torch.arange(20) % 2 == 0
    assert torch.equal(images.select(mask)[:], whole.train_images[mask]) and images.shape == whole.train_images.shape
    assert dataset.mean == whole.mean and torch.equal(dataset.train_labels, whole.train_labels)


def test_labels_are_known_without_images_where_the_data_set_has_them() -> None:
    """A plan decodes the sampled images alone."""
    read: list[int] = []

    class Counted(Cells):
        def __init__(self, train: bool) -> None:
            super().__init__(train)
            self.images, self.labels = np.repeat(self.images, 100, 0), np.repeat(self.labels, 100)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            read.append(index)
            return super().__getitem__(index)

    listing = list_own_data(_own(Counted), HERE, whole=False)
    assert len(read) < 3 * parts.SAMPLED and sum(listing.train) == 2000


class Mapped(Cells):
    """Its items have other labels than its attributes, as by a `target_transform`."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, label = super().__getitem__(index)
        return image, self.other[label]

    other: Any = (2, 0, 1)


class MappedToVectors(Mapped):
    other = torch.eye(3)[[2, 0, 1]]


@for_each("made", [Mapped, MappedToVectors])
@for_each("fits", [True, False])
def test_labels_are_those_of_items(made: type[Cells], fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_BYTES", parts.MAX_BYTES if fits else 0)
    dataset = load_own_data(_own(made), HERE, "", (4, 20, 24))
    assert dataset.train_labels.tolist() == [(2, 0, 1)[label] for label in LABELS[:20]]
    assert dataset.test_labels.tolist() == [(2, 0, 1)[label] for label in LABELS[20:]]
    assert list_own_data(NAME, HERE, whole=False).digest == list_own_data(NAME, HERE, whole=True).digest


def test_what_items_give_beside_images_need_not_be_a_label() -> None:
    class Masked(Cells):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return self.images[index], self.images[index] > 9

    assert list_own_data(_own(Masked), HERE, True).digest == list_own_data(_own(Cells), HERE, True).digest


@for_each("labels", [LABELS.astype(float), LABELS.astype(np.uint64), np.eye(3)[LABELS], np.eye(3, dtype=bool)[LABELS]])
def test_labels_are_numbers_or_vectors_with_a_single_1(labels: Any) -> None:
    data = (IMAGES[:20], labels[:20]), (IMAGES[20:], labels[20:])
    listing = list_own_data(_own(lambda: data), HERE, whole=True)
    assert listing.digest == list_own_data(_own(Cells), HERE, whole=True).digest
    assert listing.about.endswith(", one-hot labels") == (labels.ndim == 2)


@for_each(("mode", "channels"), [("P", 3), ("1", 1), ("L", 1), ("CMYK", 3), ("RGBA", 4), ("LA", 2)])
def test_pictures_have_their_colours(mode: str, channels: int) -> None:
    """The numbers of a palette are none."""
    pictures = [Image.fromarray(image).quantize(8) if mode == "P" else image for image in IMAGES[..., :3]]

    class Pictures(Cells):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            picture = pictures[index]
            return picture if isinstance(picture, Image.Image) else Image.fromarray(picture).convert(mode), 0

    dataset = load_own_data(_own(Pictures), HERE, "", (channels, 20, 24))
    if mode == "P":
        assert np.array_equal(dataset.train_images[:][0].permute(1, 2, 0), np.asarray(pictures[0].convert("RGB")))


def test_a_rounding_error_of_a_pixel_is_clipped() -> None:
    images = load_own_data(_own(lambda: _floats(1.000001)), HERE, "", (3, 8, 9)).train_images
    assert images[:].max() == 1 and load_own_data(_own(lambda: _floats(-1e-7)), HERE, "", (3, 8, 9)).levels == 255


def test_floats_and_images_without_labels() -> None:
    values = (IMAGES / 255).astype(np.float64)
    dataset = load_own_data(_own(lambda: (values[:20], values[20:])), HERE, "", (4, 20, 24))
    assert dataset.classes == () and set(dataset.train_labels.tolist()) == {UNLABELLED}
    assert isinstance(dataset.train_images, Tensor) and dataset.train_images.dtype == torch.float32
    np.testing.assert_allclose(dataset.std, values[:20].reshape(-1, 4).std(0), rtol=1e-5)


@for_each(
    ("shape", "read"),
    [
        ((6, 3, 8, 9), (3, 8, 9)),
        ((6, 8, 9, 3), (3, 8, 9)),
        ((6, 8, 9), (1, 8, 9)),
        ((6, 16, 16, 4), (4, 16, 16)),  # channels could be first, too, but then images are no squares
        ((6, 16, 8, 8), (16, 8, 8)),
        ((6, 40, 9, 16), (16, 40, 9)),
    ],
)
def test_channels_are_first_or_last(shape: tuple[int, ...], read: tuple[int, int, int]) -> None:
    images = RNG.integers(0, 256, shape, dtype=np.uint8)
    dataset = load_own_data(_own(lambda: (images, images)), HERE, "", read)
    flat = images.reshape(len(images), -1)
    assert np.array_equal(np.sort(dataset.train_images[:].flatten(1).numpy()), np.sort(flat))
    pixel = images[1, 2, 4] if images.ndim == 3 else images[1, :, 2, 4] if read[0] == shape[1] else images[1, 2, 4]
    assert np.array_equal(dataset.train_images[:][1, :, 2, 4].numpy(), np.atleast_1d(pixel))


def test_repeated_images_are_counted() -> None:
    assert list_own_data(_own(lambda: (IMAGES[:20], IMAGES[15:30])), HERE, whole=True).repeated == 5


def _floats(value: float) -> object:
    images = np.full((20, 8, 9, 3), 0.5)
    images[13, 2, 2, 1] = value
    return images, images[:5]


class Random(Cells):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        return RNG.integers(0, 256, (20, 24, 4), dtype=np.uint8), 0


class Ragged(Cells):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        return IMAGES[index][:, : 22 if index == 5 else 24], 0


class Broken(Cells):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        raise OSError("no such cell")


class Relabelled(Cells):
    """The label of an image differs that a plan does not look at."""

    def __init__(self, train: bool) -> None:
        super().__init__(train)
        self.images, self.labels = np.tile(self.images, (100, 1, 1, 1)), np.tile(self.labels, 100)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], 1 if index == 3 else int(self.labels[index])


class Undecided(Cells):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        Undecided.read = (Undecided.read + 1) % 3
        return IMAGES[index], Undecided.read

    read = 0


def _zeros(*shape: int) -> Any:
    """An array that takes one byte."""
    return np.broadcast_to(np.uint8(0), shape)


def _items(image: Any = IMAGES[0], label: Any = 0, count: int = 20) -> object:
    """A data set that says how many items it has, each of this image and label."""

    class Items:
        def __init__(self, train: bool) -> None: ...

        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return image, label

    return Items


class Cut(Cells):
    """A file that is decoded later than it is opened."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        file = io.BytesIO()
        Image.fromarray(IMAGES[index, :, :, :3]).save(file, "PNG")
        return Image.open(io.BytesIO(file.getvalue()[: 300 if index == 2 else None])), 0


class Untrained:
    def __init__(self, part: str) -> None: ...


def _labelled(labels: object) -> object:
    return (IMAGES[:20], labels), (IMAGES[20:], LABELS[20:])


REFUSALS: dict[str, tuple[object, str]] = {
    "class": (Untrained, "must have a parameter `train`, True or False, but its parameters are: part"),
    "value": (3, "must be a class or a function, but is of type int"),
    "one part": (lambda: IMAGES, "must return two parts, (training images, test images), each images or a pair"),
    "text": (lambda: ("a", "b"), "must be a map-style data set (with __len__ and __getitem__), a tensor, or a pair"),
    "empty": (lambda: (IMAGES[:0], IMAGES), "the training images of my_data:Cells must be at least one, but there are"),
    "axes": (lambda: (IMAGES[0, 0], IMAGES), "1 to 16 channels and sides of at least 4 pixels, or [N, height, width],"),
    "many channels": (lambda: (np.zeros((4, 40, 40, 40), np.uint8),) * 2, "but have the shape [4, 40, 40, 40]"),
    "both ways": (lambda: (np.zeros((4, 8, 8, 8), np.uint8),) * 2, "[4, 8, 8, 8] can have its channels first or last"),
    "ints": (lambda: (IMAGES.astype(np.int32),) * 2, "must be uint8, or floats in [0, 1], but are int32"),
    "NaN": (lambda: _floats(np.nan), "floats in [0, 1], but image 13 has NaN or infinity; scale the pixels first"),
    "infinity": (lambda: _floats(np.inf), "image 13 has NaN or infinity"),
    "range": (lambda: _floats(7.0), "image 13 has 0.5 to 7; scale the pixels first"),
    "sizes": (lambda: (IMAGES[:20], IMAGES[20:, :-2]), "must have the same size, but have 4x20x24 and 4x18x24"),
    "types": (lambda: (IMAGES[:20], IMAGES[20:] / 255), "must have the same type, but have torch.uint8 and torch.flo"),
    "gap": (lambda: _labelled([0, 5] * 10), "must contain each of its 6 classes, but class 3 has no image; number the"),
    "floating labels": (
        lambda: _labelled([1, 0.5] * 10),
        "whole numbers from 0 on, or -1 for none, but image 1 has 0.5",
    ),
    "nearly whole": (lambda: _labelled([1, 1.000001] * 10), "or -1 for none, but image 1 has 1.000001"),
    "undefined labels": (lambda: _labelled([0, np.nan] * 10), "or -1 for none, but image 1 has nan"),
    "wide labels": (lambda: _labelled(np.array([0, 2**64 - 1] * 10, np.uint64)), "image 1 has 18446744073709551615"),
    "far label": (lambda: _labelled([0] * 19 + [1_700_000_000]), "each of its 1700000001 classes, but class 3 has no"),
    "far attribute": (
        lambda: ({"images": IMAGES, "attributes": {"year": np.arange(30) + 10**9}},) * 2,
        "the attribute year of my_data:Cells must be numbered from 0 on, with fewer values than images, but the ",
    ),
    "two-hot": (lambda: _labelled(np.ones((20, 3))), "must be as many as the images, [20], but have the shape [20, 3]"),
    "large": (
        lambda: (np.broadcast_to(IMAGES[:1, :1, :1, :1], (9, 4_200, 4_200, 1)),) * 2,
        "at most 16 MiB each, but",
    ),
    "large item": (_items(_zeros(10**6, 10**6)), "16 MiB each, but image 0 is 1x1000000x1000000 of uint8; make them"),
    "large tensor": (_items(torch.zeros(()).expand(3, 10**6, 10**6)), "image 0 is 3x1000000x1000000 of float32; make"),
    "large picture": (_items(Image.new("1", (8_200, 2_100))), "16 MiB each, but image 0 is 1x2100x8200 of uint8; make"),
    "long label": (_items(label=_zeros(10**12)), "vectors of at most 65536 classes, but label 0 has 1000000000000"),
    "long tensor": (_items(label=torch.zeros(()).expand(10**12)), "at most 65536 classes, but label 0 has 10000000000"),
    "long range": (_items(label=range(10**12)), "vectors of at most 65536 classes, but label 0 has 1000000000000"),
    "long labels": (lambda: _labelled(_zeros(20, 10**12)), "at most 65536 classes, but label 0 has 1000000000000"),
    "many labels": (
        lambda: _labelled(range(10**12)),
        "must be as many as the images, [20], but have the shape [100000",
    ),
    "many items": (_items(count=10**12), "my_data:Cells must be at most 100000000, but there are 1000000000000"),
    "many images": (lambda: (_zeros(10**12, 8, 8),) * 2, "must be at most 100000000, but there are 1000000000000"),
    "many classes": (
        lambda: ({"images": IMAGES, "classes": range(10**12)},) * 2,
        "the classes of the training images of my_data:Cells must be at most 65536, but there are more",
    ),
    "other label": (Relabelled, "must have one label each, but image 3 has 1 and 0 when it is read again or in the"),
    "random label": (Undecided, "the training images of my_data:Cells must have one label each, but image 0 has"),
    "cut": (Cut, "image 2 of the training images of my_data:Cells cannot be read: OSError: image file is truncated"),
    "names": (lambda: _labelled(["cat"] * 20), "must be whole numbers from 0 on, but are of type <U3, such as"),
    "few labels": (lambda: _labelled([0, 1]), "must be as many as the images, [20], but have the shape [2]"),
    "negative": (lambda: _labelled([-2] * 20), "must be whole numbers from 0 on, or -1 for none, but image 0 has -2"),
    "one side": (lambda: (IMAGES[:20], (IMAGES[20:], LABELS[20:])), "must have labels, because the test images of"),
    "unlabelled test": (lambda: ((IMAGES[:20], LABELS[:20]), (IMAGES[20:], [-1] * 10)), "from 0 on, but 10 have -1"),
    "random": (Random, "must be the same each time they are read, but image 0 differs; for random views use"),
    "ragged": (Ragged, "must have one shape and type, but image 5 is 4x20x22 of uint8 and image 0 4x20x24 of uint8"),
    "broken": (Broken, "image 0 of the training images of my_data:Cells cannot be read: OSError: no such cell"),
    "raises": (lambda train: 1 / 0, "the data set my_data:Cells raises ZeroDivisionError: division by zero"),
    "key": (lambda: ({"imgs": IMAGES}, IMAGES), "may only have the keys images, labels, groups, attributes, classes"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_no_data_set_is_refused_in_one_line(case: str) -> None:
    made, law = REFUSALS[case]
    assert law in _refusal(made)


def test_a_class_is_given_the_folder_if_it_asks_for_it() -> None:
    asked: list[tuple[object, bool]] = []

    class Rooted(Cells):
        def __init__(self, root: str, train: bool) -> None:
            asked.append((root, train))
            super().__init__(train)

    list_own_data(_own(Rooted), Path("/data"), whole=False)
    assert asked == [("/data", True), ("/data", False)]


def test_a_data_set_of_hugging_face_is_read_from_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the package datasets, an extra, is not installed")
    features = datasets.Features(
        {
            "picture": datasets.Image(),
            "label": datasets.ClassLabel(names=["a", "b", "c"]),
            "number": datasets.Value("int32"),
        }
        | {"stain": datasets.ClassLabel(names=["x", "y"])}
    )

    def split(chosen: slice) -> object:
        count = len(LABELS[chosen])
        pictures = [Image.fromarray(image) for image in IMAGES[chosen, :, :, :3]]
        columns = {"picture": pictures, "label": LABELS[chosen], "number": [0] * count, "stain": [0, 1] * (count // 2)}
        return datasets.Dataset.from_dict(columns, features=features)

    whole = datasets.DatasetDict({"train": split(slice(0, 20)), "test": split(slice(20, 30))})
    whole.save_to_disk(str(tmp_path / "saved"))
    listing = list_own_data("huggingface", tmp_path / "saved", whole=True)
    assert listing.classes == ("a", "b", "c") and listing.shape == (3, 20, 24)
    dataset = load_own_data("huggingface", tmp_path / "saved", listing.digest, listing.shape)
    assert torch.equal(dataset.test_images[:], torch.from_numpy(IMAGES[20:, :, :, :3]).permute(0, 3, 1, 2))
    assert torch.equal(dataset.train_labels, torch.from_numpy(LABELS[:20])) and [*dataset.attributes] == ["stain"]
    whole["train"].save_to_disk(str(tmp_path / "single"))
    for folder, law in (
        ("single", "needs the splits train and test in"),
        ("none", "must be a data set written by save_"),
    ):
        forget_own_data()
        with pytest.raises(DataError, match=law):
            list_own_data("huggingface", tmp_path / folder, whole=False)


@pytest.mark.skipif(bool(importlib.util.find_spec("datasets")), reason="the package datasets is installed")
def test_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset=huggingface needs the package datasets: pip install 'sweeper\[hugg"):
        list_own_data("huggingface", tmp_path, whole=False)
