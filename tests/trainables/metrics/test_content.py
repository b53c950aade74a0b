"""Probes, neighbours and clusters of SimVAE's evaluation: on which features and labels, and of which members.

Shapes: K members, N images, D dimensions.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, confusion_matrix, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from tests.cases import for_each
from tests.trainables.metrics.evaluated import evaluated, features, tiny, trial
from tests.trainables.training.judged import float64
from trainables.data.datasets.dataset import Dataset
from trainables.data.splits import hold_out_validation
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import numpy_seed
from trainables.methods.variational.vae import VAE
from trainables.metrics import clustering, probes
from trainables.sections import Value

pytestmark = pytest.mark.usefixtures("tiny_datasets")

TINT = tiny("digits_tint")
CONTENT: dict[str, Value] = {
    "dataset": "digits_tint", "content_probe_epochs": 2, "content_probe_lr": 0.01, "content_probe_batch_size": 16,
    "content_knn": 4, "gmm_n_init": 1, "styles": "hue+ink",
}  # fmt: skip


def _members(**changes: Value) -> list[ImageTrial]:
    return [
        trial("vae", **{**CONTENT, "sigma_x2": sigma_x2, "seed": seed, **changes})
        for sigma_x2, seed in ((0.1, 0), (7.0, 1), (1.0, 0))
    ]


def _classes_left(dataset: Dataset, held_out: str) -> tuple[Tensor, Tensor]:
    """Which training and test images are of classes that are not held out."""
    out = torch.tensor([int(name) for name in held_out.split("+") if name], dtype=torch.long)
    return ~torch.isin(dataset.train_labels, out), ~torch.isin(dataset.test_labels, out)


@for_each("method", ["vae", "simclr", "vje"])
@for_each("held_out", ["", "0+4"])
def test_neighbours_are_the_nearest_by_distance_for_each_k(method: str, held_out: str) -> None:
    """Those of the representation z, of images that are normalised first."""
    config = trial(method, dataset="digits_tint", content_knn=6, held_out=held_out)
    metrics, (learnt_N, tested_N) = evaluated(config), _classes_left(TINT, held_out)
    bank, test = (
        features(config, images[mask_N], TINT).double().numpy()
        for images, mask_N in ((TINT.train_images, learnt_N), (TINT.test_images, tested_N))
    )
    for k in range(1, 7):
        nearest = KNeighborsClassifier(k).fit(bank, TINT.train_labels[learnt_N])
        expected = nearest.score(test, TINT.test_labels[tested_N])
        assert metrics[f"knn_{k}"].tolist() == pytest.approx([expected])
    assert metrics["knn_best"] == max(metrics[f"knn_{k}"] for k in range(1, 7)) and "knn_7" not in metrics


@pytest.mark.parametrize("held_out", ["", "0+4"])
def test_clusters_are_those_of_a_mixture_with_a_component_for_each_class(held_out: str) -> None:
    """Classes that are held out have none. Of fewer than 64 images, one batch has all."""
    config = trial("vae", dataset="digits_tint", gmm_n_init=2, held_out=held_out)
    metrics, (learnt_N, tested_N) = evaluated(config), _classes_left(TINT, held_out)
    bank, test = (
        features(config, images[mask_N], TINT).double().numpy()
        for images, mask_N in ((TINT.train_images, learnt_N), (TINT.test_images, tested_N))
    )
    seed = numpy_seed("clusters", "digits_tint", 0)
    mixture = GaussianMixture(len(TINT.train_labels[learnt_N].unique()), n_init=2, random_state=seed).fit(bank)
    clusters_M, labels_M = mixture.predict(test), TINT.test_labels[tested_N].numpy()
    table = confusion_matrix(labels_M, clusters_M)
    expected = {
        "gmm_accuracy": table[linear_sum_assignment(-table)].sum() / len(labels_M),
        "nmi": normalized_mutual_info_score(labels_M, clusters_M),
        "ari": adjusted_rand_score(labels_M, clusters_M),
    }
    for name, value in expected.items():
        assert metrics[name].tolist() == pytest.approx([value]) == metrics[f"{name}_batch64"].tolist()


class Recorded:
    """Calls of `probes.adam_accuracies`, which are still made, but whose best accuracies are told from the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any], probes.Accuracies]] = []
        real = probes.adam_accuracies

        def accuracies(*arguments: Any, **options: Any) -> probes.Accuracies:
            last = real(*arguments, **options).last
            shares = probes.Accuracies(last, last + 1)
            self.calls.append((arguments, options, shares))
            return shares

        monkeypatch.setattr(probes, "adam_accuracies", accuracies)


