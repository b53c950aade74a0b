"""A method of the user that breaks the contract is refused on a tiny batch, and one that cannot be stacked trains its
members one by one, with the same results as alone; the names of reported metrics.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from sweeper.definition.user_code import search_folder
from tests.cases import for_each
from tests.trainables.methods.method_configs import config_of
from tests.trainables.metrics.evaluated import EVERYTHING, eval_config
from tests.trainables.small import HERE, IMAGE_METHODS, TracingCompiler, metrics_of
from tests.user_files import DENOISE, TWICE, user_folder
from trainables.catalog import ContractError
from trainables.config import resolve, resolve_sent
from trainables.sections import TrialConfig, Value
from trainables.training.checks import check_method, check_trials, stack_width, why_not_stacked
from trainables.training.metric_names import may_be_undefined, methods_by_metric, metric_names
from trainables.training.train import train

__all__ = ["user_folder"]

KEYS: dict[str, Value] = {"encoder": "mlp", "width": 8, "features": 4, "decoder": "relu_mlp", "decoder_hidden": "8"}


def _check(folder: Path, text: str, name: str = "X", keys: Mapping[str, Value] = KEYS) -> str:
    search_folder(folder)
    (folder / "checked_of_mine.py").write_text(f"{DENOISE}{TWICE}\n\n{text}\n")
    return check_method(resolve_sent({"method": f"checked_of_mine:{name}", **keys}))


@for_each("method", ["vje", "moco_v2", "vae", "gmje_mdn", "byol", "random", "gmje_parametric"])
def test_methods_that_ship_pass(method: str) -> None:
    """They have scores, a queue, a decoder, noise, averaged weights, nothing that trains, and a density."""
    state = torch.get_rng_state()
    assert check_method(config_of(method, normal_class=None)) == ""
    assert torch.equal(torch.get_rng_state(), state)


def test_a_method_that_looks_at_values_cannot_be_stacked(user_folder: Path) -> None:
    why = _check(user_folder, "", "Twice")
    assert why.startswith("checked_of_mine.py, line ") and ".item()" in why and "\n" not in why
    assert _check(user_folder, "", "Denoise") == ""


COUNTED = """
class X(Denoise):
    count = 0
    def losses(self, batch, noise):
        X.count += torch.is_grad_enabled() and not torch._C._functorch.is_batchedtensor(self.sigma)
        losses = super().losses(batch, noise)
        return Losses(losses.total * (2 if torch._C._functorch.is_batchedtensor(self.sigma) else 1), {})
