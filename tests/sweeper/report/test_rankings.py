"""Rankings: which metric each row has, what is beside it, and that the test images choose nothing but the leak."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeper.report.rankings import Ranked, columns_of, markdown, rank, text, write
from sweeper.spec import Metric
from sweeper.spec.views import Published, Ranking
from sweeper.storage.files import Files

METHODS, CLASSES, SEEDS, SCORES = (
    ("vje", "pixels", "simclr"),
    (0, 1, 2, 3),
    (0, 1, 2),
    ("auroc_own", "auroc_knn", "auroc_kde"),
)
RANKING = Ranking(
    "methods",
    ("method",),
    tuple(Metric(score, "maximize") for score in SCORES),
    "normal_class",
    "classes",
    ("vje",),
    "auroc_",
    {
        "digits": {
            (("csi",), None): Published(0.943),
            (("vje",), None): Published(0.9, True),
            (("vje",), 2): Published(0.8),
        }
    },
)


def trials(seed: int = 0) -> pd.DataFrame:
    """Trials of each method, class and seed. Pixels have one seed and no score of their own, which is null."""
    rng = np.random.default_rng(seed)
    rows = [
        {"method": method, "normal_class": of, "seed": number}
        | {f"{prefix}{score}": rng.uniform(0.5, 1) for prefix in ("", "val_") for score in SCORES}
        for method in METHODS
        for of in CLASSES
        for number in (SEEDS if method != "pixels" else (0,))
    ]
    rows = pd.DataFrame(rows)
    own = [f"{prefix}auroc_own" for prefix in ("", "val_")]
    rows.loc[rows["method"] == "pixels", own] = math.nan
    return rows


def row_of(ranked: Ranked, method: str) -> pd.Series:
    return ranked.rows.set_index("method").loc[method]


@settings(max_examples=20)
@given(st.integers(0, 200))
def test_every_row_has_the_score_that_validation_images_choose_for_each_class(seed: int) -> None:
    rows = trials(seed)
    ranked = rank(rows, RANKING, "paper")
    means = {}
    for method in METHODS:
        for of in CLASSES:
            own = rows[(rows["method"] == method) & (rows["normal_class"] == of)]
            validated = own[[f"val_{score}" for score in SCORES]].mean()
            chosen = validated.idxmax().removeprefix("val_")
            cell = ranked.tasks[(ranked.tasks["method"] == method) & (ranked.tasks["normal_class"] == of)].iloc[0]
            assert (cell["metric"], cell["runs"]) == (chosen, len(own))
            assert cell["mean"] == pytest.approx(own[chosen].mean())
            assert (
                cell["best_on_test"] == pytest.approx(own[list(SCORES)].mean().max())
                and cell["best_on_test"] >= cell["mean"] - 1e-9
            )
            means[method, of] = cell["mean"]
    table = np.array([[means[method, of] for of in CLASSES] for method in METHODS])
    for method, own, ranks in zip(METHODS, table, stats.rankdata(-table, axis=0).mean(1), strict=True):
        row = row_of(ranked, method)
        low, high = stats.t.interval(0.95, 3, own.mean(), stats.sem(own))
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((own.mean(), low, high))
        assert row["rank"] == pytest.approx(ranks) and row["validated"]
        if method != "vje":
            difference = stats.ttest_rel(own, table[0])
            low, high = difference.confidence_interval(0.95)
            found = (row["difference"], row["difference_low"], row["difference_high"])
            assert found == pytest.approx(((own - table[0]).mean(), low, high))
    assert ranked.rows["mean"].is_monotonic_decreasing


def test_test_images_choose_nothing_where_others_do() -> None:
    """What is best on test alone shows in its own column."""
    rows = trials()
    better = rows.assign(auroc_kde=1.0, val_auroc_kde=0.0)
    ranked = rank(better, RANKING, "digits")
    assert set(ranked.tasks["metric"].dropna()) <= {"auroc_own", "auroc_knn"} and (
        row_of(ranked, "vje")["best_on_test"] == 1
    )
    pd.testing.assert_series_equal(
        ranked.rows["mean"].dropna(), rank(rows.assign(val_auroc_kde=0.0), RANKING, "digits").rows["mean"].dropna()
    )


def test_without_validation_images_a_row_has_its_first_score_and_that_is_said() -> None:
    ranked = rank(trials()[["method", "normal_class", "seed", *SCORES]], RANKING, "digits")
    assert [row_of(ranked, method)["metric"] for method in METHODS] == ["auroc_own", "auroc_knn", "auroc_own"]
    assert not ranked.rows["validated"].any() and "a row has the first that it reports" in text(ranked, RANKING)
    assert "validation" not in text(ranked, RANKING)


def test_how_probable_a_better_run_is_counts_all_pairs_of_runs_of_each_class() -> None:
    rows = trials()
    rows["auroc_knn"] = rows["val_auroc_knn"] = (
        rows["normal_class"] / 10 + rows["seed"] / 100 + (rows["method"] == "simclr") / 100
    )
    rows["val_auroc_own"] = rows["val_auroc_kde"] = 0.0
    improved = row_of(rank(rows, RANKING, "digits"), "simclr")
    assert (
        improved["improved"] == pytest.approx((6 + 2 * 0.5) / 9) and improved["improved_low"] < improved["improved"] < 1
    )
    assert math.isnan(row_of(rank(rows, RANKING, "digits"), "pixels")["improved_low"]), "one run"


def test_figures_of_papers_are_beside_and_those_recalled_are_marked() -> None:
    ranked = rank(trials(), RANKING, "digits")
    columns, by_class = columns_of(ranked, RANKING)
    published = dict(zip(columns["method"], columns["published"], strict=True))
    assert (
        published == {"vje": "90.0 r", "pixels": "–", "simclr": "–", "csi": "94.3"} and columns["method"][-1] == "csi"
    )
    assert by_class["2"][by_class["method"].index("vje")].endswith(" (80.0)")
    document = markdown(ranked, RANKING)
    assert "r: recalled, not read" in document and "| csi " in document
    none = columns_of(rank(trials(), RANKING, "paper"), RANKING)[0]
    assert "published" not in none and "csi" not in none["method"]


def test_one_class_has_the_interval_over_seeds() -> None:
    ranked = rank(trials()[lambda rows: rows["normal_class"] == 1].reset_index(drop=True), RANKING, "digits")
    row = row_of(ranked, "vje")
    own = trials()[lambda rows: (rows["normal_class"] == 1) & (rows["method"] == "vje")][
        ranked.tasks.set_index("method")["metric"]["vje"]
    ]
    assert (row["low"], row["high"]) == pytest.approx(stats.t.interval(0.95, 2, own.mean(), stats.sem(own)))
    assert len(columns_of(ranked, RANKING)) == 1 and "over seeds" in text(ranked, RANKING)


def test_nothing_is_ranked_of_no_trials(tmp_path: Path) -> None:
    ranked = rank(trials().iloc[:0], replace(RANKING, published={}), "digits")
    write(Files(str(tmp_path)), "sweep/digits", ranked, RANKING)
    assert {path.name for path in tmp_path.rglob("*.*")} == {"methods.parquet", "methods-tasks.parquet", "methods.md"}
    assert ranked.rows.empty and "no value yet" in markdown(ranked, RANKING)
