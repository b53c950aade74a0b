"""The section that asks for samples of a density: its ranges, and what the rest of a trial must be."""

from typing import Any

import pytest

from tests.trainables.small import image_trial
from trainables.config import resolve
from trainables.image_trial import LatentDensity
from trainables.sections import Value

DECODED: dict[str, Value] = {"adhoc_epochs": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"density": "gmmm"}, "no density 'gmmm' (did you mean 'gmm'?); there are: none, gaussian, gmm, own, "),
        ({"density_components": 0}, "`density_components >= 1` must hold, but got density_components=0"),
        ({"density_samples": 24}, "density_samples must be a multiple of 16, but got density_samples=24"),
        ({"density_samples": 0}, "`density_samples >= 16` must hold"),
        ({"density_confidence": 0.5}, "`0.5 < density_confidence < 1` must hold, but got density_confidence=0.5"),
        ({"density_pictures": 1}, "density_pictures must be true or false"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        LatentDensity(**values)
    assert str(error.value).startswith(message)


def test_a_trial_that_asks_for_no_density_has_no_keys_of_one() -> None:
    """So the ids of earlier trials are what they were."""
    assert not any(key.startswith("density") for key in image_trial({"method": "simclr"}).flat())
    asking = image_trial({"method": "simclr", "density": "gmm", **DECODED}).flat()
    assert {key for key in asking if key.startswith("density")} == set(vars(LatentDensity()))


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("simclr", {"density": "gmm"}, "density=gmm needs adhoc_epochs of at least 1"),
        ("simclr", {"density": "own", **DECODED}, "simclr has no density for density; those that have them are: gmje"),
        (
            *("gmje_parametric", {"density": "own", **DECODED}),
            "the density of gmje_parametric is of projections unless projector_width=0, but got projector_width=512",
        ),
        (
            *("simclr", {"density": "gmm", "samples_per_class": 2, **DECODED}),
            "samples are either of density or of each class, so samples_per_class must be 0",
        ),
        (
            *("simclr", {"density": "gmm", "normal_class": 0, **DECODED}),
            "density needs trials on all classes, but got density=gmm with a normal_class",
        ),
        (
            *("simclr", {"density": "gmm", "dataset": "mnist", "decoder": "simvae_deconv", **DECODED}),
            "height and width must be multiples of 16",
        ),
    ],
)
def test_a_density_that_cannot_be_sampled_or_decoded_is_refused(
    method: str, values: dict[str, Value], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        resolve({"method": method, **values})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_real_images_need_no_decoder() -> None:
    asked = image_trial({"method": "pixels", "epochs": 0, "density": "images"}).latent_density
    assert asked.evaluated and not asked.decoded and not asked.sampled
