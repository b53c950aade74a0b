"""Decoders: inputs, outputs and refusals, and SimVAE's against its Tables 3 and 4; strided convolutions.

Shapes: B latents of L dimensions, images of C channels, H by W pixels, D features.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tests.trainables.networks.stacking import assert_stacked_equals_alone
from trainables.networks.decoders import (
    DECODERS,
    UpsamplingBlock,
    build_decoder,
    check_decoder,
    plain_block,
    simvae_deconv,
    simvae_deconv_authors,
)
from trainables.networks.encoders import LENETS, build_encoder
from trainables.networks.strided import strided_convnet, strided_deconv


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


SHAPES = [
    *((name, (channels, side, side)) for name in DECODERS for channels, side in ((1, 32), (3, 32), (3, 64))),
    *((name, shape) for name in LENETS for shape in ((1, 8, 8), (1, 28, 28), (2, 9, 13))),
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


@pytest.mark.slow
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
    """Table 3, by default; the decoder takes half of what the encoder gives."""
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


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet", (1, 28, 28)), ("lenet_wide", (3, 32, 32)), ("lenet", (1, 9, 13))]
)
def test_lenets_mirror_each_other(name: str, shape: tuple[int, int, int]) -> None:
    """The decoder's maps are those of the encoder in reverse, and neither has a bias."""
    features = 7
    encoder = build_encoder(name, shape, width=1, features=features, small_stem=True)
    decoder = build_decoder(name, features, shape)
    down = _maps_before(encoder, nn.Conv2d, torch.rand(2, *shape))
    up = _maps_before(decoder, nn.ConvTranspose2d, torch.rand(2, features))
    assert [sides for _, sides in up] == [sides for _, sides in reversed(down)]
    assert [channels for channels, _ in up] == [*reversed(LENETS[name])]
    assert all(key.endswith("weight") for key, _ in decoder.named_parameters())


def _maps_before(network: nn.Module, kind: type[nn.Module], x: torch.Tensor) -> list[tuple[int, tuple[int, ...]]]:
    """Channels and sides of what each layer of this kind is given."""
    seen: list[tuple[int, tuple[int, ...]]] = []
    for layer in network.modules():
        if isinstance(layer, kind):

            def note(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
                seen.append((inputs[0].shape[1], tuple(inputs[0].shape[2:])))

            layer.register_forward_pre_hook(note)
    network(x)
    return seen


@pytest.mark.parametrize("side", [4, 9])
def test_stacked_lenets_equal_each_alone(side: int) -> None:
    decoders = [build_decoder("lenet", 3, (2, side, side + 1)) for _ in range(3)]
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


L = 64
Build = Callable[[int, tuple[int, int, int]], nn.Sequential]
both = pytest.mark.parametrize("build", [simvae_deconv, simvae_deconv_authors])


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _upsampling_size(fan_in: int, width: int) -> int:
    """Two 3x3 convolutions, the 1x1 shortcut, three BatchNorms of two vectors."""
    return 9 * fan_in * width + 9 * width**2 + fan_in * width + 3 * 2 * width


@pytest.mark.parametrize(("side", "start"), [(32, 2), (64, 4)])
def test_sizes_are_those_of_the_tables(side: int, start: int) -> None:
    paper = (L + 1) * 256 * start**2 + 5 * 5 * 16 * 3 + 3
    paper += sum(_upsampling_size(2 * width, width) for width in (128, 64, 32, 16))
    assert _size(simvae_deconv(L, (3, side, side))) == paper
    authors = (L + 1) * 512 * start**2 + 7 * 7 * 64 * 3 + 3
    authors += sum(_upsampling_size(2 * width, width) for width in (256, 128, 64))
    authors += sum(2 * (9 * width**2 + 2 * width) for width in (512, 256, 128, 64, 64))
    assert _size(simvae_deconv_authors(L, (3, side, side))) == authors


@torch.no_grad()
def test_maps_grow_as_in_the_tables() -> None:
    def maps(network: nn.Sequential) -> list[tuple[int, int]]:
        """Channels and height after each block that changes them."""
        x, seen = torch.randn(1, L), []
        for layer in network:
            x = layer(x)
            seen += [(x.shape[1], x.shape[-1])] if x.dim() == 4 and (x.shape[1], x.shape[-1]) not in seen else []
        return seen

    assert maps(simvae_deconv(L, (3, 32, 32)).eval()) == [(256, 2), (128, 4), (64, 8), (32, 16), (16, 32), (3, 32)]
    assert maps(simvae_deconv(L, (3, 64, 64)).eval()) == [(256, 4), (128, 8), (64, 16), (32, 32), (16, 64), (3, 64)]
    assert maps(simvae_deconv_authors(L, (3, 32, 32)).eval()) == [(512, 2), (256, 4), (128, 8), (64, 16), (3, 32)]


@both
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 64), (3, 48, 16)])
@torch.no_grad()
def test_images_have_any_multiple_of_sixteen(build: Build, shape: tuple[int, int, int]) -> None:
    assert build(5, shape).eval()(torch.randn(2, 5)).shape == (2, *shape)