"""


def test_a_method_that_learns_otherwise_when_stacked_is_not_stacked(user_folder: Path) -> None:
    assert _check(user_folder, COUNTED) == "stacked members have different losses from members alone"


BROKEN = {
    "draws": (
        "    def losses(self, batch, noise):\n        losses = super().losses(batch, noise)\n"
        "        return Losses(losses.total * torch.rand(()), {})",
        "losses must draw no random numbers (declare them in noise(batch) and take them as an argument)",
    ),
    "returns": (
        "    def losses(self, batch, noise):\n        return super().losses(batch, noise).total",
        "losses must return sweeper.Losses(total, parts), but got a tensor of shape []",
    ),
    "vector": (
        "    def losses(self, batch, noise):\n        return Losses(batch['views'][0].mean((1, 2, 3)), {})",
        "losses must return scalar tensors, but got total is a tensor of shape [8]",
    ),
    "infinite": (
        "    def losses(self, batch, noise):\n        return Losses(super().losses(batch, noise).total / 0, {})",
        "the loss of random examples must be finite, but got total=inf",
    ),
    "parts": (
        "    def losses(self, batch, noise):\n        losses = super().losses(batch, noise)\n"
        "        return Losses(losses.total, {'b': losses.total})",
        "loss_parts must list all parts of losses, but got () and the parts b",
    ),
    "raises": (
        "    def losses(self, batch, noise):\n        a, b, c = batch['views']",
        "losses must work on a batch of 8 random examples, but got checked_of_mine.py, line 42: ValueError: not enough",
    ),
    "writes": (
        "    def losses(self, batch, noise):\n        batch['views'][0].clamp_(0.1)\n"
        "        return super().losses(batch, noise)",
        "losses must leave its inputs as they are, but got an operation changes them in place",
    ),
    "frozen": (
        "    def __init__(self, *a):\n        super().__init__(*a)\n        self.requires_grad_(False)",
        "a method that trains must have weights to train, but got none, or all of them frozen",
    ),
    "unused": (
        "    def __init__(self, *a):\n        super().__init__(*a)\n        self.more = nn.Linear(2, 2)",
        "losses must use all parameters (register averaged weights as buffers), but got more.weight, more.bias "
        "without a gradient",
    ),
    "freezes": (
        "    def losses(self, batch, noise):\n        next(self.parameters()).requires_grad_(False)\n"
        "        return super().losses(batch, noise)",
        "losses must leave `requires_grad` of all weights as it is (freeze them in __init__ or train), but got ",
    ),
    "embeds": (
        "    def embed(self, images):\n        return {'z': self(images).mean(1)}",
        "embed must return a dict with 'z' of shape [8, D], but got a tensor of shape [8]",
    ),
    "represents": (
        "    representations = ('z', 'mu')",
        "embed must return a dict with 'mu' of shape [8, D], but got none",
    ),
    "scores": (
        "    capabilities = frozenset({'embed', 'score'})\n    scores = ('a',)\n"
        "    def score(self, images, noise):\n        return {'b': images.mean((1, 2, 3))}",
        "score must return a, each of shape [8], but got 'b' is a tensor of shape [8]",
    ),
    "decodes": (
        "    capabilities = frozenset({'embed', 'decode'})\n    def decode(self, z):\n        return z",
        "decode must return images of shape [8, 1, 8, 8], but got a tensor of shape [8, 4]",
    ),
    "classifies": (
        "    capabilities = frozenset({'embed', 'classify'})\n    def classify(self, images):\n"
        "        return self(images)",
        "classify must return logits of shape [8, 10], but got a tensor of shape [8, 4]",
    ),
    "density": (
        "    capabilities = frozenset({'embed', 'density'})\n    def density(self):\n"
        "        return {'logits': torch.zeros(3), 'means': torch.zeros(3, 4), 'covariances': torch.zeros(3, 4)}",
        "density must return a dict with 'covariances' of shape [3, 4, 4], but got a tensor of shape [3, 4]",
    ),
}


PAIRS = """
from sweeper import ConditionalDensity, PairsMethod


@dataclass(frozen=True)
class LineConfig:
    ridge: float = 0.1
    \"\"\"Weight of the squared slope.\"\"\"


class Line(PairsMethod):
    Config = LineConfig
    fusible = frozenset({"ridge"})

    def __init__(self, config, networks, shapes):
        super().__init__(config, networks, shapes)
        self.line = nn.Linear(shapes["x"][0], 1)

    def losses(self, batch, noise):
        error = (self.line(batch["x"])[:, 0] - batch["y"]).square().mean()
        return Losses(error + self.ridge * self.line.weight.square().sum(), {})

    def predict(self, x):
        mean = self.line(x).float()
        return ConditionalDensity(torch.zeros_like(mean), mean, torch.ones_like(mean))