@pytest.mark.parametrize("width", [0, 9])
def test_probes_learn_classes_and_styles_from_the_representation(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear one and one with a hidden layer, by default as wide as the representation, of the class, and the latter
    of each style that is asked for."""
    recorded, config = Recorded(monkeypatch), trial("vae", **{**CONTENT, "content_probe_width": width})
    metrics = evaluated(config)
    bank_ND, test_MD = (features(config, images, TINT) for images in (TINT.train_images, TINT.test_images))
    hue, ink, hidden = TINT.attributes["hue"], TINT.attributes["ink"], (width or 6,)
    labels = [(TINT.train_labels, TINT.test_labels, 10)] * 2
    labels += [(style.train_labels, style.test_labels, 5) for style in (hue, ink)]
    for (arguments, options, _), (train_N, test_M, classes), layers in zip(
        recorded.calls, labels, [(), hidden, hidden, hidden], strict=True
    ):
        data, schedule = arguments
        torch.testing.assert_close(data.bank_KND, bank_ND[None])
        torch.testing.assert_close(data.test_KMD, test_MD[None])
        assert torch.equal(data.bank_labels_N, train_N) and torch.equal(data.test_labels_M, test_M)
        assert (data.classes, options["hidden"]) == (classes, layers)
        assert (schedule.epochs, schedule.lr, schedule.batch_size) == (2, 0.01, 16)
    linear, mlp, *styles = [shares for _, _, shares in recorded.calls]
    expected = {"probe_linear": linear.last, "probe_linear_best": linear.best, "probe_mlp": mlp.last}
    expected |= {"probe_mlp_best": mlp.best, "style_hue": styles[0].last, "style_ink": styles[1].last}
    assert all(metrics[name].tolist() == values.tolist() for name, values in expected.items())


def test_probes_of_equal_trials_are_equal_and_draw_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    first, again = (evaluated(trial("vae", **CONTENT)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert {name: values.tolist() for name, values in first.items()} == {
        name: values.tolist() for name, values in again.items()
    }


def test_the_clusters_of_a_trial_start_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one stack or several."""
    starts: list[int] = []
    real = clustering.cluster_scores

    def cluster_scores(*arguments: Any, **options: Any) -> dict[str, float]:
        starts.append(options["random_state"])
        return real(*arguments, **options)

    monkeypatch.setattr(clustering, "cluster_scores", cluster_scores)
    for width in (None, 1):
        evaluated(*(trial("vae", dataset="digits_tint", gmm_n_init=1, seed=seed) for seed in (3, 3, 8)), width=width)
    assert starts[0] == starts[1] != starts[2] and starts[3:] == starts[:3]


def test_a_probe_starts_by_the_seed_of_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of equal representations and different seeds have different probes, in one stack or several. A metric is
    the mean over three starts."""
    recorded = Recorded(monkeypatch)
    for width in (None, 1):
        evaluated(*(trial("vae", **{**CONTENT, "styles": "", "seed": seed}) for seed in (3, 3, 8)), width=width)
    drawn = [torch.rand(4, generator=g) for _, options, _ in recorded.calls for g in options["initial_generators"]]
    fused, alone = drawn[:6], drawn[6:]
    assert all(options["starts"] == 3 for _, options, _ in recorded.calls)
    assert torch.equal(fused[0], fused[1]) and not torch.equal(fused[0], fused[2])
    assert all(torch.equal(fused[member], alone[2 * member]) for member in range(3))


def test_validation_images_are_judged_like_test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """With features and labels of their own, and a bank without them."""
    recorded, config = Recorded(monkeypatch), trial("vae", **CONTENT, validation=0.25)
    metrics, parts = evaluated(config), hold_out_validation(TINT, 0.25)
    for index, (prefix, part) in enumerate(zip(("", "val_"), parts, strict=True)):
        bank_ND, test_MD = (features(config, images, TINT) for images in (part.train_images, part.test_images))
        nearest = KNeighborsClassifier(1).fit(bank_ND.numpy(), part.train_labels)
        assert metrics[f"{prefix}knn_1"].tolist() == [nearest.score(test_MD.numpy(), part.test_labels)]
        hue, ((data, _), _, shares) = part.attributes["hue"], recorded.calls[4 * index + 2]
        assert torch.equal(data.bank_labels_N, hue.train_labels)
        assert torch.equal(data.test_labels_M, hue.test_labels)
        assert metrics[f"{prefix}style_hue"].tolist() == shares.last.tolist()
    assert len(recorded.calls) == 8 and len(parts[1].test_labels) == 30


def test_features_that_are_not_finite_leave_other_members_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    clean, real = evaluated(*_members()), VAE.embed

    def embed(self: VAE, images_BCHW: Tensor) -> dict[str, Tensor]:
        vectors = real(self, images_BCHW)
        return vectors | {"z": torch.where(self.sigma_x2 == 7, torch.nan, vectors["z"])}

    monkeypatch.setattr(VAE, "embed", embed)
    metrics = evaluated(*_members())
    assert metrics.keys() == clean.keys()
    for name, values_K in metrics.items():
        assert np.isnan(values_K[1]) == (not name.startswith("var_")), name
        np.testing.assert_array_equal(values_K[[0, 2]], clean[name][[0, 2]], name)


def test_members_in_several_stacks_have_the_metrics_of_one_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, so that no image changes sides."""
    with float64(monkeypatch):
        fused, halves, alone = (evaluated(*_members(), width=width) for width in (None, 2, 1))
    for other in (halves, alone):
        assert list(other) == list(fused)
        for name, values_K in fused.items():
            np.testing.assert_allclose(other[name], values_K, rtol=1e-6, err_msg=name)
    assert len(set(fused["knn_best"])) > 1


def test_a_collapsed_representation_has_no_clusters_but_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VAE, "embed", lambda self, images: {"z": torch.ones(len(images), 6), "var": torch.ones(1, 6)})
    metrics = evaluated(trial("vae", **CONTENT))
    undefined = {name for name, values_K in metrics.items() if np.isnan(values_K).any()}
    assert undefined == set(clustering.METRICS)
