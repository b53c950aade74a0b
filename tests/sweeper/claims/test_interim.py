"""Interim analyses: their levels, and by simulation how often verdicts given while seeds are added are wrong."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.claims.interim import InterimAnalyses, next_count, read_analyses, write_analyses
from sweeper.claims.verdicts import verdict
from sweeper.results import estimates
from sweeper.results.estimates import ALPHA, Estimate
from sweeper.storage.files import Files
from sweeper.storage.requests import decided_changes, undecided_changes


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 20))
def test_all_analyses_of_a_claim_together_spend_at_most_its_level(first: int, more: int, at_most: int) -> None:
    most = first + more
    analyses, spent, counts = InterimAnalyses(most, first, tuple(range(most)), {}), 0.0, [first]
    assert analyses.share("a") == 1.0 and analyses.seeds_of("a") == tuple(range(first)) and not analyses.added
    while counts[-1] < most and len(counts) <= at_most:
        counts.append(next_count(counts[-1], most))
        assert counts[-1] > counts[-2]
    for count in counts:
        analyses = analyses.plus({"a": count})
        spent += analyses.share("a")
        assert analyses.seeds_of("a") == tuple(range(count)) and analyses.share("b") == 1.0
    assert spent == pytest.approx(counts[-1] / most) and spent <= 1 + 1e-9 and analyses.added == (len(counts) > 1)


def test_analyses_are_kept_in_the_store_beside_their_request(tmp_path: Path) -> None:
    analyses = InterimAnalyses(10, 3, (0, 1, 2, 3), {"X-01": (3, 5)})
    write_analyses(Files(tmp_path), "tiny", "digits, epochs=5", analyses)
    assert read_analyses(Files(tmp_path), "tiny", "digits", "epochs=5") == analyses
    assert read_analyses(Files(tmp_path), "tiny", "digits") is None
    assert [decided_changes(text) for text in ("", "epochs=5", "decided")] == [
        "decided",
        "epochs=5, decided",
        "decided",
    ]
    assert [undecided_changes(text) for text in ("", "decided", "epochs=5, decided")] == ["", "", "epochs=5"]


def alone(values: np.ndarray) -> Estimate:
    return estimates.difference(estimates.mean(values[:, 0]), None)


def best_of_three(values: np.ndarray) -> Estimate:
    return estimates.difference(estimates.mean(values[:, 0]), estimates.largest(values[:, 1:]))


def trend(values: np.ndarray) -> Estimate:
    return estimates.correlation(values, np.arange(4.0))


def wrong_share(
    estimate: Callable[[np.ndarray], Estimate], counts: list[int], share: Callable[[int, int], float], draws: int
) -> float:
    """The share of draws of a difference of 0 that an analysis declares to be above or below 0."""
    random, wrong = np.random.default_rng(7), 0
    for _ in range(draws):
        values = random.standard_normal((counts[-1], 4))
        wrong += any(
            verdict(estimate(values[:now]), ">", 0.0, ALPHA * share(before, now)) != "undecided"
            for before, now in zip([0, *counts], counts, strict=False)
        )
    return wrong / draws


@pytest.mark.slow
@pytest.mark.parametrize("counts", [[3, 5, 7, 10], list(range(3, 13))], ids=["4 analyses", "10 analyses"])
@pytest.mark.parametrize("estimate", [alone, best_of_three, trend])
def test_verdicts_of_interim_analyses_are_seldom_wrong(
    counts: list[int], estimate: Callable[[np.ndarray], Estimate]
) -> None:
    """With 600 draws a share of 5 % is above 7 % once in a hundred times."""
    assert wrong_share(estimate, counts, lambda before, now: (now - before) / counts[-1], 600) < 0.07


def test_analyses_that_do_not_share_the_level_are_wrong_too_often() -> None:
    assert wrong_share(alone, list(range(3, 13)), lambda before, now: 1.0, 600) > 0.1
