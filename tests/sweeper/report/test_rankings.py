"""Rankings: means over tasks, ranks, differences from the reference, how probably a run is better, and figures."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeper.definition import Grid, Metric, Published, Ranking, Sweep, Value
from sweeper.definition.metric import SPREADS
from sweeper.errors import SpecError
from sweeper.report.figures import Shown, figures_of
from sweeper.report.formatting import DASH
from sweeper.report.kinds import read_figures, write_figures
from sweeper.report.rankings import columns_of, markdown, on_page, publish, rank, text
from sweeper.storage.files import Files

METHODS, CLASSES, SEEDS = ("vje", "pixels", "simclr"), (0, 1, 2, 3), (0, 1, 2)
CHOSEN, LEAK = Metric("auroc_chosen", "maximize"), Metric("auroc_best_on_test", "maximize")
FIGURES: Mapping[tuple[Value, ...], Published] = {("csi",): Published(0.943), ("vje",): Published(0.9, recalled=True)}
RANKING = Ranking(
    "methods", ("method",), CHOSEN, "normal_class", "classes", ("vje",), leak=LEAK, published={"digits": FIGURES}
)


def trials(seed: int = 0) -> pd.DataFrame:
    """Trials of each method, class and seed. Pixels have one seed, and one score."""
    rng = np.random.default_rng(seed)
    rows = []
    for method, of, number in itertools.product(METHODS, CLASSES, SEEDS):
        names = ("knn1_z",) if method == "pixels" else ("joint", "knn1_z")
        test, validation = (dict(zip(names, rng.uniform(0.5, 1, 2), strict=False)) for _ in range(2))
        chosen = max(names, key=lambda name: validation[name])
        row = {"method": method, "normal_class": of, "seed": number, "auroc_chosen": test[chosen]}
        row |= {"auroc_best_on_test": max(test.values()), "val_auroc_chosen": validation[chosen]}
        row |= {f"auroc_{name}": value for name, value in test.items()}
        row |= {f"val_auroc_{name}": value for name, value in validation.items()}
        rows += [row] if method != "pixels" or number == 0 else []
    return pd.DataFrame(rows)


def row_of(ranked: pd.DataFrame, method: str) -> pd.Series:
    return ranked.set_index("method").loc[method]


def logit_interval(values: pd.Series) -> tuple[float, float]:
    """The 95 % interval of the mean of shares by Student's t of its logit, whose error is by the delta method."""
    p, error = values.mean(), stats.sem(values)
    return stats.logistic.cdf(stats.t.interval(0.95, len(values) - 1, stats.logistic.ppf(p), error / (p * (1 - p))))


def test_a_row_that_lacks_a_class_stands_below_those_that_have_all() -> None:
    rows = trials()
    best = rows.groupby("method")["auroc_chosen"].mean().idxmax()
    easy = rows[(rows["method"] != best) | (rows["normal_class"] == 0)].assign(
        auroc_chosen=lambda own: own["auroc_chosen"].where(own["method"] != best, 1.0)
    )
    assert rank(easy, RANKING, "paper")["method"].iloc[-1] == best != rank(rows, RANKING, "paper")["method"].iloc[-1]


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 200))
def test_rows_have_their_mean_over_classes_their_rank_and_their_difference(seed: int) -> None:
    rows = trials(seed)
    ranked = rank(rows, RANKING, "paper")
    table = rows.pivot_table("auroc_chosen", "method", "normal_class").loc[list(METHODS)].to_numpy()
    for method, own, ranks in zip(METHODS, table, stats.rankdata(-table, axis=0).mean(1), strict=True):
        row, trials_of = row_of(ranked, method), rows[rows["method"] == method]
        seeds = trials_of.groupby("seed")["auroc_chosen"].mean()
        ends = logit_interval(seeds) if len(seeds) > 2 else (math.nan, math.nan)
        figures = [row[name] for name in ("mean", "low", "high", "fixed_std")]
        assert figures == pytest.approx([own.mean(), *ends, own.std(ddof=1)], nan_ok=True)
        assert row["rank"] == pytest.approx(ranks) and row["runs"] == len(trials_of) / 4
        assert (
            row["leak"] == pytest.approx(trials_of["auroc_best_on_test"].mean()) and row["leak"] >= row["mean"] - 1e-9
        )
        if method != "vje":
            reference = rows[rows["method"] == "vje"].groupby("seed")["auroc_chosen"].mean()
            paired = stats.ttest_rel(seeds, reference[seeds.index]) if len(seeds) > 2 else None
            interval = paired.confidence_interval(0.95) if paired else (math.nan, math.nan)
            found = (row["difference"], row["difference_low"], row["difference_high"])
            assert found == pytest.approx(((own - table[0]).mean(), *interval), nan_ok=True)
            assert row["difference_over"] == ""
    assert ranked["mean"].is_monotonic_decreasing


