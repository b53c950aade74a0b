"""Every reported metric has a family, and every family is reported."""

import pytest

from trainables.metrics.meanings import FAMILIES, family_of
from trainables.training.metric_names import methods_by_metric

UNREPORTED = {"seconds"}
"""Families that no method reports: the driver measures the seconds."""


def test_every_reported_metric_has_a_family_and_every_family_is_reported() -> None:
    families = {name: family_of(name) for name in methods_by_metric()}
    assert not [name for name, family in families.items() if family is None]
    silent = {name for name, family in FAMILIES.items() if family not in families.values()}
    assert silent == UNREPORTED


@pytest.mark.parametrize(
    ("metric", "family"),
    [
        ("knn_z", "knn"), ("knn_weighted_mu", "knn_weighted"), ("probe_top5_z", "probe_top5"), ("probe_z", "probe"),
        ("knn_best_z", "knn_best"), ("knn_1", "knn_k"), ("knn_15_mu", "knn_k"), ("val_knn_2_z", "knn_k"),
        ("knn_1st", "knn"), ("probe_mlp_z", "probe_mlp"), ("probe_mlp_best_z", "probe_mlp_best"),
        ("probe_linear", "probe_linear"), ("style_ink_mu", "style"), ("nmi_batch64_z", "nmi_batch64"),
        ("gmm_accuracy_mu", "gmm_accuracy"), ("ari_z", "ari"), ("probe_5", "probe_few"), ("val_probe_10", "probe_few"),
        ("ess", "ess"), ("effective_rank", "effective_rank"),
        ("loss", "loss"), ("loss_kl", "loss_part"), ("var_cv", "var_cv"), ("auroc_rad_held_out", "auroc"),
    ],
)  # fmt: skip
def test_a_metric_is_of_the_family_with_the_longest_name(metric: str, family: str) -> None:
    assert family_of(metric) is FAMILIES[family]


def test_a_metric_that_only_shares_a_prefix_has_no_family() -> None:
    assert family_of("losses") is None and family_of("aurocs") is None and family_of("speed") is None


@pytest.mark.parametrize(("metric", "share"), [("probe_mlp_z", True), ("ari_z", True), ("diversity", False)])
def test_shares_can_be_shown_in_percent_even_if_chance_is_taken_off(metric: str, share: bool) -> None:
    family = family_of(metric)
    assert family is not None and family.share == share
