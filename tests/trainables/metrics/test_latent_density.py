"""Mixtures over latents: fitted like scikit-learn's, sampled with their exact moments, measured against closed forms;
and which density of representations is sampled, by what noise, what is judged, and of which members.

Shapes: K members, N latents or images, S samples, M components, D dimensions.
"""

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.trainables.metrics.evaluated import CPU, evaluated, features, model_of, pixels_of, tiny, trial
from tests.trainables.small import HERE
from trainables.contract import Noise
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import draw_noise
from trainables.methods.gaussian.gmje_parametric import ParametricGMJE
from trainables.metrics import generation, latent_density, sample_quality
from trainables.metrics.latent_density import (
    REGULARISATION,
    Mixture,
    fit_gaussian,
    fit_gmm,
    latent_map,
    mean_trace,
    mean_volume,
    sample,
    spread,
    to_sphere,
)
from trainables.metrics.sample_classifiers import digits_classifier
from trainables.metrics.sample_quality import confident_coverage, confident_share, frechet_digits
from trainables.sections import Value
from trainables.training.cohort import TrainingCohort

M, D = 3, 2


def _latents(count: int, size: int = D, seed: int = 0) -> Tensor:
    return to_sphere(torch.randn(count, size, generator=torch.Generator().manual_seed(seed)).double() + 0.5)


def _mixture() -> Mixture:
    roots_MDD = torch.randn(M, D, D, generator=torch.Generator().manual_seed(1)).double()
    means_MD = torch.tensor([[0.0, 3.0], [1.0, -1.0], [-2.0, 0.5]]).double()
    return Mixture(torch.tensor([0.2, 0.5, 0.3]).log(), means_MD, roots_MDD @ roots_MDD.mT + 0.1 * torch.eye(D))


def _quadrature(nodes: int) -> tuple[Tensor, Tensor]:
    """Uniform and normal numbers `[S]` and `[S, D]` at equally likely places of both distributions."""
    middle = (np.arange(nodes) + 0.5) / nodes
    normal = stats.norm.ppf(middle)
    grid = np.stack(np.meshgrid(middle, normal, normal, indexing="ij"), -1).reshape(-1, 1 + D)
    return torch.from_numpy(grid[:, 0].copy()), torch.from_numpy(grid[:, 1:].copy())


def test_samples_have_the_mixtures_moments() -> None:
    """Over a grid of noise: the law of total expectation and variance."""
    mixture = _mixture()
    uniform_S, normal_SD = _quadrature(100)
    got = sample(mixture, uniform_S, normal_SD).numpy()
    weights, means = mixture.logits_M.double().softmax(-1).numpy(), mixture.means_MD.numpy()
    mean = weights @ means
    covariance = np.einsum("m,mij->ij", weights, mixture.covariances_MDD.numpy()) + np.cov(
        means, rowvar=False, aweights=weights, ddof=0
    )
    np.testing.assert_allclose(got.mean(0), mean, atol=1e-6)
    np.testing.assert_allclose(np.cov(got, rowvar=False, ddof=0), covariance, rtol=0.01, atol=0.01)


def test_a_component_is_drawn_where_the_weights_sum_to_more_than_the_uniform_number() -> None:
    still = Mixture(torch.tensor([0.25, 0.5, 0.25]).log(), torch.eye(3).double(), 1e-12 * torch.eye(3).expand(3, 3, 3))
    uniform = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-24, 1.0])
    drawn = sample(still, uniform, torch.zeros(7, 3)).argmax(-1)
    assert drawn.tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_noise_is_coloured_by_the_factor_of_its_own_component() -> None:
    mixture = _mixture()
    normal_SD = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])
    got = sample(mixture, torch.tensor([0.9, 0.1, 0.5]), normal_SD).numpy()
    for own, noise, component in zip(got, normal_SD.numpy(), (2, 0, 1), strict=True):
        factor = np.linalg.cholesky(mixture.covariances_MDD[component].numpy())
        np.testing.assert_allclose(own, mixture.means_MD[component].numpy() + factor @ noise, rtol=1e-6)


