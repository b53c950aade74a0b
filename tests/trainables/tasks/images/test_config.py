"""The sections of a trial on images: names joined by +, ranges, and the encoder that a trial asks for."""

from typing import Any

import pytest
import torch

from trainables.data.views import PixelViews, Views
from trainables.image_trial import (
    PUBLISHED_SIZES,
    Batches,
    ContentEvaluation,
    Data,
    EmbeddingEvaluation,
    Encoder,
    Evaluation,
    Folder,
    Generation,
    ImageTrial,
    LatentDensity,
    Layers,
    Networks,
)
from trainables.networks.encoders import ENCODERS
from trainables.sections import TrialConfig

SIZED = [name for name in ENCODERS if name not in PUBLISHED_SIZES]
"""Encoders whose size a trial chooses."""


@pytest.mark.parametrize(("text", "classes"), [("", ()), ("3", (3,)), ("0", (0,)), ("2+7+10", (2, 7, 10))])
def test_held_out_classes_are_indices(text: str, classes: tuple[int, ...]) -> None:
    assert Data(held_out=text).held_out_classes == classes


@pytest.mark.parametrize("text", ["x", "3,4", "-1", "1.0", "3+", "+", "3++4", " 3", "5+3", "3+3+4", "03"])
def test_held_out_is_nothing_but_indices(text: str) -> None:
    with pytest.raises(ValueError) as error:
        Data(held_out=text)
    assert str(error.value) == f"held_out must be ascending class indices joined by +, but got held_out={text}"


@pytest.mark.parametrize("share", [-0.1, 0.51, 1.0])
def test_a_share_of_validation_images_is_at_most_a_half(share: float) -> None:
    with pytest.raises(ValueError) as error:
        Data(validation=share)
    assert str(error.value) == f"`0 <= validation <= 0.5` must hold, but got validation={share}"


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        (Batches, "batch_unit", "pixels", "no batch_unit 'pixels'; there are: images, views"),
        (Layers, "hidden", "5+", "hidden must be positive widths joined by +, such as 500+2000, but got hidden=5+"),
        (
            *(Layers, "decoder_hidden", "0"),
            "decoder_hidden must be positive widths joined by +, such as 500+2000, but got decoder_hidden=0",
        ),
        (Layers, "stem_pool", 1, "stem_pool must be true or false, but got stem_pool=1"),
        (
            *(Layers, "decoder", "relump"),
            "no decoder 'relump' (did you mean 'relu_mlp'?); there are: relu_mlp, simvae_deconv, "
            "simvae_deconv_authors, strided_deconv",
        ),
    ],
)
def test_layers_and_batches_out_of_range_are_refused(section: Any, field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        section(**{field: value})
    assert str(error.value) == message


def _networks(**changes: Any) -> Networks:
    return Networks(Encoder(**changes), Layers(hidden="12", decoder_hidden="12"))


@pytest.mark.parametrize("encoder", SIZED)
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
        "pixel_views": PixelViews, "batches": Batches, "evaluation": Evaluation, "content": ContentEvaluation,
        "generation": Generation, "folder": Folder, "embeddings": EmbeddingEvaluation, "latent_density": LatentDensity,
    }  # fmt: skip
