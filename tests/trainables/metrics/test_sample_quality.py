"""Measures of images against published figures, scipy, numpy and values made by hand; and classifiers of digits and of
real images, as accurate as published. torchmetrics, which computes the FID, is imitated: the tests have neither the
library nor the weights.

Shapes: K members, N images, L classes; C channels, H by W pixels.
"""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor

from trainables.data.augmentation import rotate_and_shift
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.digits import digits
from trainables.data.views import scale_pixels
from trainables.metrics import sample_quality
from trainables.metrics.generation import sample_pixel_gaussians
from trainables.metrics.sample_classifiers import digits_classifier, train_image_classifier
from trainables.metrics.sample_quality import (
    FRECHET_IMAGES,
    check_fid,
    confident_coverage,
    confident_share,
    diversity,
    fid,
    frechet_digits,
    frechet_distance,
    inception_images,
    reconstruction_mse,
    sample_accuracy,
)

# --- The Frechet distance ---

D = 6


def vectors(count: int, seed: int, shift: float = 0.0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    mixing_DD = torch.randn(D, D, generator=source)
    return torch.randn(count, D, generator=source) @ mixing_DD + shift


def by_matrix_root(a_ND: Tensor, b_MD: Tensor) -> float:
    a, b = a_ND.double().numpy(), b_MD.double().numpy()
    cov_a, cov_b = np.cov(a.T), np.cov(b.T)
    root = sqrtm(cov_a @ cov_b).real
    return float(np.sum((a.mean(0) - b.mean(0)) ** 2) + np.trace(cov_a + cov_b - 2 * root))


@pytest.mark.parametrize(("n", "m"), [(40, 25), (D + 1, 300)])
@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_the_frechet_distance_is_that_of_scipys_matrix_root(n: int, m: int, shift: float) -> None:
    a_ND, b_MD = vectors(n, 0), vectors(m, 1, shift)
    assert frechet_distance(a_ND, b_MD).item() == pytest.approx(by_matrix_root(a_ND, b_MD), rel=1e-9)


def test_independent_features_have_the_closed_form() -> None:
    """Features without correlations: squared differences of means and of standard deviations."""
    signs_ND = torch.tensor([[(i >> d & 1) * 2.0 - 1 for d in range(3)] for i in range(8)])
    a_ND = signs_ND * torch.tensor([1.0, 2.0, 0.5])
    b_ND = signs_ND * torch.tensor([3.0, 2.0, 0.0]) + torch.tensor([0.0, 1.0, -2.0])
    expected = 5 + 8 / 7 * (2**2 + 0.5**2)
    assert frechet_distance(a_ND, b_ND).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [3, 50])
def test_a_set_has_no_distance_to_itself_and_a_shifted_one_that_of_the_shift(count: int) -> None:
    """Also of fewer vectors than features, whose covariance is singular."""
    a_ND = vectors(count, 0).double()
    assert frechet_distance(a_ND, a_ND).item() == pytest.approx(0, abs=1e-12)
    assert frechet_distance(a_ND + 2, a_ND).item() == pytest.approx(4 * D, rel=1e-12)


