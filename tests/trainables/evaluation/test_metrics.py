"""Every reported metric has a family, and every family is reported."""

import pytest

from trainables.evaluation.metrics import FAMILIES, family_of
from trainables.training.metric_names import methods_by_metric


def test_every_reported_metric_has_a_family_and_every_family_is_reported() -> None:
    families = {name: family_of(name) for name in methods_by_metric()}
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
