"""A trained model takes images as users have them: their types, layouts and ranges.

Shapes: B images of C channels, H by W pixels.
"""

from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.methods.method_configs import config_of, images_of_tests, model_of
from tests.trainables.small import HERE
from trainables.contract import ImageMethod
from trainables.data.datasets.catalog import load
from trainables.image_trial import ImageTrial
from trainables.metrics.evaluator import BATCH
from trainables.sections import Value
from trainables.tasks.images.model import ImageModel, inputs_of


def image_model(name: str = "vje", **changes: Value) -> ImageModel:
    config, method = config_of(name, **changes), model_of(name)
    assert isinstance(config, ImageTrial) and isinstance(method, ImageMethod)
    return ImageModel(config, method, inputs_of(load("digits", HERE)))


def digits() -> torch.Tensor:
    images = load("digits", HERE).test_images
    assert isinstance(images, torch.Tensor)
    return images


def test_types_and_layouts_are_prepared_as_in_training() -> None:
    model, images_BCHW, expected_BCHW = image_model(), digits()[:20], images_of_tests()[:20]
    for images in (
        images_BCHW,
        images_BCHW.numpy(),
        images_BCHW.permute(0, 2, 3, 1),
        images_BCHW[:, 0],
        images_BCHW.float() / 16,
        (images_BCHW.numpy() / 16).astype(np.float64).transpose(0, 2, 3, 1),
    ):
        torch.testing.assert_close(model.prepare(images), expected_BCHW)
    halves = image_model(binarise=True, normalise=False).prepare(images_BCHW)
    assert torch.equal(halves, (images_BCHW > 8).float())


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.zeros(2, 1, 9, 9),
            r"images must have the shape \[B, 1, 8, 8\] or \[B, 8, 8, 1\], but got \[2, 1, 9, 9\]",
        ),
        (torch.zeros(8, 8), r"but got \[8, 8\]"),
        (
            torch.full((1, 8, 8), 17, dtype=torch.uint8),
            r"of uint8 images must be in \[0, 16\], but got 17 to 17",
        ),
        (torch.full((1, 8, 8), 1.5), r"pixels of float images must be in \[0, 1\], but got 1.5 to 1.5"),
        (torch.full((1, 8, 8), torch.nan), r"must be in \[0, 1\], but got nan to nan"),
        (torch.zeros(1, 8, 8, dtype=torch.int64), r"images must be uint8, or floats in \[0, 1\], but got torch.int64"),
    ],
)
def test_other_images_are_refused(images: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        image_model().embed(images)


def test_what_a_method_cannot_do_is_refused_by_name() -> None:
    for verb in ("score", "reconstruct"):
        with pytest.raises(ValueError, match=r"simclr must be able to .* for that, but can only embed"):
            getattr(image_model("simclr"), verb)(digits()[:2])


def test_any_number_of_images_is_taken_and_only_a_call_has_gradients() -> None:
    model, images = image_model(), digits()
    scores, vectors = model.score(images), model.embed(images)
    assert {len(score) for score in scores.values()} == {len(images)} and len(images) > BATCH
    torch.testing.assert_close(model.embed(images[BATCH:])["z"], vectors["z"][BATCH:])
    z_BD = model(images[:10])
    torch.testing.assert_close(z_BD, vectors["z"][:10])
    assert z_BD.requires_grad and not vectors["z"].requires_grad
    assert {len(vector) for vector in model.embed(images[:0]).values()} == {0}