def test_the_frechet_distance_is_symmetric_and_does_not_depend_on_order_or_rotation() -> None:
    a_ND, b_MD = vectors(40, 0), vectors(25, 1, 1.0)
    turned_DD = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(2)).double()).Q
    expected = frechet_distance(a_ND, b_MD)
    torch.testing.assert_close(frechet_distance(b_MD, a_ND), expected)
    torch.testing.assert_close(frechet_distance(a_ND.flip(0), b_MD), expected)
    torch.testing.assert_close(frechet_distance(a_ND.double() @ turned_DD, b_MD.double() @ turned_DD), expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_member_with_a_feature_that_is_not_finite_has_nan_alone(bad: float) -> None:
    members_KND = torch.stack([vectors(30, seed) for seed in range(3)])
    members_KND[1, 4, 2] = bad
    test_MD = vectors(40, 9)
    distance_K = frechet_distance(members_KND, test_MD)
    assert distance_K.isnan().tolist() == [False, True, False]
    for index in (0, 2):
        torch.testing.assert_close(distance_K[index], frechet_distance(members_KND[index], test_MD))
    test_MD[0, 0] = bad
    assert frechet_distance(members_KND, test_MD).isnan().all()


def test_one_vector_has_no_covariance() -> None:
    with pytest.raises(ValueError, match="at least 2 vectors of each set, but got 1"):
        frechet_distance(vectors(1, 0), vectors(5, 1))


# --- Digits: distance and accuracy ---

SAMPLES = 100


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return digits(Path())


@pytest.fixture
def train_images(dataset: Dataset) -> Tensor:
    return scale_pixels(dataset.train_images[:], dataset.levels)


@pytest.fixture
def test_images(dataset: Dataset) -> Tensor:
    return scale_pixels(dataset.test_images[:], dataset.levels)


@pytest.fixture
def gaussian_samples(dataset: Dataset, train_images: Tensor) -> Tensor:
    noise_LSD = torch.randn(10, SAMPLES, 64, generator=torch.Generator().manual_seed(0))
    return sample_pixel_gaussians(train_images, dataset.train_labels, noise_LSD).flatten(0, 1)


LABELS = torch.arange(10).repeat_interleave(SAMPLES)


def test_real_images_and_gaussians_of_pixels_have_the_published_distances(
    train_images: Tensor, test_images: Tensor, gaussian_samples: Tensor
) -> None:
    """Those of 500: means of 0.80 over draws of training images, with a deviation of 0.20, and 2.19 over noises."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randperm(len(train_images), generator=generator)[:FRECHET_IMAGES] for _ in range(20)]
    distances = torch.stack([frechet_digits(train_images[drawn], test_images) for drawn in draws])
    assert frechet_digits(test_images, test_images) < 0.1
    assert 0.65 < distances.mean() < 0.95 and 0.1 < distances.std() < 0.3
    assert 1.6 < frechet_digits(gaussian_samples, test_images) < 2.8


def test_the_distance_is_of_500_images_however_many_there_are(gaussian_samples: Tensor, test_images: Tensor) -> None:
    """As many of each class, of samples in the order of the classes; without 500 there is none."""
    features, half = digits_classifier().features, gaussian_samples[::2]
    expected = frechet_distance(features(half), features(test_images))
    assert FRECHET_IMAGES == len(half) == 500
    for samples in (gaussian_samples, half, gaussian_samples.repeat_interleave(3, 0)):
        torch.testing.assert_close(frechet_digits(samples, test_images), expected)
    assert frechet_digits(torch.stack([half, half])[:, :499], test_images).isnan().tolist() == [True, True]


def test_samples_of_pixel_gaussians_are_recognised_almost_as_often_as_published(gaussian_samples: Tensor) -> None:
    """95.7 %; of other noise or another classifier 95 to 98 %."""
    assert 0.95 < sample_accuracy(gaussian_samples, LABELS) < 0.98
    assert sample_accuracy(gaussian_samples, LABELS.flip(0)) < 0.1


def test_samples_of_too_few_classes_are_recognised_but_far_from_the_test_images(
    dataset: Dataset, train_images: Tensor, test_images: Tensor
) -> None:
    chosen = dataset.train_labels < 5
    distance = frechet_digits(train_images[chosen], test_images)
    assert distance > 20 * frechet_digits(train_images, test_images)
    assert sample_accuracy(train_images[chosen], dataset.train_labels[chosen]) > 0.97


def test_members_are_judged_as_if_alone_and_one_with_nan_has_nan(gaussian_samples: Tensor, test_images: Tensor) -> None:
    broken = gaussian_samples.clone()
    broken[8, 0, 3, 3] = math.nan
    members = torch.stack([gaussian_samples, broken, 0.5 * gaussian_samples])
    for judge, reference in ((frechet_digits, test_images), (sample_accuracy, LABELS)):
        value_K = judge(members, reference)
        assert value_K.isnan().tolist() == [False, True, False]
        for index in (0, 2):
            torch.testing.assert_close(value_K[index], judge(members[index], reference))


# --- Confidence and coverage ---

SURE_OF = {0: [0.9, 0.05, 0.05], 1: [0.02, 0.95, 0.03], 2: [0.0, 0.0, 1.0]}
UNSURE = [0.89, 0.06, 0.05]


def _images(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_confident_share_counts_images_at_or_above_the_threshold() -> None:
    images = _images(SURE_OF[0], UNSURE, SURE_OF[2], UNSURE)
    assert confident_share(images, 0.9).item() == 0.5
    assert confident_share(images, 0.96).item() == 0.25
    assert confident_share(images, 0.6).item() == 1


def test_coverage_is_the_normalised_entropy_of_the_confident_images_classes() -> None:
    even = _images(*SURE_OF.values())
    assert math.isclose(confident_coverage(even, 0.9).item(), 1)
    assert confident_coverage(even[:1], 0.9).item() == 0
    halves = _images(SURE_OF[0], SURE_OF[2], UNSURE, UNSURE)
    assert math.isclose(confident_coverage(halves, 0.9).item(), math.log(2) / math.log(3))
    uneven = _images(SURE_OF[0], SURE_OF[0], SURE_OF[0], SURE_OF[1])
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(3)
    assert math.isclose(confident_coverage(uneven, 0.9).item(), expected)


def test_without_confident_images_no_class_is_covered() -> None:
    images = _images(UNSURE, UNSURE)
    assert confident_share(images, 0.9).item() == confident_coverage(images, 0.9).item() == 0


def test_confidence_of_members_is_judged_apart_and_nan_is_that_of_its_own() -> None:
    members = torch.stack([_images(SURE_OF[0], SURE_OF[1]), _images(SURE_OF[0], [math.nan] * 3)])
    for measure in (confident_share, confident_coverage):
        first, second = measure(members, 0.9)
        assert first.item() == measure(members[0], 0.9).item() and second.isnan()


# --- Pixels: errors of reconstructions and spread of samples ---


@pytest.fixture
def images_NCHW() -> Tensor:
    return torch.rand(20, 3, 4, 5, generator=torch.Generator().manual_seed(0))


def test_the_error_of_reconstructions_is_the_mean_over_images_and_pixels(images_NCHW: Tensor) -> None:
    blurred_NCHW = images_NCHW.mean(0, keepdim=True).expand_as(images_NCHW)
    expected = np.mean((images_NCHW.double().numpy() - blurred_NCHW.double().numpy()) ** 2)
    assert reconstruction_mse(images_NCHW, blurred_NCHW).item() == pytest.approx(expected, rel=1e-6)


def test_each_member_has_its_own_error(images_NCHW: Tensor) -> None:
    members_KNCHW = torch.stack([images_NCHW, images_NCHW + 0.5, torch.full_like(images_NCHW, torch.nan)])
    error_K = reconstruction_mse(images_NCHW, members_KNCHW)
    torch.testing.assert_close(error_K, torch.tensor([0, 0.25, torch.nan]).double(), equal_nan=True)


def test_diversity_is_a_ratio_of_variances(images_NCHW: Tensor) -> None:
    samples_NCHW = images_NCHW[:7].square()
    variances = [np.trace(np.cov(x.flatten(1).double().numpy().T)) for x in (samples_NCHW, images_NCHW)]
    assert diversity(samples_NCHW, images_NCHW).item() == pytest.approx(variances[0] / variances[1], rel=1e-12)


def test_diversity_of_copies_of_one_image_and_of_the_images_themselves(images_NCHW: Tensor) -> None:
    copies_NCHW, halved_NCHW = images_NCHW[:1].expand_as(images_NCHW), images_NCHW / 2 + 0.1
    members_KNCHW = torch.stack([copies_NCHW, images_NCHW, halved_NCHW])
    diversity_K = diversity(members_KNCHW, images_NCHW)
    torch.testing.assert_close(diversity_K, torch.tensor([0, 1, 0.25]).double(), atol=1e-7, rtol=1e-6)


# --- The FID ---

CPU = torch.device("cpu")


class MeanDifference:
    """Has the interface of torchmetrics' metric; its value is the difference of mean grey levels, and 100 times the
    ratio of the numbers of images."""

    def __init__(self, reset_real_features: bool, feature_extractor_weights_path: str) -> None:
        if Path(feature_extractor_weights_path).read_bytes() != b"weights":
            raise RuntimeError("Missing key(s):\n" + "key, " * 100)
        self.kept = not reset_real_features
        self.real: list[Tensor] = []
        self.fake: list[Tensor] = []

    def to(self, device: torch.device) -> "MeanDifference":
        return self

    def update(self, images_B3HW: Tensor, real: bool) -> None:
        assert images_B3HW.dtype == torch.uint8 and images_B3HW.shape[1] == 3 and len(images_B3HW) <= 4
        (self.real if real else self.fake).append(images_B3HW.double())

    def compute(self) -> Tensor:
        real, fake = torch.cat(self.real), torch.cat(self.fake)
        return fake.mean() - real.mean() + 100 * len(fake) / len(real)

    def reset(self) -> None:
        self.fake = []
        self.real = self.real if self.kept else []


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of weights, with imitations of the libraries."""
    module = ModuleType("torchmetrics.image.fid")
    monkeypatch.setattr(module, "FrechetInceptionDistance", MeanDifference, raising=False)
    for name in ("torchmetrics", "torchmetrics.image", "torchmetrics.image.fid"):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    path = tmp_path / "weights.pth"
    path.write_bytes(b"weights")
    return path


def test_all_images_of_each_member_are_compared_with_all_test_images(weights: Path) -> None:
    test_images, samples_KNCHW = torch.full((10, 1, 8, 8), 0.2), torch.full((3, 5, 1, 8, 8), 0.6)
    samples_KNCHW[2] = 1.0
    values = fid(samples_KNCHW, test_images, weights, CPU, batch_size=4)
    assert values == pytest.approx([153 - 51 + 50, 153 - 51 + 50, 255 - 51 + 50])


def test_a_member_with_a_pixel_that_is_not_finite_has_nan_alone(weights: Path) -> None:
    test_images, samples_KNCHW = torch.zeros(10, 3, 8, 8), torch.zeros(3, 5, 3, 8, 8)
    samples_KNCHW[1, 4, 2, 7, 7] = math.nan
    values = fid(samples_KNCHW, test_images, weights, CPU, batch_size=4)
    assert math.isnan(values[1]) and values[0] == values[2] == 50


def test_a_file_of_something_else_than_weights_is_refused_in_one_line(weights: Path) -> None:
    weights.write_bytes(b"other")
    with pytest.raises(ValueError, match=r"weights.pth does not hold the Inception weights of .*: Missing") as refusal:
        fid(torch.zeros(1, 5, 1, 8, 8), torch.zeros(5, 1, 8, 8), weights, CPU)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 500


def test_a_missing_file_of_weights_is_refused(weights: Path, tmp_path: Path) -> None:
    for absent in (tmp_path / "absent.pth", tmp_path):
        with pytest.raises(ValueError, match=f"there is no file {absent}"):
            check_fid(absent)
    check_fid(weights)


@pytest.mark.parametrize("missing", [("torchmetrics",), ("torch_fidelity",), ("torchmetrics", "torch_fidelity")])
def test_missing_libraries_are_refused_by_name(
    weights: Path, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    with pytest.raises(ValueError, match=rf"FID needs {' and '.join(missing)} .* 'torchmetrics\[image\]'"):
        fid(torch.zeros(1, 5, 1, 8, 8), torch.zeros(5, 1, 8, 8), weights, CPU)


def test_the_extra_installs_the_libraries_that_are_looked_for() -> None:
    """torch-fidelity comes with the extra `image` of torchmetrics."""
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert 'fid = ["torchmetrics[image]' in pyproject and sample_quality.LIBRARIES == ("torchmetrics", "torch_fidelity")


def test_every_grey_level_is_kept_and_repeated() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    grey_B1HW = (levels.float() / 255).view(1, 1, 16, 16)
    actual_B3HW = inception_images(grey_B1HW)
    assert actual_B3HW.shape == (1, 3, 16, 16) and (actual_B3HW == levels.view(1, 1, 16, 16)).all()


def test_colours_keep_their_channels_and_are_clipped() -> None:
    actual_B3HW = inception_images(torch.tensor([-0.5, 0.5, 1.5]).view(1, 3, 1, 1))
    assert actual_B3HW.flatten().tolist() == [0, 128, 255]


def test_images_of_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="images of 1 or 3 channels, but got 2"):
        inception_images(torch.zeros(1, 2, 8, 8))


def test_it_recognises_test_digits_also_rotated_and_shifted() -> None:
    """97.4 % is published. Of the moved digits it recognises 95 %; trained on digits as they are it would 76 %."""
    dataset = digits(Path())
    images_N1HW, labels_N = dataset.test_images[:] / dataset.levels, dataset.test_labels
    uniform_3N = 2 * torch.rand(3, len(labels_N), generator=torch.Generator().manual_seed(0)) - 1
    moved_N1HW = rotate_and_shift(images_N1HW, 10 * uniform_3N[0], 0.7 * uniform_3N[1], 0.7 * uniform_3N[2])
    accuracies = [
        (digits_classifier()(x_N1HW).argmax(-1) == labels_N).double().mean() for x_N1HW in (images_N1HW, moved_N1HW)
    ]
    assert accuracies[0] > 0.97 and accuracies[1] > 0.92


def test_features_are_64_of_a_relu_and_determine_the_logits() -> None:
    classifier, images_BN1HW = digits_classifier(), torch.rand(2, 3, 1, 8, 8)
    features_BNF = classifier.features(images_BN1HW)
    assert features_BNF.shape == (2, 3, 64) and features_BNF.min() == 0 and features_BNF.dtype == torch.float64
    torch.testing.assert_close(classifier.output(features_BNF), classifier(images_BN1HW))


@pytest.mark.slow
def test_it_is_trained_once_and_always_the_same_whatever_the_state_of_the_global_generator() -> None:
    first, before = digits_classifier(), torch.get_rng_state()
    threads = torch.get_num_threads()
    assert digits_classifier() is first
    digits_classifier.cache_clear()
    with torch.no_grad():
        second = digits_classifier()
    assert second is not first and (torch.get_rng_state() == before).all() and torch.get_num_threads() == threads
    for name, weight in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], weight)


