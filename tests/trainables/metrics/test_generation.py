"""Gaussians of classes are scikit-learn's mixtures of one component, and samples have their moments.

Reconstructions and samples: by which decoder, of which features, against which pixels, and of which members.

Shapes: K members, N images, L classes, S samples of each class, D dimensions; C channels, H by W pixels.
"""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.mixture import GaussianMixture
from torch import Tensor

from tests.trainables.metrics.evaluated import CPU, evaluated, features, model_of, pixels_of, tiny, trial
from tests.trainables.training.judged import float64
from trainables.contract import ImageMethod, Noise
from trainables.data.splits import hold_out_validation
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import draw_noise
from trainables.methods.baselines.simclr import SimCLR
from trainables.methods.variational.vae import VAE
from trainables.metrics import generation, sample_quality
from trainables.metrics.generation import (
    fit_class_gaussians,
    sample_class_gaussians,
    sample_pixel_gaussians,
)
from trainables.metrics.sample_classifiers import digits_classifier
from trainables.sections import Value
from trainables.training.cohort import TrainingCohort

N, D, L = 200, 4, 3


@pytest.fixture
def features_ND() -> Tensor:
    """Correlated features, of which the last is a sum of two others: the covariance is singular."""
    source = torch.Generator().manual_seed(0)
    x_ND = torch.randn(N, D, generator=source) @ torch.randn(D, D, generator=source) + 3
    x_ND[:, -1] = x_ND[:, 0] + x_ND[:, 1]
    return x_ND


@pytest.fixture
def labels_N() -> Tensor:
    return torch.arange(N) % L


def noise(samples: int) -> Tensor:
    return torch.randn(L, samples, D, generator=torch.Generator().manual_seed(1))