def test_one_seed_is_compared_over_classes_and_a_method_that_takes_none_with_all_seeds() -> None:
    one = trials()[lambda rows: rows["seed"] == 0]
    more = [one.assign(normal_class=one["normal_class"] + 4 * shift) for shift in range(3)]
    many = pd.concat([rows.assign(auroc_chosen=rows["auroc_chosen"] - 0.01 * i) for i, rows in enumerate(more)])
    row = row_of(rank(many.reset_index(drop=True), RANKING, "digits"), "simclr")
    assert row["difference_over"] == "12 classes" and row["difference_low"] < row["difference"] < row["difference_high"]
    assert math.isnan(row["low"]) and row["fixed_std"] > 0
    shown_text = text(rank(many.reset_index(drop=True), RANKING, "digits"), RANKING)
    assert "mean ± standard deviation over 12 classes" in shown_text
    assert "less vje: mean [95 % interval] paired by normal_class, over classes and not over seeds" in shown_text
    rows = trials()
    rows["seed"] = rows["seed"].where(rows["method"] != "pixels")
    row = row_of(rank(rows, RANKING, "digits"), "pixels")
    vje = rows[rows["method"] == "vje"].groupby("seed")["auroc_chosen"].mean()
    number = rows[rows["method"] == "pixels"]["auroc_chosen"].mean()
    interval = stats.ttest_1samp(number - vje, 0).confidence_interval(0.95)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx(tuple(interval))


def test_the_scores_that_trials_chose_are_named_with_how_often() -> None:
    rows = trials()
    ranked = rank(rows, RANKING, "digits")
    own = rows[rows["method"] == "vje"]
    count = int((own["val_auroc_joint"] > own["val_auroc_knn1_z"]).sum())
    named = sorted([("joint", count), ("knn1_z", 12 - count)], key=lambda pair: -pair[1])
    assert row_of(ranked, "vje")["scores"] == ", ".join(f"{name} {times}" for name, times in named)
    assert row_of(ranked, "pixels")["scores"] == "knn1_z"


def test_how_probable_a_better_run_is_counts_all_pairs_of_runs_of_each_class() -> None:
    rows = trials()
    rows["auroc_chosen"] = rows["normal_class"] / 10 + rows["seed"] / 100 + (rows["method"] == "simclr") / 100
    improved = row_of(rank(rows, RANKING, "digits"), "simclr")
    assert (
        improved["improved"] == pytest.approx((6 + 2 * 0.5) / 9) and improved["improved_low"] < improved["improved"] < 1
    )
    assert math.isnan(row_of(rank(rows, RANKING, "digits"), "pixels")["improved_low"]), "one run"


def test_figures_of_papers_are_beside_and_those_recalled_are_marked() -> None:
    columns = columns_of(ranked := rank(trials(), RANKING, "digits"), RANKING)
    published = dict(zip(columns["method"], columns["published"], strict=True))
    assert published == {"vje": "90.0 r", "pixels": DASH, "simclr": DASH, "csi": "94.3"}
    document = markdown(ranked, RANKING)
    assert columns["method"][-1] == "csi" and "with r where it was recalled" in document and "| csi " in document
    none = columns_of(rank(trials(), RANKING, "paper"), RANKING)
    assert "published" not in none and "csi" not in none["method"]


def test_one_class_has_the_interval_over_runs() -> None:
    rows = trials()
    ranked = rank(rows[rows["normal_class"] == 1].reset_index(drop=True), RANKING, "digits")
    own = rows[(rows["normal_class"] == 1) & (rows["method"] == "vje")]["auroc_chosen"]
    row = row_of(ranked, "vje")
    assert (row["low"], row["high"]) == pytest.approx(logit_interval(own))
    assert "auroc_chosen: mean [95 % interval] over 1 to 3 runs;" in text(ranked, RANKING)


