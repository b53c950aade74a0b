"""The images that a trial trains on where validation images are held out."""

from dataclasses import replace

import pytest
import torch

from tests.trainables.small import HERE, image_trial
from trainables.data.datasets.catalog import load
from trainables.image_trial import Data
from trainables.tasks.images.stream import make_splits, stream_key


@pytest.mark.parametrize("data", [Data(normal_class=3), Data(held_out="3+5"), Data()], ids=["one", "held out", "all"])
def test_both_parts_have_the_training_images_without_those_held_out(data: Data) -> None:
    digits = load("digits", HERE)
    test, validation = make_splits(digits, replace(data, validation=0.2))
    assert validation is not None and torch.equal(test.train_images[:], validation.train_images[:])
    whole, none = make_splits(digits, data)
    assert none is None and len(whole.train_images) > len(test.train_images)
    assert torch.equal(whole.test_images[:], test.test_images[:]) and torch.equal(whole.test_labels, test.test_labels)
    rows = [{bytes(image.numpy().tobytes()) for image in part[:]} for part in (test.train_images, test.test_images)]
    held = {bytes(image.numpy().tobytes()) for image in validation.test_images[:]}
    assert held and not held & rows[0] and not held & rows[1]


def test_members_share_the_remaining_images() -> None:
    digits = load("digits", HERE)
    first, second = (make_splits(digits, Data(validation=0.2)) for _ in range(2))
    assert first.test.train_images is second.test.train_images
    assert first.validation and second.validation and first.validation.test_images is second.validation.test_images


def test_trials_that_hold_out_another_share_share_no_stream() -> None:
    keys = [
        stream_key(image_trial({"method": "vje", "validation": share, "held_out": classes}))
        for share in (0.0, 0.1, 0.2)
        for classes in ("", "3")
    ]
    assert len(set(keys)) == 6 and keys[:2] == [("digits", None, 0), ("digits", None, 0, "3")]