def test_each_class_has_scikit_learns_mean_and_covariance(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    assert gaussians.mean_LD.dtype == gaussians.covariance_LDD.dtype == torch.float64
    for label in range(L):
        mixture = GaussianMixture(1, reg_covar=1e-6).fit(features_ND[labels_N == label].double().numpy())
        np.testing.assert_allclose(gaussians.mean_LD[label], mixture.means_[0], rtol=1e-12)
        np.testing.assert_allclose(gaussians.covariance_LDD[label], mixture.covariances_[0], rtol=1e-12)


def test_samples_are_as_likely_as_their_noise(features_ND: Tensor, labels_N: Tensor) -> None:
    """Their squared Mahalanobis distance is the squared length of the noise."""
    gaussians, noise_LSD = fit_class_gaussians(features_ND, labels_N, L), noise(7).double()
    samples_LSD = sample_class_gaussians(gaussians, noise_LSD)
    centred_LSD = samples_LSD - gaussians.mean_LD[:, None]
    distance_LS = torch.einsum("lsd,lde,lse->ls", centred_LSD, gaussians.covariance_LDD.inverse(), centred_LSD)
    torch.testing.assert_close(distance_LS, noise_LSD.square().sum(-1), rtol=1e-6, atol=0)


def test_many_samples_have_the_moments_of_their_class(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    samples_LSD = sample_class_gaussians(gaussians, noise(40_000))
    assert samples_LSD.dtype == torch.float32
    for label in range(L):
        scale = gaussians.covariance_LDD[label].diagonal().max().item()
        covariance = samples_LSD[label].double().T.cov()
        torch.testing.assert_close(covariance, gaussians.covariance_LDD[label], rtol=0, atol=0.03 * scale)
        mean_D = samples_LSD[label].double().mean(0)
        torch.testing.assert_close(mean_D, gaussians.mean_LD[label], rtol=0, atol=0.03 * scale**0.5)


def test_without_noise_a_sample_is_the_mean(features_ND: Tensor, labels_N: Tensor) -> None:
    gaussians = fit_class_gaussians(features_ND, labels_N, L)
    samples_LSD = sample_class_gaussians(gaussians, torch.zeros(L, 2, D, dtype=torch.float64))
    assert (samples_LSD == gaussians.mean_LD[:, None]).all()


def test_members_are_fitted_and_sampled_as_if_alone(features_ND: Tensor, labels_N: Tensor) -> None:
    members_KND = torch.stack([features_ND, 2 * features_ND - 1])
    together_KLSD = sample_class_gaussians(fit_class_gaussians(members_KND, labels_N, L), noise(5))
    for member_ND, together_LSD in zip(members_KND, together_KLSD, strict=True):
        alone_LSD = sample_class_gaussians(fit_class_gaussians(member_ND, labels_N, L), noise(5))
        torch.testing.assert_close(together_LSD, alone_LSD)


def test_images_without_a_label_are_ignored(features_ND: Tensor, labels_N: Tensor) -> None:
    expected = fit_class_gaussians(features_ND, labels_N, L)
    features_ND, labels_N = (
        torch.cat([features_ND, 100 + features_ND[:5]]),
        torch.cat([labels_N, -torch.ones(5).long()]),
    )
    actual = fit_class_gaussians(features_ND, labels_N, L)
    assert (actual.mean_LD == expected.mean_LD).all() and (actual.covariance_LDD == expected.covariance_LDD).all()


def test_a_class_of_one_image_is_sampled_around_it() -> None:
    gaussians = fit_class_gaussians(torch.tensor([[5.0, -2.0]]), torch.tensor([0]), 1)
    samples_LSD = sample_class_gaussians(gaussians, torch.ones(1, 1, 2))
    torch.testing.assert_close(samples_LSD, torch.tensor([[[5.001, -1.999]]]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_feature_that_is_not_finite_affects_only_its_own_class(
    features_ND: Tensor, labels_N: Tensor, bad: float
) -> None:
    clean_LSD = sample_class_gaussians(fit_class_gaussians(features_ND, labels_N, L), noise(5))
    features_ND[1, 2] = bad
    samples_LSD = sample_class_gaussians(fit_class_gaussians(features_ND, labels_N, L), noise(5))
    assert samples_LSD[1].isnan().all()
    assert (samples_LSD[[0, 2]] == clean_LSD[[0, 2]]).all()


def test_a_class_without_images_is_an_error(features_ND: Tensor, labels_N: Tensor) -> None:
    with pytest.raises(ValueError, match="each of the 4 classes must have a training image, but class 3 has none"):
        fit_class_gaussians(features_ND, labels_N, L + 1)


def test_samples_of_pixels_are_images_like_those_of_their_class() -> None:
    """Dark images of one class and bright ones of the other, of two channels and unequal sides."""
    source = torch.Generator().manual_seed(0)
    labels_N = torch.arange(100) % 2
    images_NCHW = 0.4 * torch.rand(100, 2, 3, 4, generator=source) + 0.6 * labels_N[:, None, None, None]
    samples_LSCHW = sample_pixel_gaussians(images_NCHW, labels_N, torch.randn(2, 50, 24, generator=source))
    assert samples_LSCHW.shape == (2, 50, 2, 3, 4)
    assert samples_LSCHW.min() == 0 and samples_LSCHW.max() == 1, "they are clipped"
    means = torch.stack([images_NCHW[labels_N == label].mean(0) for label in range(2)])
    torch.testing.assert_close(samples_LSCHW.mean(1), means, atol=0.08, rtol=0)


# --- The evaluator, on tiny data sets ---

pytestmark = pytest.mark.usefixtures("tiny_datasets")

DIGITS = tiny("digits")
S = 6
DECODED: dict[str, Value] = {"reconstructions": True, "samples_per_class": S}
ADHOC: dict[str, Value] = {**DECODED, "adhoc_epochs": 2, "adhoc_lr": 0.01, "adhoc_patience": 3}


@pytest.fixture(autouse=True)
def few_images_have_a_frechet_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_quality, "FRECHET_IMAGES", 10 * S)


def _members(**changes: Value) -> list[ImageTrial]:
    return [
        trial("vae", **{**DECODED, "sigma_x2": sigma_x2, "seed": seed, **changes})
        for sigma_x2, seed in ((0.1, 0), (7.0, 1), (1.0, 0))
    ]


def _mse(decoded_NCHW: Tensor, pixels_NCHW: Tensor) -> float:
    return float(((decoded_NCHW - pixels_NCHW).double().numpy() ** 2).mean())


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"normalise": False}, {"binarise": True}])
def test_reconstructions_are_of_the_mean_and_compared_with_pixels(changes: dict[str, Value]) -> None:
    """Pixels that are not normalised, but binary where views are."""
    config = trial("vae", reconstructions=True, **changes)
    model, pixels = model_of(config), pixels_of(DIGITS.test_images, DIGITS)
    if config.pixel_views.binarise:
        pixels = (pixels > 0.5).float()
    inputs = (pixels - DIGITS.mean[0]) / DIGITS.std[0] if config.pixel_views.normalise else pixels
    metrics = evaluated(config)
    assert metrics["reconstruction_mse"].tolist() == pytest.approx([_mse(model.decode(model(inputs)), pixels)])
    assert "diversity" not in metrics


