"""Densities of representations: which one is sampled, by what noise, what is judged, and of which members.

Shapes: K members, N images, S samples, D dimensions.
"""

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.trainables.small import HERE
from tests.trainables.tasks.images.evaluators.tiny import CPU, evaluated, features, model_of, pixels_of, tiny, trial
from trainables.contract import Noise
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import draw_noise
from trainables.methods.gaussian.gmje_parametric import ParametricGMJE
from trainables.metrics import generation, latent_density, sample_quality
from trainables.metrics.latent_density import Mixture, sample, to_sphere
from trainables.metrics.sample_classifiers import digits_classifier
from trainables.metrics.sample_quality import confident_coverage, confident_share, frechet_digits
from trainables.sections import Value
from trainables.training.cohort import Cohort

pytestmark = pytest.mark.usefixtures("tiny_datasets")

DIGITS, D, M, S = tiny("digits"), 6, 4, 32
SURE = 0.6
SAMPLED: dict[str, Value] = {
    "projector_width": 0, "adhoc_epochs": 2, "adhoc_lr": 0.01, "density_samples": S, "density_components": M,
    "density_confidence": SURE,
}  # fmt: skip


def _trial(method: str, density: str, **changes: Value) -> ImageTrial:
    own: dict[str, Value] = {"prototypes": M} if method == "gmje_parametric" else {}
    return trial(method, **SAMPLED, **own, density=density, **changes)


def _noise() -> tuple[Tensor, Tensor]:
    """Sixteen samples of each of the seeds 1000 and 1001."""
    noises = {"uniform": Noise((16,), kind="uniform"), "normal": Noise((16, D))}
    drawn = [draw_noise(noises, "density", seed) for seed in (1000, 1001)]
    return torch.cat([noise["uniform"] for noise in drawn]), torch.cat([noise["normal"] for noise in drawn])


def _kept_decoders(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    kept: list[Any] = []
    real = generation.train_adhoc_decoder

    def train(decoder: Any, bank_ND: Tensor, *others: Any, **options: Any) -> Any:
        kept.append((bank_ND, real(decoder, bank_ND, *others, **options)))
        return kept[-1][1]

    monkeypatch.setattr(generation, "train_adhoc_decoder", train)
    return kept


@pytest.fixture(autouse=True)
def few_images_have_a_frechet_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_quality, "FRECHET_IMAGES", 32)


