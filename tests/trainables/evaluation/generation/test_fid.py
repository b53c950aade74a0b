"""FID is refused where it cannot be computed, and gets images as torchmetrics takes them. torchmetrics is imitated: the
tests have neither the library nor the weights."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from trainables.metrics import sample_quality as fid_module
from trainables.metrics.sample_quality import check_fid, fid, inception_images

CPU = torch.device("cpu")


class MeanDifference:
    """Has the interface of torchmetrics' metric; its value is the difference of mean grey levels, and 100 times the
    ratio of the numbers of images."""

    def __init__(self, reset_real_features: bool, feature_extractor_weights_path: str) -> None:
        if Path(feature_extractor_weights_path).read_bytes() != b"weights":
            raise RuntimeError("Missing key(s):\n" + "key, " * 100)
        self.kept = not reset_real_features
        self.real: list[Tensor] = []
        self.fake: list[Tensor] = []

    def to(self, device: torch.device) -> "MeanDifference":
        return self

    def update(self, images_B3HW: Tensor, real: bool) -> None:
        assert images_B3HW.dtype == torch.uint8 and images_B3HW.shape[1] == 3 and len(images_B3HW) <= 4
        (self.real if real else self.fake).append(images_B3HW.double())

    def compute(self) -> Tensor:
        real, fake = torch.cat(self.real), torch.cat(self.fake)
        return fake.mean() - real.mean() + 100 * len(fake) / len(real)

    def reset(self) -> None:
        self.fake = []
        self.real = self.real if self.kept else []


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of weights, with imitations of the libraries."""
    module = ModuleType("torchmetrics.image.fid")
    monkeypatch.setattr(module, "FrechetInceptionDistance", MeanDifference, raising=False)
    for name in ("torchmetrics", "torchmetrics.image", "torchmetrics.image.fid"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    path = tmp_path / "weights.pth"
    path.write_bytes(b"weights")
    return path


def test_all_images_of_each_member_are_compared_with_all_test_images(weights: Path) -> None:
    test_images, samples_KNCHW = torch.full((10, 1, 8, 8), 0.2), torch.full((3, 5, 1, 8, 8), 0.6)
    samples_KNCHW[2] = 1.0
    values = fid(samples_KNCHW, test_images, weights, CPU, batch_size=4)
    assert values == pytest.approx([153 - 51 + 50, 153 - 51 + 50, 255 - 51 + 50])


def test_a_member_with_a_pixel_that_is_not_finite_has_nan_alone(weights: Path) -> None:
    test_images, samples_KNCHW = torch.zeros(10, 3, 8, 8), torch.zeros(3, 5, 3, 8, 8)
    samples_KNCHW[1, 4, 2, 7, 7] = math.nan
    values = fid(samples_KNCHW, test_images, weights, CPU, batch_size=4)
    assert math.isnan(values[1]) and values[0] == values[2] == 50


def test_a_file_of_something_else_is_refused_in_one_line(weights: Path) -> None:
    weights.write_bytes(b"other")
    with pytest.raises(ValueError, match=r"weights.pth does not hold the Inception weights of .*: Missing") as refusal:
        fid(torch.zeros(1, 5, 1, 8, 8), torch.zeros(5, 1, 8, 8), weights, CPU)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 500


def test_a_missing_file_is_refused(weights: Path, tmp_path: Path) -> None:
    for absent in (tmp_path / "absent.pth", tmp_path):
        with pytest.raises(ValueError, match=f"there is no file {absent}"):
            check_fid(absent)
    check_fid(weights)


@pytest.mark.parametrize("missing", [("torchmetrics",), ("torch_fidelity",), ("torchmetrics", "torch_fidelity")])
def test_missing_libraries_are_refused_by_name(
    weights: Path, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    with pytest.raises(ValueError, match=rf"FID needs {' and '.join(missing)}, .* 'torchmetrics\[image\]'"):
        fid(torch.zeros(1, 5, 1, 8, 8), torch.zeros(5, 1, 8, 8), weights, CPU)


def test_the_extra_installs_the_libraries_that_are_looked_for() -> None:
    """torch-fidelity comes with the extra `image` of torchmetrics."""
    pyproject = (Path(__file__).parents[4] / "pyproject.toml").read_text()
    assert 'fid = ["torchmetrics[image]' in pyproject and fid_module.LIBRARIES == ("torchmetrics", "torch_fidelity")


def test_every_grey_level_is_kept_and_repeated() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    grey_B1HW = (levels.float() / 255).view(1, 1, 16, 16)
    actual_B3HW = inception_images(grey_B1HW)
    assert actual_B3HW.shape == (1, 3, 16, 16) and (actual_B3HW == levels.view(1, 1, 16, 16)).all()


def test_colours_keep_their_channels_and_are_clipped() -> None:
    actual_B3HW = inception_images(torch.tensor([-0.5, 0.5, 1.5]).view(1, 3, 1, 1))
    assert actual_B3HW.flatten().tolist() == [0, 128, 255]


def test_images_of_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="images of 1 or 3 channels, but got 2"):
        inception_images(torch.zeros(1, 2, 8, 8))
