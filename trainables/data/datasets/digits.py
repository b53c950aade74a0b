"""Data sets that need no download: scikit-learn's digits in their original size, enlarged, and tinted.

Their attributes are styles: the amount of ink and the slant of a digit, each as a quintile within its own class, and
the tint. None of the styles reveals the digit's class. Shapes: N images, C channels, H rows, W columns, K digits, T
thresholds.
"""

import functools
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.data.datasets.dataset import Attribute, Dataset, Declaration, Source

_SKLEARN = importlib.util.find_spec("sklearn")
FILE = Path(_SKLEARN.origin if _SKLEARN and _SKLEARN.origin else "").parent / "datasets/data/digits.csv.gz"
"""scikit-learn's file of digits; each line has an image's 64 pixels and its label. If the file does not exist, because
a version of scikit-learn keeps it elsewhere, scikit-learn is imported instead."""
TINTS = ((5, 0, 0), (4, 5, 0), (0, 5, 2), (0, 2, 5), (4, 0, 5))
"""Red, green and blue, in fifths, of the fully saturated hues 0/5, 1/5, ..., 4/5 of the colour circle."""
TINT_SEED = 0
"""Seed for drawing the hues of all digits in file order."""
SHARES = (0.2, 0.4, 0.6, 0.8)
"""Shares of a digit's training images below the thresholds of the quintiles."""
QUINTILES = len(SHARES) + 1
"""Number of classes of each style attribute."""


def digits(root: Path) -> Dataset:
    """scikit-learn's 1,797 real digits of 8x8 pixels, which ship with the package. This project uses its own fixed
    split into 1,260 training and 537 test images: of every ten images of a class, in file order, the third, sixth and
    ninth are test images."""
    images_N1HW, labels_N = _digits()
    return _split("digits", images_N1HW, images_N1HW, labels_N, levels=16, mean=(0.305470,), std=(0.376049,))


def digits32(root: Path) -> Dataset:
    """The digits with the same split, enlarged bilinearly to 3x32x32 pixels in 0..255 with three equal channels."""
    small_N1HW, labels_N = _digits()
    large_N1HW = F.interpolate(small_N1HW * (255 / 16), scale_factor=4, mode="bilinear", align_corners=False)
    images_NCHW = large_N1HW.round().byte().repeat(1, 3, 1, 1)
    mean, std = (0.305442,) * 3, (0.323596,) * 3
    return _split("digits32", images_NCHW, small_N1HW, labels_N, levels=255, mean=mean, std=std)


def digits_tint(root: Path) -> Dataset:
    """The digits with the same split, each on black in one of five fully saturated hues, 3x8x8 pixels. The hue, an
    attribute, is drawn for each image independently of its digit. Pixels are in 0..80: five steps per level of the
    digits' 16 levels keep the hues exact."""
    grey_N1HW, labels_N = _digits()
    hue_N = torch.randint(len(TINTS), labels_N.shape, generator=torch.Generator().manual_seed(TINT_SEED))
    images_NCHW = grey_N1HW * torch.tensor(TINTS, dtype=torch.uint8)[hue_N][:, :, None, None]
    mean, std = (0.160426, 0.141881, 0.144934), (0.288450, 0.277567, 0.281887)
    dataset = _split("digits_tint", images_NCHW, grey_N1HW, labels_N, levels=80, mean=mean, std=std)
    test_N = _tested(labels_N)
    hue = Attribute(hue_N[~test_N], hue_N[test_N], classes=len(TINTS))
    return replace(dataset, attributes={**dataset.attributes, "hue": hue})


@functools.cache
def _digits() -> tuple[Tensor, Tensor]:
    """Images, uint8 `[1797, 1, 8, 8]` with pixels in 0..16, and labels, int64 `[1797]`, from scikit-learn's file,
    because importing scikit-learn in every training process would take as long as importing torch. The file is parsed
    once per process."""
    if FILE.exists():
        table = np.loadtxt(FILE, delimiter=",", dtype=np.int64)
        images, labels = table[:, :-1], table[:, -1]
    else:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images.astype(np.uint8)).view(-1, 1, 8, 8), torch.from_numpy(labels.astype(np.int64))


