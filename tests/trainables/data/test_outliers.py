"""Outliers have the shape and levels of the test images, are always the same, and differ as their names say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.cases import for_each
from tests.image_files import write_imagenet
from trainables.data import outliers as module
from trainables.data.datasets.catalog import DATASETS, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.errors import DataError
from trainables.data.outliers import CORRUPTIONS, NOISE_STD, OUTLIERS, load_outliers
from trainables.data.splits import Split, all_classes_split, held_out_split, one_class_split


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", Path())


def of_digits(name: str, digits: Dataset, split: Split | None = None) -> Tensor:
    return load_outliers(name, digits, split or all_classes_split(digits), Path())


@pytest.mark.slow
@for_each("name", OUTLIERS)
def test_all_outliers_of_a_set_fit_it(root: Path, name: str) -> None:
    digits32 = load("digits32", root)
    split = held_out_split(digits32, (0, 1))
    if name == "digits32" or (name in DATASETS and DATASETS[name].declaration.shape[0] == 1):
        with pytest.raises(ValueError):
            load_outliers(name, digits32, split, root)
        return
    images = load_outliers(name, digits32, split, root)
    assert images.shape[1:] == split.test_images.shape[1:] and images.dtype == torch.uint8 and len(images) > 0
    assert images.max() > 100
    assert torch.equal(images, load_outliers(name, digits32, split, root))


def test_another_set_of_equal_size_is_its_test_images(root: Path) -> None:
    cifar, svhn = load("cifar10", root), load("svhn", root)
    assert torch.equal(load_outliers("svhn", cifar, all_classes_split(cifar), root), svhn.test_images[:])


@pytest.mark.parametrize(("name", "trained"), [("stl10", "svhn"), ("svhn", "stl10")])
def test_another_size_is_resized_as_pil_does(root: Path, name: str, trained: str) -> None:
    dataset, other = load(trained, root), load(name, root)
    images = load_outliers(name, dataset, all_classes_split(dataset), root)
    side = dataset.test_images.shape[3]
    for actual, image in zip(images, other.test_images[:], strict=True):
        pil = Image.fromarray(image.permute(1, 2, 0).numpy())
        expected = np.asarray(pil.resize((side, side), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.abs(expected.astype(int) - actual.numpy()).max() <= 1


def test_levels_become_those_of_the_set(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """White stays white, black stays black, and converting back loses nothing."""
    bright = replace(digits, name="bright", levels=255, test_images=(digits.test_images[:] * (255 / 16)).round().byte())
    monkeypatch.setattr(module, "load", lambda name, root: bright if name == "svhn" else digits)
    monkeypatch.setitem(DATASETS, "svhn", DATASETS["digits"])
    assert torch.equal(of_digits("svhn", digits), digits.test_images[:])
    assert torch.equal(load_outliers("digits", bright, all_classes_split(bright), Path()), bright.test_images[:])


def test_held_out_images_are_those_of_the_split(digits: Dataset) -> None:
    split = held_out_split(digits, (3,))
    assert torch.equal(of_digits("held_out", digits, split), digits.test_images[:][digits.test_labels == 3])


def test_inversion_is_its_own_inverse(digits: Dataset) -> None:
    assert torch.equal(16 - of_digits("inverted", digits), digits.test_images[:])


def test_shuffled_images_have_the_same_pixels_elsewhere(root: Path) -> None:
    cifar = load("cifar10", root)
    actual, test = (
        load_outliers("shuffled", cifar, all_classes_split(cifar), root).flatten(2),
        cifar.test_images[:].flatten(2),
    )
    for shuffled, image in zip(actual, test, strict=True):
        assert sorted(shuffled.T.tolist()) == sorted(image.T.tolist())
        assert (shuffled == image).all(dim=0).float().mean() < 0.05
    code = torch.arange(64, dtype=torch.float32).view(1, 1, 8, 8).expand(2, 3, 8, 8)
    first, second = module.shuffled(code, torch.Generator().manual_seed(0))
    assert (first[0] == first[1]).all() and (first != second).any()


def test_noise_has_its_standard_deviation() -> None:
    grey = torch.full((50, 3, 32, 32), 0.5)
    noise = module.noise(grey, torch.Generator().manual_seed(0)) - grey
    assert noise.std().item() == pytest.approx(NOISE_STD, rel=0.01) and abs(noise.mean().item()) < 0.002


def test_blurring_keeps_what_is_flat_and_removes_what_is_fine() -> None:
    flat = torch.full((1, 1, 32, 32), 0.3)
    generator = torch.Generator()
    torch.testing.assert_close(module.blurred(flat, generator), flat)
    checkers = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).float()[None, None]
    assert checkers.std() > 0.49 and module.blurred(checkers, generator)[..., 4:-4, 4:-4].std() < 0.02
    wave = torch.sin(torch.arange(32) * (2 * torch.pi / 32)).expand(1, 1, 32, 32)
    assert module.blurred(wave, generator).std() > 0.8 * wave.std()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruptions_are_of_the_inliers_alone(digits: Dataset, name: str) -> None:
    split = one_class_split(digits, 3)
    alone = replace(all_classes_split(digits), test_images=digits.test_images[:][digits.test_labels == 3])
    assert torch.equal(of_digits(name, digits, split), of_digits(name, digits, alone))
    assert of_digits(name, digits).max() <= 16 and (of_digits(name, digits) != digits.test_images[:]).any()


@pytest.mark.parametrize("name", ["noise", "shuffled"])
def test_corruptions_leave_the_global_generator_alone(digits: Dataset, name: str) -> None:
    before = torch.get_rng_state()
    of_digits(name, digits)
    assert (torch.get_rng_state() == before).all()


def test_a_folder_gives_at_most_MAX_OUTLIERS_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_imagenet(tmp_path)
    imagenet = load("imagenet", tmp_path)
    split = all_classes_split(imagenet)
    assert torch.equal(255 - load_outliers("inverted", imagenet, split, tmp_path), imagenet.test_images[:])
    monkeypatch.setattr(module, "MAX_OUTLIERS", 3)
    assert torch.equal(255 - load_outliers("inverted", imagenet, split, tmp_path), imagenet.test_images[:][[0, 2, 4]])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("noisy", "no outliers 'noisy' (did you mean 'noise'?); there are: celeba, cifar10, cifar100, digits, "
         "digits32, digits_tint, fashion_mnist, mnist, mnist32, stl10, svhn, held_out, noise, inverted, shuffled, "
         "blurred"),
        ("imagenet", "no outliers 'imagenet'"),
        ("digits", "outliers must come from another data set than the training images, but got 'digits' for both"),
        ("digits32", "outliers must have as many channels as the images of digits, 1, but those of 'digits32' have 3"),
        ("held_out", "the outliers 'held_out' need held-out classes, but got held_out=''"),
    ],
)  # fmt: skip
def test_unsuitable_outliers_are_refused(digits: Dataset, name: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        of_digits(name, digits)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_a_data_set_that_cannot_be_loaded_is_refused(root: Path) -> None:
    (root / "test_32x32.mat").write_bytes(b"half")
    cifar = load("cifar10", root)
    with pytest.raises(DataError, match="svhn is corrupt"):
        load_outliers("svhn", cifar, all_classes_split(cifar), root)