def test_blocks_have_a_shortcut_only_where_they_upsample() -> None:
    """With the weights of the last BatchNorm at 0, which silences the convolutions."""
    maps = torch.randn(3, 8, 4, 4)
    upsampling, plain = UpsamplingBlock(8, 4), plain_block(8)
    nn.init.zeros_(upsampling.layers.get_parameter("4.weight"))
    nn.init.zeros_(plain.get_parameter("4.weight"))
    torch.testing.assert_close(upsampling(maps), upsampling.shortcut(maps).relu())
    assert upsampling(maps).abs().max() > 0.1 and upsampling(maps).shape == (3, 4, 8, 8)
    assert torch.equal(plain(maps), torch.zeros(3, 8, 4, 4))


@both
def test_gradients_reach_every_parameter(build: Build) -> None:
    network = build(5, (3, 32, 32))
    network(torch.randn(4, 5)).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert all(grad is not None and grad.isfinite().all() for grad in gradients.values())
    silent = {name for name, grad in gradients.items() if grad is not None and not grad.abs().sum() > 0}
    assert silent == set()


def test_stacked_blocks_equal_each_alone() -> None:
    """Narrow ones, with every kind of layer."""

    def build() -> nn.Sequential:
        last = nn.ConvTranspose2d(4, 2, 7, stride=2, padding=3, output_padding=1)
        return nn.Sequential(nn.Linear(3, 24), nn.Unflatten(-1, (6, 2, 2)), UpsamplingBlock(6, 4), plain_block(4), last)

    assert_stacked_equals_alone([build() for _ in range(3)], torch.randn(3, 5, 3))


WIDTHS = {(1, 32, 32): [32, 64, 128, 256], (3, 8, 8): [32, 64], (1, 28, 28): [32, 64], (2, 5, 9): []}
"""Image shape -> channels of the maps. Sides of 28 pixels are halved to 14 and 7; odd ones not at all."""


@pytest.mark.parametrize("shape", WIDTHS)
def test_encoder_and_decoder_have_the_same_maps_in_opposite_order(shape: tuple[int, int, int]) -> None:
    encoder, decoder = strided_convnet(shape, 32, 6), strided_deconv(6, shape)
    down = [(layer.in_channels, layer.out_channels) for layer in encoder if isinstance(layer, nn.Conv2d)]
    up = [(layer.out_channels, layer.in_channels) for layer in decoder if isinstance(layer, nn.ConvTranspose2d)]
    assert [out for _, out in down] == WIDTHS[shape] and up == down[::-1]
    z_BD = encoder(torch.randn(4, *shape))
    assert z_BD.shape == (4, 6) and decoder(z_BD).shape == (4, *shape)
    assert z_BD.min() < 0 < z_BD.max()


def test_smallest_map_of_the_papers_images_has_two_pixels_a_side() -> None:
    encoder = strided_convnet((1, 32, 32), 32, 6)
    linear = [(layer.in_features, layer.out_features) for layer in encoder if isinstance(layer, nn.Linear)]
    assert linear == [(256 * 2 * 2, 256), (256, 6)]