def _split(
    name: str,
    images_NCHW: Tensor,
    grey_N1HW: Tensor,
    labels_N: Tensor,
    levels: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Dataset:
    """The data set of these images. The attributes `ink` and `slant` come from the `grey` digits."""
    test_N = _tested(labels_N)
    styles = {"ink": ink(grey_N1HW[:, 0]), "slant": slant(grey_N1HW[:, 0])}
    return Dataset(
        name=name,
        train_images=images_NCHW[~test_N],
        train_labels=labels_N[~test_N],
        test_images=images_NCHW[test_N],
        test_labels=labels_N[test_N],
        classes=tuple("0123456789"),
        levels=levels,
        mean=mean,
        std=std,
        attributes={
            style: quintiles(value_N[~test_N], labels_N[~test_N], value_N[test_N], labels_N[test_N])
            for style, value_N in styles.items()
        },
    )


def _tested(labels_N: Tensor) -> Tensor:
    """bool `[N]`, True for the test images."""
    one_hot_NK = F.one_hot(labels_N)
    rank_N = (one_hot_NK.cumsum(0) * one_hot_NK).sum(1) - 1
    return torch.isin(rank_N % 10, torch.tensor([2, 5, 8]))


def ink(images_NHW: Tensor) -> Tensor:
    """The mean grey of each image, float64 `[N]`."""
    return images_NHW.double().mean(dim=(1, 2))


def slant(images_NHW: Tensor) -> Tensor:
    """How far each digit leans to the right, float64 `[N]`, in columns per row: `-mu_xy / mu_yy` of the central moments
    of its ink, where x counts columns and y counts rows downwards."""
    mass_NHW = images_NHW.double()
    total_N = mass_NHW.sum(dim=(1, 2))
    y_H, x_W = (torch.arange(side, dtype=torch.float64) for side in images_NHW.shape[1:])
    y_NH = y_H - (mass_NHW.sum(2) @ y_H / total_N)[:, None]
    x_NW = x_W - (mass_NHW.sum(1) @ x_W / total_N)[:, None]
    mu_xy_N = torch.einsum("nhw,nh,nw->n", mass_NHW, y_NH, x_NW)
    mu_yy_N = torch.einsum("nhw,nh->n", mass_NHW, y_NH.square())
    return -mu_xy_N / mu_yy_N


def quintiles(train_N: Tensor, train_labels_N: Tensor, test_N: Tensor, test_labels_N: Tensor) -> Attribute:
    """The quintile of each value (float64 `[N]`) among the training images with the same label (int64 `[N]`)."""
    shares_T = torch.tensor(SHARES, dtype=torch.float64)
    labels = range(int(train_labels_N.max()) + 1)
    thresholds_KT = torch.stack([train_N[train_labels_N == label].quantile(shares_T) for label in labels])
    return Attribute(
        train_labels=(train_N[:, None] >= thresholds_KT[train_labels_N]).sum(1),
        test_labels=(test_N[:, None] >= thresholds_KT[test_labels_N]).sum(1),
        classes=QUINTILES,
    )


DECLARATION = Declaration(
    (1, 8, 8),
    10,
    train=(125, 128, 124, 128, 127, 128, 127, 125, 122, 126),
    test=(53, 54, 53, 55, 54, 54, 54, 54, 52, 54),
    levels=16,
    attributes={"ink": QUINTILES, "slant": QUINTILES},
)
FILES = "none: it comes with scikit-learn"
DATASETS = {
    "digits": Source(digits, DECLARATION, FILES),
    "digits32": Source(digits32, replace(DECLARATION, shape=(3, 32, 32), levels=255), FILES),
    "digits_tint": Source(
        digits_tint,
        replace(DECLARATION, shape=(3, 8, 8), levels=80, attributes={**DECLARATION.attributes, "hue": len(TINTS)}),
        FILES,
    ),
}