class LargestTensor(TorchDispatchMode):
    """Keeps the number of elements of the largest tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.elements = max([self.elements, *(t.numel() for t in tree_leaves(result) if isinstance(t, Tensor))])
        return result


def test_samples_need_no_matrix_of_their_own() -> None:
    """`[S, D, D]` is 3.4 GB for 1,600 samples of 512 dimensions."""
    count, size = 200, 8
    mixture = Mixture(torch.zeros(2), torch.zeros(2, size), torch.eye(size).expand(2, size, size))
    with LargestTensor() as largest:
        sample(mixture, torch.linspace(0, 0.99, count), torch.randn(count, size))
    assert largest.elements == count * size


def test_a_component_that_is_not_positive_definite_gives_nan_in_its_own_samples_and_in_the_volume() -> None:
    mixture = _mixture()
    broken = mixture.covariances_MDD.clone()
    broken[1] -= 10 * torch.eye(D)
    failed = mixture._replace(covariances_MDD=broken)
    assert math.isnan(mean_volume(failed)) and math.isfinite(mean_volume(mixture))
    uniform_S, normal_SD = torch.tensor([0.1, 0.5, 0.9]), torch.ones(3, D)
    got, expected = (sample(each, uniform_S, normal_SD) for each in (failed, mixture))
    assert got[1].isnan().all() and torch.equal(got[[0, 2]], expected[[0, 2]])


def test_one_gaussian_has_the_latents_mean_and_covariance() -> None:
    z_ND = _latents(50, 4)
    logits_M, means_MD, covariances_MDD = fit_gaussian(z_ND.float())
    assert logits_M.tolist() == [0] and means_MD.dtype == covariances_MDD.dtype == torch.float64
    np.testing.assert_allclose(means_MD[0], z_ND.numpy().mean(0), rtol=1e-5)
    expected = np.cov(z_ND.numpy(), rowvar=False, ddof=0) + REGULARISATION * np.eye(4)
    np.testing.assert_allclose(covariances_MDD[0], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("steps", [1, 20])
def test_a_mixture_is_scikit_learns_after_so_many_steps(steps: int) -> None:
    z_ND = _latents(90, 3)
    mixture = fit_gmm(z_ND, 4, steps, random_state=0)
    theirs = GaussianMixture(4, covariance_type="full", max_iter=steps, reg_covar=REGULARISATION, random_state=0)
    with pytest.warns(Warning) if steps == 1 else np.errstate():
        theirs.fit(z_ND.numpy())
    np.testing.assert_allclose(mixture.logits_M.exp(), theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(mixture.means_MD, theirs.means_, rtol=1e-9)
    np.testing.assert_allclose(mixture.covariances_MDD, theirs.covariances_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spoil", ["nan", "collapsed"])
def test_latents_that_cannot_be_fitted_give_nan(spoil: str) -> None:
    z_ND = _latents(20)
    z_ND[3:] = math.nan if spoil == "nan" else z_ND[0]
    mixture = fit_gmm(z_ND, 5, 20, random_state=0)
    assert all(part.isnan().all() for part in mixture) and [len(part) for part in mixture] == [5] * 3
    assert math.isnan(mean_volume(mixture)) and math.isnan(mean_trace(mixture)) and math.isnan(spread(mixture))
    assert sample(mixture, torch.rand(4), torch.randn(4, D)).isnan().all()


def test_volume_trace_and_spread_are_means_over_components() -> None:
    mixture = _mixture()
    matrices = mixture.covariances_MDD.numpy()
    assert mean_volume(mixture) == pytest.approx(np.linalg.slogdet(matrices)[1].mean())
    assert mean_trace(mixture) == pytest.approx(np.trace(matrices, axis1=1, axis2=2).mean())
    assert spread(mixture) == pytest.approx((math.sqrt(17) + math.sqrt(10.25) + math.sqrt(11.25)) / 3)
    assert math.isnan(spread(fit_gaussian(_latents(9))))


def test_unit_vectors_reach_the_ceilings_and_do_not_exceed_them() -> None:
    """An isotropic covariance of trace 1, and the corners of a simplex."""
    size = 6
    isotropic = Mixture(torch.zeros(1), torch.zeros(1, size), torch.eye(size)[None] / size)
    assert mean_volume(isotropic) == pytest.approx(-size * math.log(size)) and mean_trace(isotropic) == pytest.approx(1)
    assert mean_volume(fit_gaussian(_latents(500, size))) < -size * math.log(size)
    corners_MD = to_sphere(torch.eye(size).double() - 1 / size)
    simplex = Mixture(torch.zeros(size), corners_MD, torch.eye(size).expand(size, size, size))
    assert spread(simplex) == pytest.approx(math.sqrt(2 * size / (size - 1)))
    assert spread(simplex._replace(means_MD=_latents(size, size))) < spread(simplex)


def test_samples_lie_with_the_test_latents_that_they_equal() -> None:
    """Two far clusters: each sample is nearest to latents of its own."""
    source = torch.Generator().manual_seed(0)
    labels_M = torch.arange(40) % 2
    centres_2D = torch.tensor([[5.0, 0.0, 0.0], [-5.0, 0.0, 0.0]])
    test_MD = centres_2D[labels_M] + 0.3 * torch.randn(40, 3, generator=source)
    samples_SD = centres_2D[[0, 1, 1, 0]] + 0.3 * torch.randn(4, 3, generator=source)
    with np.load(io.BytesIO(latent_map(samples_SD, test_MD, labels_M, components=7))) as parts:
        samples, test, labels = parts["samples"], parts["test"], parts["labels"]
        assert (parts["dimensions"], parts["components"]) == (3, 7)
    assert samples.shape == (4, 2) and test.shape == (40, 2) and labels.tolist() == labels_M.tolist()
    nearest = np.linalg.norm(samples[:, None] - test, axis=-1).argmin(1)
    assert labels[nearest].tolist() == [0, 1, 1, 0]


# --- The evaluator, on tiny data sets ---

pytestmark = pytest.mark.usefixtures("tiny_datasets")

DIGITS, FEATURES, COMPONENTS, S = tiny("digits"), 6, 4, 32
SURE = 0.6
SAMPLED: dict[str, Value] = {
    "projector_width": 0, "adhoc_epochs": 2, "adhoc_lr": 0.01, "density_samples": S, "density_components": COMPONENTS,
    "density_confidence": SURE,
}  # fmt: skip


def _trial(method: str, density: str, **changes: Value) -> ImageTrial:
    own: dict[str, Value] = {"prototypes": COMPONENTS} if method == "gmje_parametric" else {}
    return trial(method, **SAMPLED, **own, density=density, **changes)


def _noise() -> tuple[Tensor, Tensor]:
    """Sixteen samples of each of the seeds 1000 and 1001."""
    noises = {"uniform": Noise((16,), kind="uniform"), "normal": Noise((16, FEATURES))}
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
    monkeypatch.setattr(sample_quality, "FRECHET_IMAGES", S)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("density", ["own", "own_weighted"])
def test_samples_of_the_methods_own_density_are_decoded_and_judged(
    density: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a decoder of unit representations; uniform weights, or learned ones."""
    decoders, config = _kept_decoders(monkeypatch), _trial("gmje_parametric", density)
    cohort = TrainingCohort([config], HERE, CPU, None)
    cohort._stacks[0].parameters["method.logits_M"].copy_(torch.tensor([[3.0, 0.0, -2.0, 1.0]]))
    metrics, model = cohort.evaluate(True), model_of(config)
    assert isinstance(model, ParametricGMJE)
    ((bank_ND, trained),) = decoders
    torch.testing.assert_close(bank_ND, to_sphere(features(config, DIGITS.train_images, DIGITS)), rtol=1e-3, atol=1e-5)
    logits = torch.tensor([3.0, 0.0, -2.0, 1.0]) if density == "own_weighted" else torch.zeros(COMPONENTS)
    means, covariance = model.means_MJ[:, :FEATURES], model.moment_JJ[:FEATURES, :FEATURES]
    mixture = Mixture(logits, means, covariance.expand(COMPONENTS, FEATURES, FEATURES))
    images = trained.decoder(to_sphere(sample(mixture, *_noise())).float())
    probabilities = digits_classifier()(images).softmax(-1)
    assert metrics["sample_confident"][0] == pytest.approx(confident_share(probabilities, SURE).item())
    assert metrics["sample_coverage"][0] == pytest.approx(confident_coverage(probabilities, SURE).item())
    real = pixels_of(DIGITS.test_images, DIGITS)
    assert metrics["frechet_digits"][0] == pytest.approx(frechet_digits(images, real).item(), rel=1e-3)
    assert metrics["density_volume"][0] == pytest.approx(np.linalg.slogdet(covariance.double().numpy())[1], rel=1e-5)
    assert metrics["density_trace"][0] == pytest.approx(covariance.trace().item(), rel=1e-5)
    distances = [np.linalg.norm(means[i] - means[j]) for i in range(COMPONENTS) for j in range(i)]
    assert metrics["spread"][0] == pytest.approx(np.mean(distances), rel=1e-5)


