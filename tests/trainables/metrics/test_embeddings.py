"""Geometry of embeddings and spread of posteriors against NumPy, scipy and known values; and which vectors, images and
labels their evaluators read.

Shapes: K members, N or M images, D dimensions.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.stats import f_oneway, variation
from torch import Tensor

from tests.trainables.metrics.evaluated import evaluated, features, model_of, pixels_of, tiny, trial
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics import embeddings, probes
from trainables.metrics.embeddings import POSTERIOR_METRICS, statistics
from trainables.metrics.evaluator import ProbeData


def _gaussian(members: int = 2, images: int = 40, size: int = 5) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randn(members, images, size, generator=source) * torch.arange(1.0, size + 1) + 0.7


def test_spectrum_volume_and_trace_are_those_of_the_covariance_of_unit_vectors() -> None:
    """With NumPy's own covariance and determinant."""
    z_KND = _gaussian()
    eigenvalues_KD = embeddings.spectrum(z_KND)
    for member, z_ND in enumerate(z_KND.double().numpy()):
        unit_ND = z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True)
        covariance_DD = np.cov(unit_ND.T, bias=True)
        np.testing.assert_allclose(eigenvalues_KD[member], np.linalg.eigvalsh(covariance_DD), rtol=1e-9)
        mixed_DD = (1 - 1e-6) * covariance_DD + 1e-6 * np.eye(5) / 5
        assert embeddings.volume(eigenvalues_KD)[member] == pytest.approx(np.linalg.slogdet(mixed_DD)[1], rel=1e-9)
        assert embeddings.volume(eigenvalues_KD)[member] == pytest.approx(np.linalg.slogdet(covariance_DD)[1], abs=1e-3)
        assert embeddings.trace(eigenvalues_KD)[member] == pytest.approx(np.trace(covariance_DD), rel=1e-9)
        assert embeddings.trace(eigenvalues_KD)[member] == pytest.approx(1 - (unit_ND.mean(0) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("size", [2, 32, 128])
def test_axes_in_both_directions_reach_the_bounds_of_volume_trace_and_rank(size: int) -> None:
    """`-D log D`, 1 and D: no unit vectors fill the sphere more. The length of embeddings does not matter."""
    axes_ND = torch.cat([torch.eye(size), -3 * torch.eye(size)])
    eigenvalues_KD = embeddings.spectrum(axes_ND[None])
    assert embeddings.volume(eigenvalues_KD)[0] == pytest.approx(-size * math.log(size), rel=1e-12)
    assert embeddings.trace(eigenvalues_KD)[0] == pytest.approx(1, rel=1e-12)
    assert embeddings.effective_rank(eigenvalues_KD)[0] == pytest.approx(size, rel=1e-12)
    other = embeddings.volume(embeddings.spectrum(_gaussian(size=size)))
    assert (other < -size * math.log(size)).all()


def test_the_effective_rank_of_known_spectra_is_exact() -> None:
    spectra_KD = np.array([[0, 0, 0.3, 0.3], [0, 0, 0, 0.9], [0.1, 0.2, 0.3, 0.4], [0, 0, 0, 1e-15]])
    entropy = -sum(p * math.log(p) for p in (0.1, 0.2, 0.3, 0.4))
    np.testing.assert_allclose(embeddings.effective_rank(spectra_KD), [2, 1, math.exp(entropy), 1], rtol=1e-12)


def test_collapsed_embeddings_have_rank_1_no_trace_and_the_least_volume() -> None:
    """Also where they differ in length."""
    z_KND = torch.tensor([0.3, 0.4, 1.2]).expand(1, 50, 3) * torch.rand(1, 50, 1).add(0.5)
    eigenvalues_KD = embeddings.spectrum(z_KND)
    assert embeddings.effective_rank(eigenvalues_KD).tolist() == [1]
    assert embeddings.trace(eigenvalues_KD)[0] == pytest.approx(0, abs=1e-12)
    assert embeddings.volume(eigenvalues_KD)[0] == pytest.approx(3 * math.log(1e-6 / 3), rel=1e-6)


def test_the_cosine_is_the_mean_over_images_of_that_of_their_two_embeddings() -> None:
    first_ND = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    second_ND = torch.tensor([[5.0, 0.0], [0.0, -1.0], [1.0, 0.0]])
    expected = (1 - 1 + math.sqrt(0.5)) / 3
    assert embeddings.cosine(first_ND[None], second_ND[None]).tolist() == pytest.approx([expected])


def test_a_member_that_is_not_finite_has_nan_and_the_others_have_their_values() -> None:
    z_KND = _gaussian(3)
    clean_KD = embeddings.spectrum(z_KND)
    z_KND[1, 4, 2] = math.nan
    eigenvalues_KD = embeddings.spectrum(z_KND)
    np.testing.assert_array_equal(eigenvalues_KD[[0, 2]], clean_KD[[0, 2]])
    for values_K in (
        embeddings.volume(eigenvalues_KD),
        embeddings.trace(eigenvalues_KD),
        embeddings.effective_rank(eigenvalues_KD),
        embeddings.cosine(z_KND, z_KND),
    ):
        assert np.isnan(values_K).tolist() == [False, True, False]


def test_the_variance_of_views_is_that_of_an_analysis_of_variance() -> None:
    """By scipy's F, for numbers; it has no scale."""
    source = torch.Generator().manual_seed(0)
    image_N1 = torch.randn(30, 1, generator=source)
    views = [image_N1 + 0.5 * torch.randn(30, 1, generator=source) for _ in range(2)]
    groups = torch.stack(views)[..., 0].T.double().numpy()
    f = f_oneway(*groups).statistic
    expected = 30 / (29 * f)  # sums of squares within over between, from the ratio of mean squares
    for scale in (1.0, 50.0):
        assert embeddings.view_variance([(scale * view)[None] for view in views])[0] == pytest.approx(
            expected, rel=1e-6
        )
    assert embeddings.view_variance([views[0][None], views[0][None]]).tolist() == [0]
    assert np.isnan(embeddings.view_variance([torch.ones(1, 5, 3)] * 2)).all()


def test_the_distance_within_a_class_is_the_mean_over_scipys_pairs() -> None:
    z_KND, labels_N = _gaussian(1, 12, 4), torch.arange(12) % 3
    distances = squareform(pdist(z_KND[0].double().numpy(), "cosine"))
    same = labels_N[:, None] == labels_N
    own = distances[(same & ~torch.eye(12, dtype=torch.bool)).numpy()].mean()
    other = distances[(~same).numpy()].mean()
    assert embeddings.class_distance(z_KND, labels_N)[0] == pytest.approx(own / other, rel=1e-6)
    unlabelled_KND = torch.cat([z_KND, torch.randn(1, 3, 4)], dim=1)
    with_unlabelled = torch.cat([labels_N, torch.full((3,), -1)])
    assert embeddings.class_distance(unlabelled_KND, with_unlabelled)[0] == pytest.approx(own / other, rel=1e-6)
    points_KND = torch.eye(3)[labels_N][None]
    assert embeddings.class_distance(points_KND, labels_N)[0] == pytest.approx(0, abs=1e-12)
    assert np.isnan(embeddings.class_distance(torch.ones(1, 12, 4), labels_N)).all()


# --- Mean and spread of the variance of posteriors, in the three regimes of the paper ---

K, M, D = 4, 50, 9


@pytest.fixture
def var_KMD() -> Tensor:
    """Variances of about 0.3, as from a softplus, with a level of its own for each dimension."""
    source = torch.Generator().manual_seed(0)
    return torch.rand(K, M, D, generator=source) * torch.rand(K, 1, D, generator=source) + 0.05


def test_statistics_of_variances_are_those_of_numpy_and_scipy(var_KMD: Tensor) -> None:
    actual, average_KD = statistics(var_KMD), var_KMD.double().numpy().mean(1)
    np.testing.assert_allclose(actual["var_mean"], var_KMD.double().numpy().mean((1, 2)), rtol=1e-12)
    np.testing.assert_allclose(actual["var_cv"], variation(average_KD, axis=1, ddof=0), rtol=1e-12)
    assert tuple(actual) == POSTERIOR_METRICS and actual["var_cv"].dtype == np.float64


def test_spread_over_images_is_no_spread_over_dimensions() -> None:
    """Two images with swapped dimensions: each dimension averages to 2."""
    actual = statistics(torch.tensor([[[1.0, 3.0], [3.0, 1.0]]]))
    assert actual["var_mean"] == 2 and actual["var_cv"] == 0


def test_the_deviation_of_variances_is_the_populations() -> None:
    actual = statistics(torch.tensor([[[1.0, 3.0]]]))
    assert actual["var_mean"] == 2 and actual["var_cv"] == 0.5


def test_one_dimension_has_no_spread() -> None:
    assert statistics(torch.ones(1, 5, 1))["var_cv"] == 0


@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_the_coefficient_of_variation_has_no_scale(var_KMD: Tensor, scale: float) -> None:
    actual, expected = statistics(scale * var_KMD), statistics(var_KMD)
    np.testing.assert_allclose(actual["var_mean"], scale * expected["var_mean"], rtol=1e-6)
    np.testing.assert_allclose(actual["var_cv"], expected["var_cv"], rtol=1e-6)


def test_three_regimes_of_variances(var_KMD: Tensor) -> None:
    """Anisotropic, collapsed (spread undefined) and the prior: told apart by these two numbers."""
    regimes_3MD = torch.stack([var_KMD[0], 1e-6 * var_KMD[0], torch.ones(M, D)])
    actual = statistics(regimes_3MD)
    np.testing.assert_allclose(actual["var_mean"][1:], [0, 1], atol=1e-5)
    assert actual["var_cv"][0] > 0.1 and np.isnan(actual["var_cv"][1]) and actual["var_cv"][2] == 0


@pytest.mark.parametrize(("mean", "undefined"), [(0.00999, True), (0.01001, False)])
def test_the_spread_is_undefined_below_a_mean_of_one_percent(mean: float, undefined: bool) -> None:
    actual = statistics(torch.full((1, 3, 4), mean, dtype=torch.float64))
    assert np.isnan(actual["var_cv"][0]) == undefined and actual["var_mean"] == pytest.approx(mean)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_variance_that_is_not_finite_affects_only_its_own_member(var_KMD: Tensor, bad: float) -> None:
    clean = statistics(var_KMD)
    var_KMD[2, 7, 1] = bad
    for name, values_K in statistics(var_KMD).items():
        assert np.isnan(values_K[2])
        np.testing.assert_array_equal(np.delete(values_K, 2), np.delete(clean[name], 2))


# --- The evaluators of joint embeddings, on tiny data sets ---

pytestmark = pytest.mark.usefixtures("tiny_datasets")

DIGITS = tiny("digits")
GEOMETRY = ("effective_rank", "cosine", "volume", "trace", "norm", "class_distance")


def test_trials_that_ask_for_nothing_have_the_keys_of_before() -> None:
    assert not {"few_labels", "few_label_draws", "probe_curve", "geometry"} & trial("simclr").flat().keys()
    assert {"few_labels", "few_label_draws", "probe_curve", "geometry"} <= trial("simclr", few_labels=5).flat().keys()


def test_a_few_labels_are_drawn_by_data_set_alone_and_train_probes_of_the_representation() -> None:
    """Every trial sees the same labels."""
    config = trial("simclr", few_labels=5, few_label_draws=3)
    draws = [
        probes.draw_labelled(DIGITS.train_labels, 5, seeded_generator("few labels", "digits", index))
        for index in range(3)
    ]
    bank_ND, test_MD = (features(config, images, DIGITS) for images in (DIGITS.train_images, DIGITS.test_images))
    expected = probes.few_label_accuracies(
        ProbeData(bank_ND[None], DIGITS.train_labels, test_MD[None], DIGITS.test_labels, 10), draws
    )
    assert evaluated(config)["probe_5"] == pytest.approx(expected)
    assert list(evaluated(trial("simclr", few_labels=2))) == ["probe_2"] and not evaluated(config, last=False)


def test_probes_are_trained_at_every_report_where_a_curve_is_asked_for() -> None:
    """As at the last one."""
    keys: dict[str, int] = {"few_labels": 2, "few_label_draws": 2, "probe_epochs": 1}
    curve, before = (evaluated(trial("random", **keys, probe_curve=True), last=last) for last in (True, False))
    assert list(before) == ["probe_z", "probe_top5_z", "probe_2"] and before == curve
    assert not evaluated(trial("random", **keys), last=False)


@torch.no_grad()
@pytest.mark.parametrize("vectors", ["representation", "projection"])
def test_geometry_is_of_the_vectors_asked_for_of_test_images_without_augmentation(vectors: str) -> None:
    """At every report."""
    config = trial("simclr", geometry=vectors, projection=4, rotation=20.0)
    z_MD = features(config, DIGITS.test_images, DIGITS)
    if vectors == "projection":
        projector = model_of(config).get_submodule("projector")
        z_MD = projector(z_MD)
    eigenvalues_KD = embeddings.spectrum(z_MD[None])
    metrics = evaluated(config, last=False)
    name = "z" if vectors == "representation" else vectors
    assert tuple(metrics) == (*GEOMETRY, f"view_variance_{name}") and len(eigenvalues_KD[0]) == (
        4 if vectors == "projection" else 6
    )
    np.testing.assert_allclose(metrics["volume"], embeddings.volume(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["trace"], embeddings.trace(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["effective_rank"], embeddings.effective_rank(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["norm"], z_MD.norm(dim=-1).mean(), rtol=1e-4)


def test_without_a_projector_the_projection_is_the_representation() -> None:
    first, second = (evaluated(trial("random", geometry=name)) for name in ("representation", "projection"))
    assert [*first.values()] == [*second.values()]


def test_the_cosine_is_of_two_views_which_agree_where_images_are_not_augmented() -> None:
    def cosine(**views: float) -> float:
        return float(evaluated(trial("random", geometry="representation", **views))["cosine"][0])

    assert cosine() == pytest.approx(1, abs=1e-6)
    assert 0.2 < cosine(rotation=90.0) < cosine(rotation=5.0) < 1 and cosine(rotation=5.0) == cosine(rotation=5.0)


def test_members_of_a_stack_have_their_own_values() -> None:
    def members() -> list[ImageTrial]:
        return [trial("gje", few_labels=2, geometry="projection", seed=seed, rotation=30.0) for seed in (0, 1)]

    fused, (first, second) = evaluated(*members()), [evaluated(config) for config in members()]
    for name, values_K in fused.items():
        np.testing.assert_allclose(values_K, [first[name][0], second[name][0]], rtol=1e-4, err_msg=name)
        assert values_K[0] != values_K[1], name


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"few_labels": -1}, "`few_labels >= 0` must hold"),
        ({"few_label_draws": 0}, "`few_label_draws >= 1` must hold"),
        ({"geometry": "views"}, "no geometry 'views'; there are: none, representation, projection"),
        ({"geometry": "projection", "normal_class": 1}, "geometry needs trials on all classes"),
        ({"few_labels": 5, "normal_class": 1}, "few_labels needs trials on all classes"),
    ],
)
def test_evaluations_that_cannot_be_are_refused(keys: dict[str, int | str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        trial("simclr", **keys)
    assert message in str(error.value)


def test_the_posteriors_mean_is_compared_with_the_embedding() -> None:
    """At every report, unless a projector is between the representation and what the posterior is of."""
    config = trial("vje")
    model = model_of(config)
    with torch.no_grad():
        vectors = model.embed((pixels_of(DIGITS.test_images, DIGITS) - DIGITS.mean[0]) / DIGITS.std[0])
    z, mu = (vectors[name].double().numpy() for name in ("z", "mu"))
    lengths, own = np.linalg.norm(mu, axis=1), np.linalg.norm(z, axis=1)
    metrics = evaluated(config, last=False)
    assert metrics["mu_cosine"] == pytest.approx(((z * mu).sum(1) / own / lengths).mean(), rel=1e-4)
    assert metrics["mu_norm"] == pytest.approx(lengths.mean(), rel=1e-4)
    assert metrics["radius_difference"] == pytest.approx(np.abs(own - lengths).mean(), rel=1e-4)
    assert "mu_cosine" not in evaluated(trial("vje", projector_width=8), last=False)


def test_both_sides_of_the_projector_are_evaluated_in_one_trial() -> None:
    """As each alone; and the columns of before have their values."""
    keys: dict[str, Any] = {"geometry": "projection", "rotation": 20.0, "probe_epochs": 1, "few_labels": 2}
    both, alone = evaluated(trial("simclr", **keys, compare_projection=True)), evaluated(trial("simclr", **keys))
    assert {name: both[name] for name in alone} == alone
    assert both.keys() - alone.keys() == {
        *("view_variance_z", "probe_projection", "probe_top5_projection", "probe_2_projection")
    }
    of_z = evaluated(trial("simclr", **{**keys, "geometry": "representation"}))
    assert both["view_variance_z"] == of_z["view_variance_z"] != both["view_variance_projection"]
    same = evaluated(trial("random", **keys, compare_projection=True))
    assert same["probe_2"] == same["probe_2_projection"] and same["probe_z"] == same["probe_projection"]
    with pytest.raises(ValueError, match="compare_projection needs geometry"):
        trial("simclr", compare_projection=True)


def test_new_keys_of_the_evaluation_are_part_of_the_trials_that_set_them_alone() -> None:
    assert not {"compare_projection", "prediction"} & trial("simclr", few_labels=5).flat().keys()
    assert trial("simclr", prediction=True).flat()["prediction"] is True
