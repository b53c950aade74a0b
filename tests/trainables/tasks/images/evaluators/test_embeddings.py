"""Which vectors, images and labels the evaluators of joint embeddings read, and which trials ask for them."""

import numpy as np
import pytest
import torch

from tests.trainables.tasks.images.evaluators.tiny import evaluated, features, model_of, tiny, trial
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics import embeddings, few_label_probes

pytestmark = pytest.mark.usefixtures("tiny_datasets")

DIGITS = tiny("digits")
GEOMETRY = ("effective_rank", "cosine", "volume", "trace", "norm")


def test_trials_that_ask_for_nothing_have_the_keys_of_before() -> None:
    assert not {"few_labels", "few_label_draws", "probe_curve", "geometry"} & trial("simclr").flat().keys()
    assert {"few_labels", "few_label_draws", "probe_curve", "geometry"} <= trial("simclr", few_labels=5).flat().keys()


def test_a_few_labels_are_drawn_by_data_set_alone_and_train_probes_of_the_representation() -> None:
    """Every trial sees the same labels."""
    config = trial("simclr", few_labels=5, few_label_draws=3)
    draws = [
        few_label_probes.draw_labelled(DIGITS.train_labels, 5, seeded_generator("few labels", "digits", index))
        for index in range(3)
    ]
    bank_ND, test_MD = (features(config, images, DIGITS) for images in (DIGITS.train_images, DIGITS.test_images))
    expected = few_label_probes.accuracies(
        bank_ND[None], DIGITS.train_labels, test_MD[None], DIGITS.test_labels, 10, draws
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
    assert tuple(metrics) == GEOMETRY and len(eigenvalues_KD[0]) == (4 if vectors == "projection" else 6)
    np.testing.assert_allclose(metrics["volume"], embeddings.volume(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["trace"], embeddings.trace(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["effective_rank"], embeddings.effective_rank(eigenvalues_KD), rtol=1e-4)
    np.testing.assert_allclose(metrics["norm"], z_MD.norm(dim=-1).mean(), rtol=1e-4)


def test_without_a_projector_the_projection_is_the_representation() -> None:
    first, second = (evaluated(trial("random", geometry=name)) for name in ("representation", "projection"))
    assert first == second


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
