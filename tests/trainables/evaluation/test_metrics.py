"""Every reported metric has a family, and every family is reported."""

from __future__ import annotations

import pytest

from trainables.catalog import METHODS
from trainables.evaluation.metrics import FAMILIES, family_of
from trainables.training.metric_names import reported_by


def test_every_reported_metric_has_a_family_and_every_family_is_reported() -> None:
    families = {name: family_of(name) for name in reported_by()}
    assert not [name for name, family in families.items() if family is None]
    silent = {name for name, family in FAMILIES.items() if family not in families.values()}
    assert silent == {"seconds"}, "which the driver knows, not the trial"


@pytest.mark.parametrize(
    ("metric", "family"),
    [
        ("knn_z", "knn"), ("knn_weighted_mu", "knn_weighted"), ("probe_top5_z", "probe_top5"), ("probe_z", "probe"),
        ("loss", "loss"), ("loss_kl", "loss_part"), ("var_cv", "var_cv"), ("auroc_rad_held_out", "auroc"),
    ],
)  # fmt: skip
def test_a_metric_is_of_the_family_with_the_longest_name(metric: str, family: str) -> None:
    assert family_of(metric) is FAMILIES[family]


def test_a_metric_that_only_shares_a_prefix_has_no_family() -> None:
    assert family_of("losses") is None and family_of("aurocs") is None and family_of("speed") is None


def test_metrics_are_reported_by_the_methods_that_can() -> None:
    methods_by_metric = reported_by()
    assert methods_by_metric["knn_z"] == tuple(METHODS)
    assert (
        methods_by_metric["auroc_joint"]
        == methods_by_metric["fpr95_entropy_held_out"]
        == methods_by_metric["posterior_entropy"]
        == ("vje",)
    )
    assert "random" in methods_by_metric["probe_top5_z"] and "loss_tau" not in methods_by_metric