def test_fitted_densities_are_of_the_unit_representations_of_training_images() -> None:
    """Of as many as `density_images` allows."""
    z_ND = to_sphere(features(_trial("simclr", "gmm"), DIGITS.train_images, DIGITS)).double().numpy()
    metrics = evaluated(_trial("simclr", "gaussian"))
    assert metrics["density_trace"][0] == pytest.approx(np.cov(z_ND.T, bias=True).trace() + FEATURES * 1e-6, rel=1e-3)
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
    cohort = TrainingCohort(configs, HERE, CPU, None)
    expected = cohort.evaluate(True)
    cohort._stacks[0].buffers["method.moment_JJ"][0].neg_()
    metrics = cohort.evaluate(True)
    for name in ("density_volume", "sample_confident", "sample_coverage", "frechet_digits"):
        assert math.isnan(metrics[name][0]) and metrics[name][1] == expected[name][1], name


@pytest.mark.slow
@pytest.mark.parametrize(("method", "density"), [("simclr", "gmm"), ("gmje_parametric", "own")])
def test_a_member_has_the_same_metrics_and_pictures_whatever_is_stacked_with_it(method: str, density: str) -> None:
    configs = [_trial(method, density, density_pictures=True, tau=tau, seed=s) for tau, s in ((0.1, 0), (0.2, 1))]
    fused = TrainingCohort(configs, HERE, CPU, None)
    metrics, pictures = fused.evaluate(True), [*fused.pictures]
    for member, config in enumerate(configs):
        alone = TrainingCohort([config], HERE, CPU, None)
        for name, values in alone.evaluate(True).items():
            assert metrics[name][member] == pytest.approx(values[0], rel=1e-3, abs=1e-6), name
        (own,) = alone.pictures
        assert pictures[member].keys() == own.keys() == {"samples.png", "tsne.npz"}
        grids = [np.asarray(Image.open(io.BytesIO(each["samples.png"])), int) for each in (pictures[member], own)]
        assert np.abs(grids[0] - grids[1]).max() <= 2  # rounding
        assert grids[0].shape[0] == 2 * 50 + 2, "a row of 48 pixels and 2 beside it for each sixteen samples"
    with np.load(io.BytesIO(pictures[0]["tsne.npz"])) as parts:
        assert len(parts["test"]) == 50 and len(parts["samples"]) == 12 and parts["components"] == COMPONENTS
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
    cohort = TrainingCohort([config], HERE, CPU, None)
    assert not any("density" in name for name in cohort.evaluate(False)) and not cohort.pictures


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3])
def test_samples_are_drawn_and_decoded_once_for_all_metrics_and_pictures(
    members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of test images, of validation images, and the members' sample grids and maps."""
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
    assert len(drawn) == members and decoded == [(members, S, FEATURES)]


def test_the_precision_is_the_share_of_samples_in_the_balls_of_scikit_learns_neighbours() -> None:
    source = torch.Generator().manual_seed(0)
    real_TD, samples_SD = torch.randn(60, 3, generator=source), 2 * torch.randn(80, 3, generator=source)
    radius_T = NearestNeighbors(n_neighbors=3).fit(real_TD.numpy()).kneighbors()[0][:, -1]  # of others than itself
    distances_ST = np.linalg.norm(samples_SD.numpy()[:, None] - real_TD.numpy(), axis=-1)
    expected = (distances_ST <= radius_T).any(1).mean()
    assert 0.2 < expected < 0.9 and latent_density.precision(samples_SD, real_TD) == pytest.approx(expected)
    assert latent_density.precision(real_TD, real_TD) == 1 and latent_density.precision(real_TD + 100, real_TD) == 0
    assert math.isnan(latent_density.precision(samples_SD * math.nan, real_TD))
    assert math.isnan(latent_density.precision(samples_SD, real_TD[:3]))