def test_methods_of_one_seed_are_compared_over_classes_and_the_caption_says_so() -> None:
    """By the sign-flip test: differences beyond the interval are those that it rejects."""
    rng = np.random.default_rng(0)
    keys = itertools.product(("vje", "pixels"), range(8))
    rows = pd.DataFrame(
        {"method": method, "normal_class": of, "seed": 0, "auroc_chosen": rng.uniform(0.6, 1), "auroc_best_on_test": 1}
        for method, of in keys
    )
    ranked = rank(rows, RANKING, "paper")
    row, table = row_of(ranked, "pixels"), rows.pivot(index="normal_class", columns="method", values="auroc_chosen")
    differences = table["pixels"] - table["vje"]
    assert row["difference"] == pytest.approx(differences.mean()) and row["difference_over"] == "8 classes"

    def p_value(difference: float) -> float:
        samples = (differences - difference,)
        flipped = stats.permutation_test(samples, np.mean, permutation_type="samples", n_resamples=np.inf)
        return float(flipped.pvalue)

    low, high = row["difference_low"], row["difference_high"]
    assert max(map(p_value, (low - 1e-6, high + 1e-6))) < 0.05 <= min(map(p_value, (low + 1e-6, high - 1e-6)))
    assert columns_of(ranked, RANKING)["mean"] == [
        f"{100 * table[method].mean():.1f} ± {100 * table[method].std():.1f}" for method in ranked["method"]
    ]
    caption = text(ranked, RANKING).splitlines()[1]
    assert caption.startswith("auroc_chosen: mean ± standard deviation over 8 classes; less vje: mean [95 % interval] ")
    assert "[95 % interval] paired by normal_class, over classes and not over seeds; " in caption
    seeds = text(rank(trials(), RANKING, "paper"), RANKING).splitlines()[1]
    assert "less vje: mean [95 % interval] over seeds; " in seeds


def test_a_class_that_a_seed_lacks_does_not_make_its_method_better() -> None:
    rows = trials()
    rows = rows[~((rows["method"] == "simclr") & (rows["seed"] == 2) & (rows["normal_class"] == 3))]
    own = rows[(rows["method"] == "simclr") & (rows["seed"] < 2)].groupby("seed")["auroc_chosen"].mean()
    row = row_of(rank(rows.reset_index(drop=True), RANKING, "paper"), "simclr")
    assert (row["mean"], row["replicates"], row["fixed"]) == (pytest.approx(own.mean()), 2, 4)


def shown(rows: pd.DataFrame) -> Shown:
    sweep = Sweep("methods", {"digits": Grid({"method": "vje"}, {"seed": (0, 1)})}, figures=(RANKING,))
    return Shown(figures_of(sweep, "digits"), rows, history=pd.DataFrame, hyperparameters=(), is_in_order=True)


def test_its_files_and_its_page_have_the_same_figures(tmp_path: Path) -> None:
    files, rows = Files(str(tmp_path)), trials()
    printed = publish(files, "sweep/digits", shown(rows), RANKING)
    written = pd.read_parquet(tmp_path / "rankings/sweep/digits/methods.parquet")
    pd.testing.assert_frame_equal(written, rank(rows, RANKING, "digits"), check_dtype=False)
    assert printed and printed.splitlines()[1] in (tmp_path / "rankings/sweep/digits/methods.md").read_text()
    page = on_page(shown(rows), RANKING)
    assert page and page["rows"] == ["method"]
    assert page["texts"] == {spread: columns_of(written, RANKING, spread=spread) for spread in SPREADS}
    assert page["texts"]["interval"] != page["texts"]["deviation"]
    assert json.dumps(page, allow_nan=False)


def test_the_figures_of_a_store_have_the_ranking_that_was_declared(tmp_path: Path) -> None:
    figures = shown(trials()).preset
    write_figures(Files(str(tmp_path)), "sweep", figures)
    found, problems = read_figures(Files(str(tmp_path)), "sweep")
    assert not problems and found["digits"].figures == figures.figures == (RANKING,)


def test_nothing_is_shown_of_no_trials(tmp_path: Path) -> None:
    none = shown(trials().iloc[:0])
    assert publish(Files(str(tmp_path)), "sweep/digits", none, RANKING) is None and not any(tmp_path.rglob("*.md"))
    assert on_page(none, RANKING) is None and "no value yet" in text(rank(none.rows, RANKING, "digits"), RANKING)


def test_a_reference_has_a_value_for_each_key_of_a_row() -> None:
    with pytest.raises(SpecError, match=r"ranking methods must be a tuple of length 1, but got \('vje', 1\)"):
        replace(RANKING, reference=("vje", 1))
