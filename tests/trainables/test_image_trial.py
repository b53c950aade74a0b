"""The sections of a trial on images: names joined by +, ranges, and the networks that a trial asks for."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.cases import for_each
from trainables.data.outliers import OUTLIERS
from trainables.data.views import PixelViews, Views
from trainables.image_trial import (
    Batches,
    ContentEvaluation,
    Data,
    EmbeddingEvaluation,
    Evaluation,
    Folder,
    Generation,
    ImageTrial,
    LatentDensity,
)
from trainables.networks.encoders import ENCODERS
from trainables.networks.trial_networks import PUBLISHED_SIZES, Encoder, Layers, Networks, Pretrained
from trainables.sections import TrialConfig

SIZED = [name for name in ENCODERS if name not in PUBLISHED_SIZES]
"""Encoders whose size a trial chooses."""


@pytest.mark.parametrize(("text", "classes"), [("", ()), ("3", (3,)), ("0", (0,)), ("2+7+10", (2, 7, 10))])
def test_held_out_classes_are_indices(text: str, classes: tuple[int, ...]) -> None:
    assert Data(held_out=text).held_out_classes == classes


@for_each("text", ["x", "3,4", "-1", "1.0", "3+", "+", "3++4", " 3", "5+3", "3+3+4", "03"])
def test_held_out_is_nothing_but_indices(text: str) -> None:
    with pytest.raises(ValueError) as error:
        Data(held_out=text)
    assert str(error.value) == f"held_out must be ascending class indices joined by +, but got held_out={text}"


def _networks(**changes: Any) -> Networks:
    return Networks(Encoder(**changes), Layers(hidden="12", decoder_hidden="12"))


@for_each("encoder", SIZED)
def test_an_encoder_has_as_many_outputs_a_feature_as_asked_for(encoder: str) -> None:
    networks = _networks(encoder=encoder, width=4, features=8)
    assert networks.build((1, 32, 32)).features == 8
    network = networks.build((1, 32, 32), outputs=3)
    assert network.features == 24 and network(torch.zeros(2, 1, 32, 32)).shape == (2, 24)


def test_the_stem_of_a_resnet_is_the_one_asked_for() -> None:
    stems = [_networks(encoder="resnet18", small_stem=small).build((3, 32, 32)) for small in (True, False)]
    assert [stem.get_parameter("conv1.weight").shape[-1] for stem in stems] == [3, 7]


def test_a_decoder_maps_latents_to_images_in_the_unit_interval() -> None:
    decoder = _networks().build_decoder(5, (3, 8, 8))
    images_BCHW = decoder(100 * torch.randn(2, 5))
    assert images_BCHW.shape == (2, 3, 8, 8) and 0 <= images_BCHW.min() < images_BCHW.max() <= 1


def test_hidden_widths_are_those_of_the_layers() -> None:
    networks = Networks(Encoder("relu_mlp", features=3), Layers(hidden="5+7", decoder_hidden="9"))
    for network, widths in (
        (networks.build((1, 2, 2)), [4, 5, 7, 3]),
        (networks.build_decoder(3, (1, 2, 2)), [3, 9, 4]),
    ):
        linear = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
        assert [layer.in_features for layer in linear] + [linear[-1].out_features] == widths


def test_sections_are_those_of_every_trial_and_those_of_images() -> None:
    assert dict(ImageTrial.sections()) == {
        **TrialConfig.sections(), "data": Data, "encoder": Encoder, "layers": Layers, "views": Views,
        "pretrained": Pretrained,
        "pixel_views": PixelViews, "batches": Batches, "evaluation": Evaluation, "content": ContentEvaluation,
        "generation": Generation, "folder": Folder, "embeddings": EmbeddingEvaluation, "latent_density": LatentDensity,
    }  # fmt: skip


@pytest.mark.parametrize(("text", "sets"), [("", ()), ("svhn", ("svhn",)), ("noise+held_out", ("noise", "held_out"))])
def test_sets_of_outliers_are_names(text: str, sets: tuple[str, ...]) -> None:
    assert Evaluation(outliers=text).outlier_sets == sets


def test_every_set_of_outliers_may_be_asked_for() -> None:
    assert Evaluation(outliers="+".join(OUTLIERS)).outlier_sets == OUTLIERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shn", "no outliers 'shn' (did you mean 'svhn'?); there are: "),
        ("svhn+", "no outliers ''; there are: "),
        ("imagenet", "no outliers 'imagenet'"),
        ("svhn+noise+svhn", "each set of outliers must be named once, but got outliers=svhn+noise+svhn"),
    ],
)
def test_unknown_or_repeated_outliers_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Evaluation(outliers=text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("text", "names"), [("", ()), ("ink", ("ink",)), ("hue+ink", ("hue", "ink"))])
def test_styles_are_names(text: str, names: tuple[str, ...]) -> None:
    assert ContentEvaluation(content_probe_epochs=1, styles=text).style_names == names


@pytest.mark.parametrize(
    ("values", "decodes"),
    [({}, False), ({"adhoc_epochs": 5}, False), ({"reconstructions": True}, True), ({"samples_per_class": 1}, True)],
)
def test_images_are_decoded_for_reconstructions_and_samples(values: dict[str, Any], decodes: bool) -> None:
    assert Generation(**values).decodes == decodes


REFUSED: Mapping[Any, list[tuple[dict[str, Any], str]]] = {
    Data: [({"validation": 0.51}, "`0 <= validation <= 0.5` must hold, but got validation=0.51")],
    Layers: [
        ({"hidden": "5+"}, "hidden must be positive widths joined by +, such as 500+2000, but got hidden=5+"),
        (
            {"decoder_hidden": "0"},
            "decoder_hidden must be positive widths joined by +, such as 500+2000, but got decoder_hidden=0",
        ),
        ({"stem_pool": 1}, "stem_pool must be true or false, but got stem_pool=1"),
        (
            {"decoder": "relump"},
            "no decoder 'relump' (did you mean 'relu_mlp'?); there are: relu_mlp, lenet, lenet_wide, "
            "simvae_deconv, simvae_deconv_authors, strided_deconv",
        ),
    ],
    Evaluation: [({"knn": 2.0}, "knn must be a whole number, but got knn=2.0")],
    ContentEvaluation: [
        ({"styles": "ink"}, "styles needs content_probe_epochs of at least 1, but got styles=ink"),
        (
            {"styles": "ink+hue+ink", "content_probe_epochs": 1},
            "each attribute must be named once, but got styles=ink+hue+ink",
        ),
    ],
    Generation: [
        ({"fid_weights": "x.pth"}, "fid_weights needs samples_per_class of at least 1, but got samples_per_class=0"),
    ],
    LatentDensity: [
        ({"density_samples": 24}, "density_samples must be a multiple of 16, but got density_samples=24"),
    ],
}
"""Section -> values that it refuses, and the error that they get; a property tests the bounds of single fields."""


@for_each(("section", "values", "message"), [(section, *case) for section, cases in REFUSED.items() for case in cases])
def test_values_that_do_not_fit_are_refused(section: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        section(**values)
    assert str(error.value) == message