"""
"""A method of pairs that keeps the contract and can be stacked."""
BROKEN_PAIRS = {
    "losses": (
        "    def losses(self, batch, noise):\n        return Losses(batch['x'], {})",
        "losses must return scalar tensors, but got total is a tensor of shape [8, 1]",
    ),
    "kind": (
        "    def predict(self, x):\n        return self.line(x)",
        "predict must return sweeper.ConditionalDensity(log_weights_BM, means_BM, sigmas_BM), but got a "
        "tensor of shape [8, 1]",
    ),
    "shape": (
        "    def predict(self, x):\n        return ConditionalDensity(x, x[:, 0], x)",
        "predict must return sweeper.ConditionalDensity(log_weights_BM, means_BM, sigmas_BM), each of "
        "shape [8, 1], but got means_BM is a tensor of shape [8]",
    ),
    "sigmas": (
        "    def predict(self, x):\n        return ConditionalDensity(0 * x, x, 0 * x)",
        "the standard deviations of predict must be above 0, but got 0",
    ),
    "weights": (
        "    def predict(self, x):\n        return ConditionalDensity(0 * x + 1, x, 0 * x + 1)",
        "the weights of predict, exp(log_weights_BM), must sum to 1, but got 2.71828",
    ),
}


def test_methods_of_pairs_are_tried_too(user_folder: Path) -> None:
    reads = "class Y(Line):\n    def predict(self, x):\n        return super().predict(x * self.line.bias.item())"
    assert _check(user_folder, f"{PAIRS}{reads}", "Line", {}) == ""
    why = _check(user_folder, f"{PAIRS}{reads}", "Y", {})
    assert why.startswith("checked_of_mine.py, line ") and ".item()" in why, why


@pytest.mark.parametrize("method", ["gmje_em", "gmje_mdn_pairs", "gaussian_process"])
def test_methods_of_pairs_that_ship_pass(method: str) -> None:
    """Two are fitted to all pairs at once, one of which keeps them."""
    assert check_method(resolve({"method": method})) == ""


@pytest.mark.parametrize("name", BROKEN_PAIRS)
def test_a_broken_promise_of_a_method_of_pairs_is_refused(user_folder: Path, name: str) -> None:
    text, law = BROKEN_PAIRS[name]
    with pytest.raises(ContractError) as refused:
        _check(user_folder, f"{PAIRS}class X(Line):\n{text}", keys={})
    assert str(refused.value).endswith(f"breaks the contract of methods: {law}"), refused.value


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_refused_with_law_and_offender(user_folder: Path, name: str) -> None:
    text, law = BROKEN[name]
    with pytest.raises(ContractError) as refused:
        _check(user_folder, f"class X(Denoise):\n{text}")
    message = str(refused.value)
    assert message.startswith(f"the method checked_of_mine:X breaks the contract of methods: {law}"), message
    assert "\n" not in message


LABELLED = """

class Labelled(Denoise):
    reads = frozenset({"views", "labels"})
    capabilities = frozenset({"embed", "classify"})

    def __init__(self, config, networks, shapes):
        super().__init__(config, networks, shapes)
        self.classifier = nn.Linear(self.features, self.classes)

    def losses(self, batch, noise):
        losses, logits = super().losses(batch, noise), self.classifier(self(batch["views"][0]))
        error = nn.functional.cross_entropy(logits, batch["labels"])
        return losses._replace(total=losses.total + error)

    def classify(self, images):
        return self.classifier(self(images)).float()