N, CLASSES = 640, 4


def _sample_classifiers_images() -> tuple[torch.Tensor, torch.Tensor]:
    """A bright quadrant for each class, on noise; the last tenth has no label."""
    source = torch.Generator().manual_seed(0)
    labels_N = torch.randint(CLASSES, (N,), generator=source)
    images_NCHW = 0.5 * torch.rand(N, 1, 8, 8, generator=source)
    for row, label in enumerate(labels_N.tolist()):
        top, left = 4 * (label // 2), 4 * (label % 2)
        images_NCHW[row, :, top : top + 4, left : left + 4] += 0.4
    labels_N[-N // 10 :] = -1
    return images_NCHW, labels_N


def test_it_tells_the_classes_of_its_training_images_and_leaves_torchs_generator_alone() -> None:
    (images_NCHW, labels_N), state = _sample_classifiers_images(), torch.get_rng_state()
    train = [train_image_classifier(images_NCHW, labels_N, CLASSES, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state) and not train[0].training
    logits_NL = train[0](images_NCHW)
    assert logits_NL.shape == (N, CLASSES) and torch.equal(logits_NL, train[1](images_NCHW))
    known_N = labels_N >= 0
    assert (logits_NL.argmax(-1) == labels_N)[known_N].float().mean() > 0.9


def test_it_leaves_the_generators_of_accelerators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.manual_seed` seeds them too, and no fork of the CPU's generator restores them."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(0)
    assert seeded == [0]
    train_image_classifier(*_sample_classifiers_images(), CLASSES, torch.Generator().manual_seed(3))
    assert seeded == [0]
