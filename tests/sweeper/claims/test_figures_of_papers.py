"""Claims about figures of papers, judged by these figures with simulated seeds: what can be decided, by how many."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from search_spaces.anomaly_grid import AXES
from sweeper.claims.judging import Judged, judge
from sweeper.claims.verdicts import replicates_expected
from sweeper.definition import registry
from sweeper.results.estimates import ALPHA
from sweeper.storage.files import Files
from tests.cases import for_each
from tests.sweeper.claims.stored_rows import write_rows

BY_CLASS = np.array([0.872, 0.976, 0.851, 0.828, 0.884, 0.897, 0.909, 0.935, 0.940, 0.937])
"""AUROC of VJE for the ten classes of CIFAR-10 (VJE, Table 3)."""
OF_CLASS, OF_TRIAL = 0.012, 0.003
"""Standard deviations of what a seed adds to a class, alike in all cells, which share their random numbers; and to a
single trial."""
AT = {(1.0, 0.5): 0.0, (1.0, 1.0): -0.004, (1.0, 0.25): -0.006}
"""(beta, nu) -> its published class-averaged AUROC, less that of the optimum (VJE, Fig. 4)."""
NEEDS_SEEDS = "one replicate: an interval needs 3 seeds"


def of_grid(folder: Path, seeds: int) -> Mapping[str, Judged]:
    """The claims about the grid of VJE. A cell whose figure is not printed has 0.02 less than the optimum for each step
    of the grid between them."""
    random, betas, nus = np.random.default_rng(2), AXES["beta"], AXES["nu"]
    shared = OF_CLASS * random.standard_normal((10, seeds))
    rows = [
        {"method": "vje", "dataset": "cifar10", "beta": beta, "nu": nu, "normal_class": index, "seed": seed}
        | {"auroc_joint": BY_CLASS[index] + shift + shared[index, seed] + OF_TRIAL * random.standard_normal()}
        for row, beta in enumerate(betas)
        for column, nu in enumerate(nus)
        for shift in [AT.get((float(beta), float(nu)), -0.02 * (abs(row - 3) + abs(column - 1)))]
        for index in range(10)
        for seed in range(seeds)
    ]
    keys = {"method": str, "dataset": str, "beta": float, "nu": float, "normal_class": int, "seed": int}
    write_rows(folder, "anomaly_grid", keys, ("auroc_joint",), rows)
    judged = judge(Files(folder), registry.find("anomaly_grid"), "paper")
    return {each.claim.name: each for each in judged}


@pytest.mark.slow
def test_five_seeds_decide_the_figures_of_vje(tmp_path: Path) -> None:
    judged = of_grid(tmp_path, 5)
    for name in ("VJE-11", "VJE-17a", "VJE-18a", "VJE-18b"):
        assert (judged[name].verdict, judged[name].n, judged[name].reason) == ("holds", 5, ""), name
    assert judged["VJE-11"].left == pytest.approx(0.903, abs=0.005)
    assert judged["VJE-18b"].left == pytest.approx(0.045, abs=0.005)  # the paper's 0.043 has no noise of seeds


@pytest.mark.slow
def test_the_hardest_class_needs_more_seeds_and_the_rule_says_how_many(tmp_path: Path) -> None:
    """Cat and bird differ by 0.023, and the least of ten is compared with nine others. Of 12 generators 4 decide it
    with five seeds, 9 with nine and all with twelve."""
    five = of_grid(tmp_path / "five", 5)["VJE-17b"]
    assert (five.verdict, five.left) == ("undecided", 3)
    assert replicates_expected(five.p, five.n, lambda count: ALPHA) == 7
    twelve = of_grid(tmp_path / "twelve", 12)
    for name in ("VJE-11", "VJE-17a", "VJE-17b", "VJE-18a", "VJE-18b"):
        assert (twelve[name].verdict, twelve[name].n) == ("holds", 12), name


@pytest.mark.slow
def test_one_seed_decides_no_figure_and_says_what_is_missing(tmp_path: Path) -> None:
    judged = of_grid(tmp_path, 1)
    for name in ("VJE-11", "VJE-12a", "VJE-15a", "VJE-17a", "VJE-17b", "VJE-18a", "VJE-18b"):
        assert (judged[name].verdict, judged[name].reason) == ("undecided", NEEDS_SEEDS), name


@pytest.mark.slow
def test_one_seed_of_ten_classes_decides_between_two_settings_and_says_of_what(tmp_path: Path) -> None:
    judged = of_grid(tmp_path, 1)["VJE-12b"]
    assert (judged.verdict, judged.n, judged.over) == ("holds", 10, "10 classes of one seed")
    assert judged.reason == "over 10 classes of one seed: it says nothing of other seeds"
    assert judged.p == pytest.approx(2 / 1024, rel=2e-3)


def of_methods(folder: Path, preset: str, seeds: int) -> Mapping[str, Judged]:
    """The claims about one-class methods, each method with the mean that its paper has by the claim's own score."""
    sweep, random = registry.find("one_class_benchmark"), np.random.default_rng(2)
    claims = {claim.name: claim for claim in sweep.claims_of(preset) if claim.row.startswith("ONE-")}
    means = {(str(claim.left.where["method"]), claim.left.metric): claim.right for claim in claims.values()}
    metrics = sorted({metric for _, metric in means})
    rows = [
        {"method": method, "dataset": "cifar10", "normal_class": index, "seed": seed}
        | {
            metric: float(np.clip(mean + BY_CLASS[index] - BY_CLASS.mean() + OF_CLASS * random.standard_normal(), 0, 1))
            for (own, metric), mean in means.items()
            if own == method and isinstance(mean, float)
        }
        for method in sorted({method for method, _ in means})
        for index in range(10)
        for seed in range(seeds)
    ]
    keys = {"method": str, "dataset": str, "normal_class": int, "seed": int}
    write_rows(folder, "one_class_benchmark", keys, metrics, rows, preset)
    judged = judge(Files(folder), sweep, preset)
    return {each.claim.name: each for each in judged if each.claim.name in claims}


@pytest.mark.slow
@for_each(("preset", "count"), [("paper", 8), ("fashion", 5)])
def test_the_means_of_one_class_methods_are_decided_by_five_seeds_and_by_no_single_one(
    preset: str, count: int, tmp_path: Path
) -> None:
    five, one = (of_methods(tmp_path / str(seeds), preset, seeds) for seeds in (5, 1))
    assert len(five) == count
    for name, judged in five.items():
        assert (judged.verdict, judged.n) == ("holds", 5), name
        assert (one[name].verdict, one[name].reason) == ("undecided", NEEDS_SEEDS), name
