"""Decoders: inputs, outputs and refusals. Shapes: B latents of L dimensions, images of C channels, H by W pixels."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.trainables.networks.stacking import assert_stacked_equals_alone
from trainables.networks.decoders import DECODERS, build_decoder, check_decoder
from trainables.networks.encoders import build_encoder


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


SHAPES = [
    *((name, (channels, side, side)) for name in DECODERS for channels, side in ((1, 32), (3, 32), (3, 64))),
    *(("relu_mlp", shape) for shape in ((1, 8, 8), (3, 8, 8), (1, 28, 28), (2, 5, 9))),
]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
@torch.no_grad()
def test_every_decoder_gives_images_of_means(name: str, shape: tuple[int, int, int]) -> None:
    decoder = build_decoder(name, 6, shape, hidden="20+10")
    images = decoder(30 * torch.randn(4, 6))
    assert images.shape == (4, *shape) and decoder.image_shape == shape and decoder.features == 6
    assert ((images >= 0) & (images <= 1)).all() and not torch.equal(images[0], images[1])
    assert images.std(0).min() > 0  # every pixel depends on the latents


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_means_are_the_sigmoid_of_the_logits(name: str) -> None:
    decoder, z_BL = build_decoder(name, 6, (3, 32, 32)).eval(), torch.randn(4, 6)
    torch.testing.assert_close(1 / (1 + (-decoder.logits(z_BL)).exp()), decoder(z_BL))


@pytest.mark.parametrize("name", DECODERS)
def test_layers_in_half_precision_give_float32_images(name: str) -> None:
    """The eight bits of bfloat16 would round a mean of 0.99 to the 256 levels that pixels have; float64 is kept."""
    decoder, z_BL = build_decoder(name, 6, (3, 32, 32)).eval(), torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert decoder.layers(z_BL).dtype == torch.bfloat16
        assert decoder(z_BL).dtype == torch.float32
    assert decoder.double()(z_BL.double()).dtype == torch.float64


def _widths(network: nn.Module) -> list[int]:
    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return [linear[0].in_features, *(layer.out_features for layer in linear)]


def test_the_papers_networks_of_grey_images_mirror_each_other() -> None:
    """Section 5.1, by default; the decoder takes half of what the encoder gives."""
    shape = (1, 28, 28)
    encoder = build_encoder("relu_mlp", shape, width=1, features=20, small_stem=True)
    decoder = build_decoder("relu_mlp", 10, shape)
    assert _widths(encoder) == [784, 500, 500, 2000, 20]
    assert _widths(decoder) == [10, 2000, 500, 500, 784]
    parameters = sum(parameter.numel() for parameter in decoder.parameters())
    assert parameters == 11 * 2000 + 2001 * 500 + 501 * 500 + 501 * 784


def test_relu_follows_every_linear_layer_but_the_last() -> None:
    layers = list(build_decoder("relu_mlp", 4, (1, 2, 3), hidden=(7, 5)).layers.children())
    assert [type(layer) for layer in layers] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear, nn.Unflatten]


def test_initial_weights_come_from_torchs_generator() -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [p.detach() for p in build_decoder("simvae_deconv", 4, (1, 16, 16)).parameters() if p.dim() > 1]

    assert all(torch.equal(left, right) for left, right in zip(weights(0), weights(0), strict=True))
    assert not any(torch.equal(left, right) for left, right in zip(weights(0), weights(1), strict=True))


def test_stacked_mlps_equal_each_alone() -> None:
    decoders = [build_decoder("relu_mlp", 3, (1, 4, 4), hidden="6+5") for _ in range(3)]
    assert_stacked_equals_alone(decoders, torch.randn(3, 5, 3))


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 32, 40)])
@pytest.mark.parametrize("name", ["simvae_deconv", "simvae_deconv_authors"])
def test_sizes_that_cannot_be_decoded_to_are_refused(name: str, shape: tuple[int, int, int]) -> None:
    message = (
        rf"^height and width must be multiples of 16 \(32x32, 64x64\) for decoder={name}, but are "
        rf"{shape[1]}x{shape[2]}; relu_mlp and strided_deconv decode to any size$"
    )
    for refuse in (lambda: check_decoder(name, shape), lambda: build_decoder(name, 4, shape)):
        with pytest.raises(ValueError, match=message):
            refuse()


def test_unknown_decoders_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^no decoder 'relu_mpl' \(did you mean 'relu_mlp'\?\); there are: relu_"):
        build_decoder("relu_mpl", 4, (1, 8, 8))
