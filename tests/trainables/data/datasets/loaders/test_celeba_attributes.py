"""The hair colour is the only positive one; the other attributes are those of the published indices."""

import pytest
import torch

from tests.published_files import ATTRIBUTES
from trainables.data.datasets.celeba import BINARY, CONTENT, HAIR, hair_colour
from trainables.data.datasets.dataset import UNLABELLED

PUBLISHED = [name.lower() for name in ATTRIBUTES]


@pytest.mark.parametrize(
    ("positive", "colour"),
    [
        ([0, 0, 0, 0, 0], UNLABELLED),
        ([1, 0, 0, 0, 0], 0),
        ([0, 0, 1, 0, 0], 2),
        ([0, 0, 0, 0, 1], 4),
        ([0, 1, 0, 1, 0], UNLABELLED),
        ([1, 0, 0, 0, 1], UNLABELLED),
        ([1, 1, 1, 1, 1], UNLABELLED),
    ],
)
def test_hair_colour_is_the_only_positive_one(positive: list[int], colour: int) -> None:
    assert hair_colour(torch.tensor([positive], dtype=torch.uint8)).tolist() == [colour]


def test_attributes_have_the_published_indices() -> None:
    assert [PUBLISHED.index(name) for name in HAIR] == [4, 8, 9, 11, 17] and PUBLISHED.index(CONTENT) == 20
    assert [PUBLISHED.index(name) for name in BINARY] == [
        *(0, 3, 5, 6, 7, 12, 15, 18, 19, 20, 21, 24, 25, 27, 31, 32, 33, 34, 36, 39)
    ]
