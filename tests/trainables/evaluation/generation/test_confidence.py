"""Confidence and coverage on probabilities made by hand. Shapes: N images, L classes."""

import math

import torch

from trainables.metrics.sample_quality import confident_coverage, confident_share

SURE_OF = {0: [0.9, 0.05, 0.05], 1: [0.02, 0.95, 0.03], 2: [0.0, 0.0, 1.0]}
UNSURE = [0.89, 0.06, 0.05]


def _images(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_share_counts_images_at_or_above_the_threshold() -> None:
    images = _images(SURE_OF[0], UNSURE, SURE_OF[2], UNSURE)
    assert confident_share(images, 0.9).item() == 0.5
    assert confident_share(images, 0.96).item() == 0.25
    assert confident_share(images, 0.6).item() == 1


def test_coverage_is_the_normalised_entropy_of_the_confident_images_classes() -> None:
    even = _images(*SURE_OF.values())
    assert math.isclose(confident_coverage(even, 0.9).item(), 1)
    assert confident_coverage(even[:1], 0.9).item() == 0
    halves = _images(SURE_OF[0], SURE_OF[2], UNSURE, UNSURE)
    assert math.isclose(confident_coverage(halves, 0.9).item(), math.log(2) / math.log(3))
    uneven = _images(SURE_OF[0], SURE_OF[0], SURE_OF[0], SURE_OF[1])
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(3)
    assert math.isclose(confident_coverage(uneven, 0.9).item(), expected)


def test_without_confident_images_no_class_is_covered() -> None:
    images = _images(UNSURE, UNSURE)
    assert confident_share(images, 0.9).item() == confident_coverage(images, 0.9).item() == 0


def test_members_are_judged_apart_and_nan_is_that_of_its_own() -> None:
    members = torch.stack([_images(SURE_OF[0], SURE_OF[1]), _images(SURE_OF[0], [math.nan] * 3)])
    for measure in (confident_share, confident_coverage):
        first, second = measure(members, 0.9)
        assert first.item() == measure(members[0], 0.9).item() and second.isnan()