"""


def test_a_method_of_the_user_can_read_labels_and_classify(user_folder: Path, tmp_path: Path) -> None:
    search_folder(user_folder)
    (user_folder / "labelled_of_mine.py").write_text(DENOISE + LABELLED)
    keys: dict[str, Value] = {"method": "labelled_of_mine:Labelled", "encoder": "mlp", "width": 8, "features": 4}
    configs = [resolve_sent({**keys, "epochs": 1, "lr": lr}) for lr in (0.01, 0.1)]
    assert why_not_stacked(configs[0]) == "" and stack_width(configs, None) == 2
    (*_, report) = train(configs, tmp_path)
    assert all({"accuracy", "top5", "nll", "ece"} <= member.metrics.keys() for member in report.members)
    with pytest.raises(ValueError, match="needs the label of every training image and several classes"):
        resolve_sent({**keys, "normal_class": 0})


@pytest.mark.usefixtures("pairs")
def test_results_are_in_the_order_of_the_trials_whatever_their_tasks() -> None:
    pairs = resolve({"method": "gaussian_mlp", "examples": 120, "batch_size": 30})
    images = resolve({"method": "vje", "batch_size": 60, "knn": 5, "probe_epochs": 1})
    results = check_trials([pairs, images, pairs], HERE)
    assert [result.steps for result in results] == [4, 21, 4] and results[0] == results[2]
    assert results[1].metrics == metric_names(images, 10) and results[0].metrics == metric_names(pairs, 0)
    assert results[1].metrics_during_training == metric_names(images, 10, last=False) != results[1].metrics


def test_no_trials_have_no_results() -> None:
    assert check_trials([], HERE) == []


@pytest.fixture
def trials(user_folder: Path) -> list[TrialConfig]:
    """Three trials of a method that cannot be stacked."""
    search_folder(user_folder)
    (user_folder / "unstacked_of_mine.py").write_text(DENOISE + TWICE)
    keys: dict[str, Value] = {
        "method": "unstacked_of_mine:Twice",
        "encoder": "mlp",
        "width": 8,
        "features": 4,
        "epochs": 1,
        "knn": 5,
    }
    return [resolve_sent({**keys, "sigma": sigma}) for sigma in (0.1, 0.2, 0.4)]


def test_only_methods_of_the_user_are_tried(trials: list[TrialConfig]) -> None:
    assert why_not_stacked(trials[0]) and stack_width(trials, None) == stack_width(trials, 2) == 1
    shipped = [resolve({"method": "vje", "seed": seed}) for seed in range(3)]
    assert not why_not_stacked(shipped[0]) and stack_width(shipped, None) == 3 and stack_width(shipped, 2) == 2


def test_they_train_together_as_alone(trials: list[TrialConfig], tmp_path: Path) -> None:
    (*_, together) = train(trials, tmp_path)
    for trial, member in zip(trials, together.members, strict=True):
        (*_, alone) = train([trial], tmp_path)
        assert member.status == "finished" and member.metrics.keys() == alone.members[0].metrics.keys()
        for name, value in member.metrics.items():
            assert value == pytest.approx(alone.members[0].metrics[name], rel=1e-5)


def test_their_steps_are_not_compiled(trials: list[TrialConfig], tmp_path: Path) -> None:
    """They may have numbers of their own that are no tensors, which one code for all would not have."""
    compiler = TracingCompiler()
    (*_, report) = train(trials, tmp_path, compiler=compiler)
    assert not compiler.traced and not compiler.compiled
    assert {member.status for member in report.members} == {"finished"}


def _few_steps(method: str = "vje", /, **changes: Value) -> TrialConfig:
    return eval_config(method, **{"batch_size": 60 if "normal_class" in changes else 420, **changes})


@pytest.mark.slow
@for_each(
    ("config", "beginnings"),
    [
        (_few_steps(**EVERYTHING, held_out="3"), ("loss", "knn", "probe", "var", "auroc", "aupr", "fpr95")),
        (_few_steps(**{**EVERYTHING, "outliers": "held_out+noise"}, held_out="3+5"), ("loss", "auroc", "fpr95")),
        (_few_steps(), ("loss", "var")),
        (_few_steps(knn=1), ("loss", "knn_z", "knn_mu", "knn_weighted_mu", "var_cv")),
        (
            _few_steps("simsiam", knn=3, probe_epochs=1),
            ("loss", "knn_z", "knn_weighted_z", "probe_z", "probe_top5_z"),
        ),
        (_few_steps("simsiam"), ("loss",)),
        (
            _few_steps("smc_gmje", bank=16, few_labels=2, geometry="projection"),
            ("loss", "ess", "bank_distinct", "bank_age", "probe_2", "volume"),
        ),
        (_few_steps("simsiam", normal_class=3), ("loss",)),
        (_few_steps("random", probe_epochs=1), ("probe_z", "probe_top5_z")),
    ],
)
def test_reported_metrics_are_those_of_metric_names_in_order(config: TrialConfig, beginnings: tuple[str, ...]) -> None:
    names = [name for name in metric_names(config, 10) if name != "loss" or config.training.epochs]
    assert list(metrics_of(list(train([config], HERE)), 0)[-1]) == names == list(dict.fromkeys(names))
    assert all(any(name.startswith(beginning) for name in names) for beginning in beginnings)


@for_each(
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
    assert methods["loss_reconstruction"] == ("beta_vae", "cr_vae", "deep_svdd", "simvae", "vae")


def test_a_measure_beside_the_loss_has_its_own_name() -> None:
    methods = methods_by_metric()
    assert methods["ess"] == ("smc_gmje", "smc_joint_gmje") and "loss_ess" not in methods
    assert "loss_nll" in methods and methods["nll"] == ("classifier",)  # a metric of test images
