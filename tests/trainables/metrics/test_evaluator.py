"""The images of an evaluation, files or tensors in either precision; the families of reported metrics; and pictures,
which hold every image at its place.
"""

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.cases import for_each
from tests.image_files import write_imagenet
from tests.trainables.metrics.evaluated import EVERYTHING, eval_config
from tests.trainables.small import HERE, image_trial
from tests.trainables.training.judged import without_seconds
from trainables.data.datasets.catalog import load
from trainables.image_trial import ImageTrial
from trainables.metrics.meanings import FAMILIES, family_of
from trainables.metrics.sample_grids import GAP, image_grid, reconstruction_grid, sample_grid
from trainables.sections import Value
from trainables.tasks.images import task
from trainables.training.metric_names import methods_by_metric
from trainables.training.train import train

FILES: dict[str, Value] = {"dataset": "imagenet", "batch_size": 6, "features": 4, "width": 4}
DECODED: dict[str, Value] = {
    "content_probe_epochs": 1, "content_knn": 3, "gmm_n_init": 1, "reconstructions": True, "samples_per_class": 2,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        eval_config(**FILES, **{**EVERYTHING, "knn": 3, "epochs": 0}),
        image_trial({"method": "cr_vae", **FILES, **DECODED, "decoder_hidden": "8", "lr": 1e-6, "epochs": 1}),
    ],
    ids=["untrained", "trained on plain images"],
)
def test_images_as_files_give_the_same_metrics_as_tensors(
    config: ImageTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without augmentation views, too, are the same."""
    write_imagenet(tmp_path, train=6, val=4)
    files = load("imagenet", tmp_path)
    tensors = replace(files, train_images=files.train_images[:], test_images=files.test_images[:])
    from_files = without_seconds(list(train([config], tmp_path)))
    monkeypatch.setattr(task, "dataset_of", lambda config, data: tensors)
    assert without_seconds(list(train([config], tmp_path))) == from_files
    (_, (member,), _), *_ = from_files
    assert member.status == "finished" and not any("top5" in name for name in member.metrics)


def test_metrics_in_bfloat16_are_nearly_the_same() -> None:
    configs = {
        kind: [eval_config(beta=beta, **EVERYTHING, epochs=0, precision=kind) for beta in (0.5, 7.0)]
        for kind in ("float32", "bfloat16")
    }
    (full,), (half,) = (list(train(members, HERE)) for members in configs.values())
    assert full.members != half.members
    for actual, expected in zip(half.members, full.members, strict=True):
        assert dict(actual.metrics) == pytest.approx(dict(expected.metrics), abs=0.05)


UNREPORTED = {"seconds"}
"""Families that no method reports: the driver measures the seconds."""


def test_every_reported_metric_has_a_family_and_every_family_is_reported() -> None:
    families = {name: family_of(name) for name in methods_by_metric()}
    assert not [name for name, family in families.items() if family is None]
    silent = {name for name, family in FAMILIES.items() if family not in families.values()}
    assert silent == UNREPORTED


@for_each(
    ("metric", "family"),
    [
        ("knn_z", "knn"), ("knn_weighted_mu", "knn_weighted"), ("probe_top5_z", "probe_top5"), ("probe_z", "probe"),
        ("knn_best_z", "knn_best"), ("knn_1", "knn_k"), ("knn_15_mu", "knn_k"), ("val_knn_2_z", "knn_k"),
        ("knn_1st", "knn"), ("probe_mlp_z", "probe_mlp"), ("probe_mlp_best_z", "probe_mlp_best"),
        ("probe_linear", "probe_linear"), ("style_ink_mu", "style"), ("nmi_batch64_z", "nmi_batch64"),
        ("gmm_accuracy_mu", "gmm_accuracy"), ("ari_z", "ari"), ("probe_5", "probe_few"), ("val_probe_10", "probe_few"),
        ("ess", "ess"), ("effective_rank", "effective_rank"),
        ("loss", "loss"), ("loss_kl", "loss_part"), ("var_cv", "var_cv"), ("auroc_rad_held_out", "auroc"),
    ],
)  # fmt: skip
def test_a_metric_is_of_the_family_with_the_longest_name(metric: str, family: str) -> None:
    assert family_of(metric) is FAMILIES[family]


def test_a_metric_that_only_shares_a_prefix_has_no_family() -> None:
    assert family_of("losses") is None and family_of("aurocs") is None and family_of("speed") is None


@pytest.mark.parametrize(("metric", "share"), [("probe_mlp_z", True), ("ari_z", True), ("diversity", False)])
def test_shares_can_be_shown_in_percent_even_if_chance_is_taken_off(metric: str, share: bool) -> None:
    family = family_of(metric)
    assert family is not None and family.share == share


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def pixels_of(png: bytes) -> np.ndarray:
    picture = Image.open(io.BytesIO(png))
    assert picture.format == "PNG" and picture.mode == "RGB"
    return np.asarray(picture)


def levels_of(image_CHW: Tensor) -> np.ndarray:
    """The image as uint8 `[H, W, 3]`."""
    return np.broadcast_to(
        np.rint(image_CHW.numpy() * 255).astype(np.uint8).transpose(1, 2, 0), (*image_CHW.shape[1:], 3)
    )


@pytest.mark.parametrize(
    ("shape", "factor"), [((1, 8, 8), 6), ((1, 28, 28), 2), ((3, 32, 32), 2), ((3, 64, 64), 1), ((3, 10, 20), 5)]
)
def test_each_pixel_of_each_image_is_a_square_at_its_place(shape: tuple[int, int, int], factor: int) -> None:
    images_RMCHW, (_, height, width) = images(2, 3, *shape), shape
    grid = image_grid(images_RMCHW).numpy()
    high, wide = GAP + height * factor, GAP + width * factor
    assert grid.shape == (2 * high + GAP, 3 * wide + GAP, 3) and grid.dtype == np.uint8
    covered = np.zeros(grid.shape[:2], dtype=bool)
    for row in range(2):
        for column in range(3):
            square = np.s_[row * high + GAP : (row + 1) * high, column * wide + GAP : (column + 1) * wide]
            expected = np.kron(levels_of(images_RMCHW[row, column]), np.ones((factor, factor, 1), dtype=np.uint8))
            np.testing.assert_array_equal(grid[square], expected)
            covered[square] = True
    assert (grid[~covered] == 255).all()


def test_pixels_out_of_range_are_clipped_and_nan_is_black() -> None:
    row = torch.tensor([-3.0, 0.5, 7.0, math.nan]).view(1, 4, 1, 1, 1).expand(1, 4, 1, 64, 64)
    grid = image_grid(row).numpy()
    assert [grid[GAP, GAP + column * (64 + GAP), 0] for column in range(4)] == [0, 128, 255, 0]


def test_a_sample_grid_has_a_row_for_each_class_right_of_its_name() -> None:
    samples_RMCHW = images(3, 5, 1, 8, 8)
    pixels, grid = pixels_of(sample_grid(samples_RMCHW, ("0", "1", "2"))), image_grid(samples_RMCHW).numpy()
    margin = pixels.shape[1] - grid.shape[1]
    np.testing.assert_array_equal(pixels[:, margin:], grid)
    rows = np.array_split(pixels[:, :margin], 3)
    assert all((row < 128).any() for row in rows) and not np.array_equal(rows[0], rows[1])


def test_a_reconstruction_sample_grid_has_the_originals_above_those_of_each_method() -> None:
    originals_MCHW, own = (
        images(4, 3, 32, 32),
        {"SimVAE": images(4, 3, 32, 32) / 2, "a longer name": images(4, 3, 32, 32) / 3},
    )
    pixels = pixels_of(reconstruction_grid(originals_MCHW, own))
    rows = torch.stack([originals_MCHW, own["SimVAE"], originals_MCHW, own["a longer name"]])
    grid = image_grid(rows).numpy()
    margin = pixels.shape[1] - grid.shape[1]
    np.testing.assert_array_equal(pixels[:, margin:], grid)
    first, second, third, fourth = np.array_split(pixels[: grid.shape[0] - GAP, :margin], 4)
    np.testing.assert_array_equal(first, third)
    assert not np.array_equal(second, fourth)
    assert (pixels[:, 0] == 255).all(), "the longest name fits"


def test_images_of_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="images of 1 or 3 channels, but got 2"):
        image_grid(torch.zeros(1, 1, 2, 8, 8))
