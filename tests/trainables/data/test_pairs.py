"""Synthetic pairs: where their targets lie, and that a seed draws them again."""

import math

import pytest
import torch

from trainables.data.pairs import BRANCHES, NOISE, draw_pairs

EXPECTED = {
    "synthetic_a": lambda x: (x * x + 0.5, -x * x - 0.5, x**3),
    "synthetic_b": lambda x: (math.sin(3 * x), -math.sin(3 * x), 0.0),
}
each_dataset = pytest.mark.parametrize("dataset", BRANCHES)


@each_dataset
def test_branches_are_those_of_the_specification(dataset: str) -> None:
    points = [-1.0, -0.3, 0.0, 0.7]
    at = BRANCHES[dataset].at(torch.tensor(points, dtype=torch.float64))
    assert at.tolist() == [pytest.approx(EXPECTED[dataset](x)) for x in points]


@each_dataset
def test_targets_are_near_one_of_equally_likely_branches(dataset: str) -> None:
    x_N, y_N = draw_pairs(dataset, 3000, torch.Generator().manual_seed(0))
    assert x_N.min() < -0.99 and x_N.max() > 0.99 and abs(x_N.mean()) < 0.03
    residual_NF = y_N[:, None] - BRANCHES[dataset].at(x_N)
    nearest_N, branch_N = residual_NF.abs().min(1)
    assert nearest_N.max() < 5 * NOISE
    apart_N = x_N.abs() > 0.3  # in set B, branches meet at the origin
    shares_F = branch_N[apart_N].bincount() / apart_N.sum()
    assert ((shares_F - 1 / 3).abs() < 0.04).all()
    assert nearest_N[apart_N].square().mean().sqrt() == pytest.approx(NOISE, rel=0.05)


def test_a_generator_of_the_same_seed_draws_the_same_pairs() -> None:
    first, again, other = (draw_pairs("synthetic_a", 50, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(*values) for values in zip(first, again, strict=True))
    assert not torch.equal(first.y_N, other.y_N)
