"""The autoencoder: its loss and its score are squared errors of the images that it returns."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.methods.one_class.autoencoder import Autoencoder
from trainables.sections import Value
from trainables.tasks.images.model import ImageModel
from trainables.training.stacks import build_models
from trainables.training.train import retrain

SMALL: dict[str, Value] = {
    "method": "autoencoder", "normal_class": 3, "encoder": "lenet", "decoder": "lenet", "features": 8, "epochs": 2,
    "batch_size": 60, "optimiser": "adam", "lr": 0.01,
}  # fmt: skip


def test_the_loss_is_the_squared_error_of_a_view() -> None:
    (model,) = build_models([resolve(SMALL)], {"views": (1, 8, 8)})
    assert isinstance(model, Autoencoder)
    views, pixels = torch.randn(5, 1, 8, 8), torch.rand(5, 1, 8, 8)
    losses = model.eval().losses({"views": (views,), "view_pixels": (pixels,)}, {})
    with torch.no_grad():
        errors = pixels - model.decode(model(views))
    assert losses.total.item() == pytest.approx(float((errors.double().numpy() ** 2).sum() / 5))


@pytest.mark.parametrize("contrast_normalise", [False, True])
def test_the_score_is_the_error_of_the_image_itself(contrast_normalise: bool) -> None:
    """In [0, 1], whatever the encoder is given: the images themselves, or those with their contrast normalised."""
    model = retrain(resolve({**SMALL, "contrast_normalise": contrast_normalise}), Path()).build()
    assert isinstance(model, ImageModel)
    digits = load("digits", Path())
    assert isinstance(digits.test_images, Tensor) and isinstance(digits.train_images, Tensor)
    images = digits.test_images.double().numpy() / 16
    if contrast_normalise:
        low, high = (limit(_contrast(digits.train_images.double().numpy() / 16)) for limit in (np.min, np.max))
        images = (_contrast(images) - low) / (high - low)
    expected_N = ((images - model.reconstruct(digits.test_images).double().numpy()) ** 2).sum((1, 2, 3))
    np.testing.assert_allclose(model.score(digits.test_images).double().numpy(), expected_N, rtol=1e-4)


def _contrast(
    images_NCHW: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """The authors' global contrast normalisation with the L1 scale."""
    centred = images_NCHW - images_NCHW.mean((1, 2, 3), keepdims=True)
    scaled: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = centred / abs(centred).mean((1, 2, 3), keepdims=True)
    return scaled
