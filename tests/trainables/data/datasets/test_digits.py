"""The digits never change, enlarged and tinted ones are the same images, and their styles do not reveal the digit."""

import colorsys
import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from PIL import Image
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score
from torch import Tensor

from trainables.data.datasets import digits as digits_module
from trainables.data.datasets.catalog import load
from trainables.data.datasets.digits import ink, quintiles, slant


def test_digits_are_the_embedded_images(tmp_path: Path) -> None:
    digits = load("digits", tmp_path / "absent")
    assert digits.train_images.shape == (1260, 1, 8, 8) and digits.test_images.shape == (537, 1, 8, 8)
    assert digits.train_images[:].dtype == torch.uint8 and digits.train_labels.dtype == torch.int64
    assert digits.train_images[:].max() == digits.levels == 16
    assert not (tmp_path / "absent").exists()


def test_digits_split_is_stratified_and_loses_nothing(tmp_path: Path) -> None:
    digits = load("digits", tmp_path)
    train, test = digits.train_labels.bincount(), digits.test_labels.bincount()
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert ((test / (train + test) - 0.3).abs() < 0.005).all()


def test_digits_split_is_disjoint_and_in_file_order(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load("digits", tmp_path)
    images, labels = load_digits(return_X_y=True)
    zeros = images[labels == 0]
    test = [position for position in range(len(zeros)) if position % 10 in (2, 5, 8)]
    train = [position for position in range(len(zeros)) if position % 10 not in (2, 5, 8)]
    assert (digits.test_images[digits.test_labels == 0].flatten(1).numpy() == zeros[test]).all()
    assert (digits.train_images[digits.train_labels == 0].flatten(1).numpy() == zeros[train]).all()


@pytest.mark.parametrize("file", [digits_module.FILE, Path("absent.csv.gz")])
def test_digits_split_never_changes(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from scikit-learn's file, or with scikit-learn if there is no such file."""
    monkeypatch.setattr(digits_module, "FILE", file)
    digits = digits_module.digits(tmp_path)
    parts = (digits.train_images[:], digits.train_labels.byte(), digits.test_images[:], digits.test_labels.byte())
    checksum = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    assert checksum == "1ea76b6cf9f3b2cdd48de46575279b9cd417827dd4ae2d285e30dea23eea4464"


def test_digits_normalisation_is_that_of_the_training_images(tmp_path: Path) -> None:
    digits = load("digits", tmp_path)
    pixels = digits.train_images[:] / 16
    assert digits.mean[0] == pytest.approx(pixels.mean().item(), abs=1e-5)
    assert digits.std[0] == pytest.approx(pixels.std(correction=0).item(), abs=1e-5)


@pytest.mark.slow
def test_to_train_on_digits_imports_neither_torchvision_nor_sklearn() -> None:
    """Importing either takes seconds in every training process."""
    code = (
        "import sys, trainables.worker.worker; from pathlib import Path; from trainables.data.datasets import catalog"
    )
    completed = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}; catalog.load('digits', Path()); sys.exit(bool({{'torchvision', 'sklearn'}} & {{*sys.modules}}))",
        ]
    )
    assert completed.returncode == 0


def test_enlarged_digits_keep_split_and_labels(tmp_path: Path) -> None:
    small, large = load("digits", tmp_path), load("digits32", tmp_path)
    assert large.train_images.shape == (1260, 3, 32, 32) and large.test_images.shape == (537, 3, 32, 32)
    assert large.train_images[:].dtype == torch.uint8 and large.levels == 255
    assert (large.train_labels == small.train_labels).all() and (large.test_labels == small.test_labels).all()
    assert (large.train_images[:] == large.train_images[:][:, :1]).all()


def test_digits_are_enlarged_as_pil_does(tmp_path: Path) -> None:
    """In 32-bit floating point, and then rounded."""
    small, large = load("digits", tmp_path).test_images[:], load("digits32", tmp_path).test_images[:]
    for i in range(0, len(small), 20):
        image = Image.fromarray(small[i, 0].numpy().astype(np.float32) * 255 / 16)
        expected = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
        assert np.abs(expected - large[i, 0].numpy()).max() <= 0.5 + 1e-4


def test_enlarged_digits_normalisation_is_that_of_the_training_images(tmp_path: Path) -> None:
    digits = load("digits32", tmp_path)
    pixels = digits.train_images[:].double() / 255
    assert digits.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=1e-6)
    assert digits.std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist(), abs=1e-6)


def test_tinted_digits_keep_split_and_labels_and_never_change(tmp_path: Path) -> None:
    grey, tinted = load("digits", tmp_path), load("digits_tint", tmp_path)
    assert tinted.train_images.shape == (1260, 3, 8, 8) and tinted.test_images.shape == (537, 3, 8, 8)
    assert (tinted.train_labels == grey.train_labels).all() and (tinted.test_labels == grey.test_labels).all()
    for style in ("ink", "slant"):
        assert (tinted.attributes[style].train_labels == grey.attributes[style].train_labels).all()
    hue = tinted.attributes["hue"]
    checksum = hashlib.sha256(torch.cat([hue.train_labels, hue.test_labels]).numpy().tobytes()).hexdigest()
    assert checksum == "f130f62ddad62171e0ba6e16fc0b7ea21a22127e1d0d34f97a3f4f817395f171"