def _samples(features_ND: Tensor, labels_N: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Samples `[L, S, D]` of a Gaussian of each class, from the noise that all members share."""
    noise = draw_noise({"samples": Noise((10, S, features_ND.shape[1]))}, "samples", "digits")["samples"]
    samples = []
    for label in range(10):
        own = features_ND[labels_N == label].double().numpy()
        covariance = np.cov(own.T, bias=True) + 1e-6 * np.eye(own.shape[1])
        samples.append(own.mean(0) + noise[label].double().numpy() @ np.linalg.cholesky(covariance).T)
    return np.stack(samples)


@pytest.mark.slow
@torch.no_grad()
def test_samples_are_decoded_from_a_gaussian_of_each_class() -> None:
    """Fitted to the representations of its training images."""
    config = trial("vae", samples_per_class=S)
    metrics, model = evaluated(config), model_of(config)
    z_LSD = torch.from_numpy(_samples(features(config, DIGITS.train_images, DIGITS), DIGITS.train_labels)).float()
    samples, pixels = model.decode(z_LSD.flatten(0, 1)).double(), pixels_of(DIGITS.test_images, DIGITS).double()
    classifier = digits_classifier()
    guesses, classes = classifier(samples).argmax(1).numpy(), np.arange(10).repeat(S)
    own, real = (classifier.features(images).numpy() for images in (samples, pixels))
    root = np.sqrt(np.linalg.eigvals(np.cov(own.T) @ np.cov(real.T)).astype(complex)).real.sum()
    distance = ((own.mean(0) - real.mean(0)) ** 2).sum() + np.trace(np.cov(own.T)) + np.trace(np.cov(real.T)) - 2 * root
    spread = samples.numpy().var(0, ddof=1).sum() / pixels.numpy().var(0, ddof=1).sum()
    assert metrics["diversity"].tolist() == pytest.approx([spread], rel=1e-4)
    assert metrics["sample_accuracy"].tolist() == pytest.approx([(guesses == classes).mean()])
    assert metrics["frechet_digits"].tolist() == pytest.approx([distance], rel=1e-3)
    assert "reconstruction_mse" not in metrics


def test_only_digits_are_judged_by_the_classifier_of_digits() -> None:
    metrics = evaluated(trial("vae", **DECODED, dataset="digits_tint"))
    assert [name for name in metrics if not name.startswith("var_")] == ["reconstruction_mse", "diversity"]


def test_a_method_without_a_decoder_gets_one_trained_on_its_frozen_representation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each member its own, on the pixels of the bank; the test images are decoded by it."""
    trained: list[Any] = []
    calls: list[tuple[Any, ...]] = []
    real = generation.train_adhoc_decoder

    def train_adhoc_decoder(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        trained.append(real(*arguments, **options))
        return trained[-1]

    monkeypatch.setattr(generation, "train_adhoc_decoder", train_adhoc_decoder)
    configs, before = (
        [trial("simclr", **ADHOC, tau=tau, seed=seed) for tau, seed in ((0.5, 0), (0.2, 1))],
        torch.get_rng_state(),
    )
    metrics = evaluated(*configs)
    assert torch.equal(torch.get_rng_state(), before) and len(trained) == 2
    pixels = pixels_of(DIGITS.test_images, DIGITS)
    for member, config in enumerate(configs):
        decoder, bank_ND, pixels_NCHW, training = calls[member]
        torch.testing.assert_close(bank_ND, features(config, DIGITS.train_images, DIGITS), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(pixels_NCHW, pixels_of(DIGITS.train_images, DIGITS))
        assert training == generation.AdhocTraining(epochs=2, patience=3, lr=0.01)
        assert [layer.in_features for layer in decoder.modules() if isinstance(layer, torch.nn.Linear)] == [6, 8]
        with torch.no_grad():
            decoded = trained[member].decoder(features(config, DIGITS.test_images, DIGITS))
        assert metrics["reconstruction_mse"][member] == pytest.approx(_mse(decoded, pixels), rel=1e-4)
    assert len(set(metrics["reconstruction_mse"])) == 2


@pytest.mark.parametrize("width", [None, 1])
def test_a_decoder_that_is_trained_afterwards_starts_by_the_seed_of_its_trial(
    width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[tuple[Tensor, Tensor]] = []
    real = generation.train_adhoc_decoder

    def train_adhoc_decoder(decoder: Any, *others: Any, generator: torch.Generator, **options: Any) -> Any:
        weights = torch.cat([weight.detach().flatten() for weight in decoder.parameters()])
        starts.append((weights, torch.randperm(20, generator=generator)))
        return real(decoder, *others, generator=generator, **options)

    monkeypatch.setattr(generation, "train_adhoc_decoder", train_adhoc_decoder)
    evaluated(*(trial("simclr", **ADHOC, seed=seed) for seed in (3, 3, 8)), width=width)
    for drawn in zip(*starts, strict=True):
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_a_method_with_a_decoder_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = evaluated(trial("vae", **DECODED))
    monkeypatch.setattr(generation, "train_adhoc_decoder", None)
    metrics = evaluated(trial("vae", **ADHOC))
    assert all(metrics[name].tolist() == values_K.tolist() for name, values_K in expected.items())


@torch.no_grad()
def test_validation_images_are_reconstructed_like_test_images() -> None:
    """And compared with the same samples, of classes without them."""
    config = trial("vae", **DECODED, validation=0.25)
    metrics, model = evaluated(config), model_of(config)
    test, validation = hold_out_validation(DIGITS, 0.25)
    variances = []
    for prefix, part in (("", test), ("val_", validation)):
        pixels, z_ND = pixels_of(part.test_images, DIGITS), features(config, part.test_images, DIGITS)
        assert metrics[f"{prefix}reconstruction_mse"][0] == pytest.approx(_mse(model.decode(z_ND), pixels))
        variances.append(pixels.double().numpy().var(0, ddof=1).sum())
    assert metrics["diversity"][0] * variances[0] == pytest.approx(metrics["val_diversity"][0] * variances[1])
    z_LSD = _samples(features(config, test.train_images, DIGITS), test.train_labels)
    samples = model.decode(torch.from_numpy(z_LSD).float().flatten(0, 1)).double().numpy()
    assert metrics["diversity"][0] == pytest.approx(samples.var(0, ddof=1).sum() / variances[0], rel=1e-4)


@pytest.mark.parametrize(("method", "name"), [(VAE, "sigma_x2"), (SimCLR, "tau")])
def test_features_that_are_not_finite_leave_other_members_as_they_are(
    method: type[ImageMethod], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether members have a decoder or get one."""
    configs = [trial(method.__name__.lower(), **ADHOC, **{name: value}) for value in (0.1, 7.0, 1.0)]
    clean, real = evaluated(*configs), method.embed

    def embed(self: ImageMethod, images_BCHW: Tensor) -> dict[str, Tensor]:
        vectors = real(self, images_BCHW)
        return vectors | {"z": torch.where(self.get_buffer(name) == 7, torch.nan, vectors["z"])}

    monkeypatch.setattr(method, "embed", embed)
    for metric, values_K in evaluated(*configs).items():
        assert np.isnan(values_K[1]) == (not metric.startswith("var_")), metric
        np.testing.assert_allclose(values_K[[0, 2]], clean[metric][[0, 2]], rtol=1e-12, err_msg=metric)


@pytest.mark.parametrize("method", ["vae", "simclr"])
def test_members_in_several_stacks_have_the_metrics_of_one_stack(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, whatever decoder they have."""
    with float64(monkeypatch):
        configs = [trial(method, **ADHOC, seed=seed) for seed in (0, 1, 2)]
        fused, halves, alone = (evaluated(*configs, width=width) for width in (None, 2, 1))
    for other in (halves, alone):
        assert list(other) == list(fused)
        for name, values_K in fused.items():
            np.testing.assert_allclose(other[name], values_K, rtol=1e-6, err_msg=name)
    assert len(set(fused["reconstruction_mse"])) == 3


def test_fid_is_of_the_samples_of_each_member_with_the_weights_that_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []

    def fid(samples_KNCHW: Tensor, images_MCHW: Tensor, weights: Path, device: torch.device) -> list[float]:
        given.append((samples_KNCHW.shape, images_MCHW, weights))
        return [float(index) for index in range(len(samples_KNCHW))]

    monkeypatch.setattr(generation, "fid", fid)
    metrics = evaluated(*_members(fid_weights="inception.pth"))
    ((shape, images, weights),) = given
    assert metrics["fid"].tolist() == [0, 1, 2] and shape == (3, 10 * S, 1, 8, 8) and weights == Path("inception.pth")
    torch.testing.assert_close(images, pixels_of(DIGITS.test_images, DIGITS))


def _pictures(*configs: ImageTrial, last: bool = True, width: int | None = None) -> list[dict[str, bytes]]:
    cohort = TrainingCohort(configs, Path(), CPU, width)
    cohort.evaluate(last)
    return [dict(pictures) for pictures in cohort._evaluator.pictures]


def _grey_levels(png: bytes) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.asarray(Image.open(io.BytesIO(png)), dtype=np.int64)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["reconstructions.png", "samples.png"]),
        ({"reconstructions": False}, ["samples.png"]),
        ({"samples_per_class": 0}, ["reconstructions.png"]),
    ],
)
def test_each_member_has_a_sample_grid_of_what_is_decoded(changes: dict[str, Value], names: list[str]) -> None:
    """At the end only, whatever the stacks."""
    configs = _members(sheets=True, **changes)
    pictures, in_turn = _pictures(*configs), _pictures(*configs, width=1)
    assert [sorted(grids) for grids in pictures] == [sorted(grids) for grids in in_turn] == [names] * 3
    rows = {"reconstructions.png": (2, 10), "samples.png": (10, S)}
    for name in names:
        fused, alone = ([_grey_levels(grids[name]) for grids in each] for each in (pictures, in_turn))
        assert max(np.abs(own - other).max() for own, other in zip(fused, alone, strict=True)) <= 1  # rounding
        assert np.array_equal(fused[0], fused[2]) and np.abs(fused[0] - fused[1]).max() > 1  # two have equal weights
        height, width, _ = fused[0].shape  # an image has 48 pixels and 2 beside it, and a row has a label
        assert height == rows[name][0] * 50 + 2 and width > rows[name][1] * 50
    assert _pictures(*configs, last=False) == [] == _pictures(*_members(**changes))
