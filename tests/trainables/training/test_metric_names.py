"""The names of reported metrics: in order, by configuration, and by method."""

import pytest

from tests.trainables.metrics.evaluated import EVERYTHING, eval_config
from tests.trainables.small import HERE, IMAGE_METHODS, metrics_of
from trainables.sections import TrialConfig
from trainables.training.metric_names import may_be_undefined, methods_by_metric, metric_names
from trainables.training.train import train


@pytest.mark.parametrize(
    ("config", "beginnings"),
    [
        (eval_config(**EVERYTHING, held_out="3"), ("loss", "knn", "probe", "var", "auroc", "aupr", "fpr95")),
        (eval_config(**{**EVERYTHING, "outliers": "held_out+noise"}, held_out="3+5"), ("loss", "auroc", "fpr95")),
        (eval_config(), ("loss", "var")),
        (eval_config(knn=1), ("loss", "knn_z", "knn_mu", "knn_weighted_mu", "var_cv")),
        (
            eval_config("simsiam", knn=3, probe_epochs=1),
            ("loss", "knn_z", "knn_weighted_z", "probe_z", "probe_top5_z"),
        ),
        (eval_config("simsiam"), ("loss",)),
        (
            eval_config("smc_gmje", bank=16, few_labels=2, geometry="projection"),
            ("loss", "ess", "bank_distinct", "bank_age", "probe_2", "volume"),
        ),
        (eval_config("simsiam", normal_class=3), ("loss",)),
        (eval_config("random", probe_epochs=1), ("probe_z", "probe_top5_z")),
    ],
)
def test_reported_metrics_are_those_of_metric_names_in_order(config: TrialConfig, beginnings: tuple[str, ...]) -> None:
    names = [name for name in metric_names(config, 10) if name != "loss" or config.training.epochs]
    assert list(metrics_of(list(train([config], HERE)), 0)[-1]) == names == list(dict.fromkeys(names))
    assert all(any(name.startswith(beginning) for name in names) for beginning in beginnings)


@pytest.mark.parametrize(
    ("metric", "undefined"),
    [
        *(("var_cv", True), ("var_mean", False), ("knn_z", False), ("loss", False), ("loss_kl", False)),
        *(("gmm_accuracy", True), ("nmi_batch64", True), ("ari", True), ("probe_mlp", False), ("style_ink", False)),
        *(("reconstruction_mse", False), ("frechet_digits", True), ("diversity", False)),
    ],
)
def test_a_metric_may_be_undefined_by_its_family_on_test_and_on_validation_images(metric: str, undefined: bool) -> None:
    assert may_be_undefined(metric) == may_be_undefined(f"val_{metric}") == undefined
    assert not may_be_undefined("of no family")


def test_each_metric_is_mapped_to_the_methods_that_can_report_it() -> None:
    methods = methods_by_metric()
    assert methods["knn_z"] == tuple(IMAGE_METHODS)
    assert methods["auroc_joint"] == methods["fpr95_entropy_held_out"] == methods["posterior_entropy"] == ("vje",)
    assert "random" in methods["probe_top5_z"] and "loss_tau" not in methods


def test_metrics_of_content_and_of_decoded_images_are_mapped_to_every_method_and_parts_of_losses_to_their_own() -> None:
    methods = methods_by_metric()
    content = ("probe_linear", "probe_mlp_best", "knn_1", "knn_best", "gmm_accuracy_batch64", "ari", "style_hue")
    for metric in (*content, "reconstruction_mse", "sample_accuracy", "frechet_digits", "diversity", "fid"):
        assert methods[metric] == methods[f"val_{metric}"] == tuple(IMAGE_METHODS), metric
    assert methods["loss_consistency"] == ("cr_vae",) and methods["loss_centre_norm"] == ("simvae",)
    assert methods["loss_reconstruction"] == ("beta_vae", "cr_vae", "simvae", "vae")


def test_a_measure_beside_the_loss_has_its_own_name() -> None:
    methods = methods_by_metric()
    assert methods["ess"] == ("smc_gmje", "smc_joint_gmje") and "loss_ess" not in methods
    assert "loss_nll" in methods and "nll" not in methods