def test_a_tint_is_the_digit_in_a_fully_saturated_hue(tmp_path: Path) -> None:
    """To the last bit, against the standard library's conversion of hues."""
    grey, tinted = load("digits", tmp_path), load("digits_tint", tmp_path)
    hues = tinted.attributes["hue"].test_labels
    for image, digit, hue in zip(tinted.test_images[:], grey.test_images[:][:, 0], hues, strict=True):
        colour = torch.tensor(colorsys.hsv_to_rgb(hue.item() / 5, 1, 1), dtype=torch.float64)
        expected = colour[:, None, None] * digit / 16
        torch.testing.assert_close(image.double() / tinted.levels, expected, atol=1e-12, rtol=0)


def test_hues_are_independent_of_the_digit(tmp_path: Path) -> None:
    tinted = load("digits_tint", tmp_path)
    hue = tinted.attributes["hue"]
    for labels, hues in ((tinted.train_labels, hue.train_labels), (tinted.test_labels, hue.test_labels)):
        counts = torch.stack([hues[labels == digit].bincount(minlength=5) for digit in range(10)])
        assert chi2_contingency(counts.numpy()).pvalue > 0.1
        assert ((counts.sum(0) / len(hues) - 0.2).abs() < 0.04).all()


def test_tinted_digits_normalisation_is_that_of_the_training_images(tmp_path: Path) -> None:
    digits = load("digits_tint", tmp_path)
    pixels = digits.train_images[:].double() / digits.levels
    assert digits.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist(), abs=1e-6)
    assert digits.std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist(), abs=1e-6)


def test_ink_is_the_mean_grey() -> None:
    images_NHW = torch.tensor([[[0, 16], [0, 0]], [[3, 5], [7, 9]]], dtype=torch.uint8)
    assert ink(images_NHW).tolist() == [4.0, 6.0]


@pytest.mark.parametrize("columns_per_row", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_slant_of_a_line_is_its_columns_per_row(columns_per_row: float) -> None:
    """A line through the centre that is sheared to the right at its top, interpolated between columns."""
    image_HW = torch.zeros(9, 21)
    for y in range(9):
        x = 10 - columns_per_row * (y - 4)
        image_HW[y, int(np.floor(x))] += 1 - (x - np.floor(x))
        image_HW[y, int(np.floor(x)) + 1] += x - np.floor(x)
    assert slant(image_HW[None]).item() == pytest.approx(columns_per_row, abs=1e-9)


def test_slant_ignores_place_and_brightness_and_changes_its_sign_in_a_mirror() -> None:
    images_NHW = torch.nn.functional.pad(load("digits", Path()).test_images[:][:, 0], (3, 3, 3, 3))
    slant_N = slant(images_NHW)
    torch.testing.assert_close(slant(images_NHW.roll((2, -3), (1, 2))), slant_N)
    torch.testing.assert_close(slant(images_NHW * 3.0), slant_N)
    torch.testing.assert_close(slant(tv.horizontal_flip(images_NHW)), -slant_N)


@pytest.mark.parametrize("style", ["ink", "slant"])
def test_quintiles_are_balanced_within_each_digit_on_training_images(style: str) -> None:
    digits = load("digits", Path())
    attribute = digits.attributes[style]
    for digit in range(10):
        counts = attribute.train_labels[digits.train_labels == digit].bincount(minlength=5)
        assert (counts - counts.sum() / 5).abs().max() <= 4  # images have equal ink, but never equal slant
    assert mutual_info_score(digits.train_labels, attribute.train_labels) < 0.002
    assert attribute.test_labels.bincount(minlength=5).min() > 0.15 * len(attribute.test_labels)


@pytest.mark.parametrize(("name", "style"), [("ink", ink), ("slant", slant)])
def test_quintiles_are_numpys_with_thresholds_of_training_images(name: str, style: Callable[[Tensor], Tensor]) -> None:
    digits = load("digits", Path())
    train_N, test_N = (style(images[:][:, 0]).numpy() for images in (digits.train_images, digits.test_images))
    attribute = digits.attributes[name]
    for digit in range(10):
        trained, tested = (labels.numpy() == digit for labels in (digits.train_labels, digits.test_labels))
        thresholds = np.quantile(train_N[trained], [0.2, 0.4, 0.6, 0.8])
        assert (attribute.train_labels.numpy()[trained] == np.digitize(train_N[trained], thresholds)).all()
        assert (attribute.test_labels.numpy()[tested] == np.digitize(test_N[tested], thresholds)).all()


def test_quintiles_of_a_label_do_not_depend_on_other_labels() -> None:
    value_N, labels_N = torch.rand(200, generator=torch.Generator().manual_seed(0)).double(), torch.arange(200) % 2
    alone, even = quintiles(value_N, labels_N, value_N, labels_N), labels_N == 0
    shifted_N = torch.where(even, value_N, 100 * value_N + 7)
    both = quintiles(shifted_N, labels_N, shifted_N, labels_N)
    assert torch.equal(both.train_labels, alone.train_labels) and both.classes == 5