@torch.no_grad()
@pytest.mark.parametrize("density", ["own", "own_weighted"])
def test_samples_of_the_methods_own_density_are_decoded_and_judged(
    density: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a decoder of unit representations; uniform weights, or learned ones."""
    decoders, config = _kept_decoders(monkeypatch), _trial("gmje_parametric", density)
    cohort = Cohort([config], HERE, CPU, None)
    cohort._stacks[0].parameters["method.logits_M"].copy_(torch.tensor([[3.0, 0.0, -2.0, 1.0]]))
    metrics, model = cohort.evaluate(True), model_of(config)
    assert isinstance(model, ParametricGMJE)
    ((bank_ND, trained),) = decoders
    torch.testing.assert_close(bank_ND, to_sphere(features(config, DIGITS.train_images, DIGITS)), rtol=1e-3, atol=1e-5)
    logits = torch.tensor([3.0, 0.0, -2.0, 1.0]) if density == "own_weighted" else torch.zeros(M)
    means, covariance = model.means_MJ[:, :D], model.moment_JJ[:D, :D]
    mixture = Mixture(logits, means, covariance.expand(M, D, D))
    images = trained.decoder(to_sphere(sample(mixture, *_noise())).float())
    probabilities = digits_classifier()(images).softmax(-1)
    assert metrics["sample_confident"][0] == pytest.approx(confident_share(probabilities, SURE).item())
    assert metrics["sample_coverage"][0] == pytest.approx(confident_coverage(probabilities, SURE).item())
    real = pixels_of(DIGITS.test_images, DIGITS)
    assert metrics["frechet_digits"][0] == pytest.approx(frechet_digits(images, real).item(), rel=1e-3)
    assert metrics["density_volume"][0] == pytest.approx(np.linalg.slogdet(covariance.double().numpy())[1], rel=1e-5)
    assert metrics["density_trace"][0] == pytest.approx(covariance.trace().item(), rel=1e-5)
    distances = [np.linalg.norm(means[i] - means[j]) for i in range(M) for j in range(i)]
    assert metrics["spread"][0] == pytest.approx(np.mean(distances), rel=1e-5)


def test_fitted_densities_are_of_the_unit_representations_of_training_images() -> None:
    """Of as many as `density_images` allows."""
    z_ND = to_sphere(features(_trial("simclr", "gmm"), DIGITS.train_images, DIGITS)).double().numpy()
    metrics = evaluated(_trial("simclr", "gaussian"))
    assert metrics["density_trace"][0] == pytest.approx(np.cov(z_ND.T, bias=True).trace() + D * 1e-6, rel=1e-3)
    assert math.isnan(metrics["spread"][0])
    fewer = evaluated(_trial("simclr", "gaussian", density_images=40))
    assert fewer["density_trace"][0] != metrics["density_trace"][0]
    mixture = evaluated(_trial("simclr", "gmm"))
    assert mixture["spread"][0] > 0 and mixture["density_trace"][0] < metrics["density_trace"][0]
    assert mixture["density_volume"][0] < metrics["density_volume"][0]


@pytest.mark.parametrize("width", [None, 1])
def test_a_fitted_mixture_starts_by_the_seed_of_its_trial(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    real = latent_density.fit_gmm

    def fit_gmm(z_ND: Tensor, components: int, steps: int, random_state: int) -> Mixture:
        starts.append(random_state)
        return real(z_ND, components, steps, random_state)

    monkeypatch.setattr(latent_density, "fit_gmm", fit_gmm)
    evaluated(*(_trial("simclr", "gmm", seed=seed) for seed in (3, 3, 8)), width=width)
    assert starts[0] == starts[1] != starts[2]


@torch.no_grad()
def test_test_images_and_their_representations_are_references(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = pixels_of(DIGITS.test_images, DIGITS)
    metrics = evaluated(trial("pixels", density="images", density_confidence=SURE))
    probabilities = digits_classifier()(pixels).softmax(-1)
    assert {name: values.tolist() for name, values in metrics.items()} == {
        "sample_confident": [confident_share(probabilities, SURE).item()],
        "sample_coverage": [confident_coverage(probabilities, SURE).item()],
    }
    decoders, config = _kept_decoders(monkeypatch), _trial("simclr", "latents")
    metrics = evaluated(config)
    images = decoders[0][1].decoder(to_sphere(features(config, DIGITS.test_images, DIGITS)))
    assert list(metrics) == ["frechet_digits", "sample_confident", "sample_coverage"]
    assert metrics["frechet_digits"][0] == pytest.approx(frechet_digits(images, pixels).item(), rel=1e-3)


def test_a_member_whose_covariance_is_not_positive_definite_fails_alone() -> None:
    configs = [_trial("gmje_parametric", "own", tau=tau) for tau in (0.1, 0.2)]
    cohort = Cohort(configs, HERE, CPU, None)
    expected = cohort.evaluate(True)
    cohort._stacks[0].buffers["method.moment_JJ"][0].neg_()
    metrics = cohort.evaluate(True)
    for name in ("density_volume", "sample_confident", "sample_coverage", "frechet_digits"):
        assert math.isnan(metrics[name][0]) and metrics[name][1] == expected[name][1], name


@pytest.mark.parametrize(("method", "density"), [("simclr", "gmm"), ("gmje_parametric", "own")])
def test_a_member_has_the_same_metrics_and_pictures_whatever_is_stacked_with_it(method: str, density: str) -> None:
    configs = [_trial(method, density, density_pictures=True, tau=tau, seed=s) for tau, s in ((0.1, 0), (0.2, 1))]
    fused = Cohort(configs, HERE, CPU, None)
    metrics, pictures = fused.evaluate(True), [*fused.pictures]
    for member, config in enumerate(configs):
        alone = Cohort([config], HERE, CPU, None)
        for name, values in alone.evaluate(True).items():
            assert metrics[name][member] == pytest.approx(values[0], rel=1e-3, abs=1e-6), name
        (own,) = alone.pictures
        assert pictures[member].keys() == own.keys() == {"samples.png", "tsne.npz"}
        sheets = [np.asarray(Image.open(io.BytesIO(each["samples.png"])), int) for each in (pictures[member], own)]
        assert np.abs(sheets[0] - sheets[1]).max() <= 2  # rounding
        assert sheets[0].shape[0] == 2 * 50 + 2, "a row of 48 pixels and 2 beside it for each sixteen samples"
    with np.load(io.BytesIO(pictures[0]["tsne.npz"])) as parts:
        assert len(parts["test"]) == 50 and len(parts["samples"]) == 12 and parts["components"] == M
        assert parts["labels"].tolist() == DIGITS.test_labels.tolist()


def test_images_of_other_data_sets_are_judged_by_a_classifier_of_their_own_training_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trained once for all members and sets of images."""
    calls: list[Any] = []

    def train(images_NCHW: Tensor, labels_N: Tensor, classes: int, *others: Any) -> Any:
        calls.append((images_NCHW.shape, labels_N.tolist(), classes))
        return lambda images_BCHW: 9 * torch.eye(classes)[(9.99 * images_BCHW.mean((1, 2, 3))).long()]

    monkeypatch.setattr(latent_density, "train_image_classifier", train)
    configs = [_trial("simclr", "gaussian", dataset="digits_tint", tau=tau, validation=0.25) for tau in (0.1, 0.2)]
    metrics = evaluated(*configs)
    ((shape, labels, classes),) = calls
    assert shape == (90, 3, 8, 8) and len(labels) == 90 and classes == 10
    assert metrics["sample_confident"].tolist() == [1, 1] and "frechet_digits" not in metrics


def test_nothing_is_drawn_or_fitted_before_the_end() -> None:
    config = _trial("simclr", "gmm", density_pictures=True)
    cohort = Cohort([config], HERE, CPU, None)
    assert not any("density" in name for name in cohort.evaluate(False)) and not cohort.pictures


@pytest.mark.parametrize("members", [1, 3])
def test_samples_are_drawn_and_decoded_once_for_all_metrics_and_pictures(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of test images, of validation images, and the members' sheets and maps."""
    drawn, decoded, real = list[int](), list[tuple[int, ...]](), latent_density.Latents.decode

    def draw(mixture: Mixture, *noise: Tensor) -> Tensor:
        drawn.append(1)
        return sample(mixture, *noise)

    def decode(self: latent_density.Latents, z_KSD: Tensor) -> Tensor:
        decoded.append(tuple(z_KSD.shape))
        return real(self, z_KSD)

    monkeypatch.setattr(latent_density, "sample", draw)
    monkeypatch.setattr(latent_density.Latents, "decode", decode)
    taus = (0.1, 0.2, 0.3)[:members]
    configs = [_trial("simclr", "gaussian", density_pictures=True, validation=0.25, tau=tau) for tau in taus]
    evaluated(*configs)
    assert len(drawn) == members and decoded == [(members, S, D)]
