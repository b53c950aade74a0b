"""Encoders: inputs and outputs. Shapes: B images of C channels, H by W pixels, D features."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import nn

from trainables.networks.encoders import ENCODERS, MLP, ConvNet, build_encoder


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_gives_the_features_that_it_declares(name: str) -> None:
    network = build_encoder(name, (3, 32, 32), width=6, features=5, small_stem=True).eval()
    with torch.no_grad():
        z_BD = network(torch.randn(2, 3, 32, 32))
    assert z_BD.shape == (2, network.features) and z_BD.isfinite().all() and not torch.equal(z_BD[0], z_BD[1])
    assert network.features == {"resnet18": 512, "resnet50": 2048}.get(name, 5)


@pytest.mark.parametrize("name", ["mlp", "relu_mlp", "convnet", "resnet18", "simvae_resnet", "simvae_resnet_authors"])
def test_initial_weights_come_from_torchs_generator(name: str) -> None:
    def weights(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        network = build_encoder(name, (1, 8, 8), width=6, features=5, small_stem=True)
        return [parameter.detach() for parameter in network.parameters() if parameter.dim() > 1]

    assert all(torch.equal(left, right) for left, right in zip(weights(0), weights(0), strict=True))
    assert not any(torch.equal(left, right) for left, right in zip(weights(0), weights(1), strict=True))


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 5, 9)])
def test_convnet_takes_images_of_any_size(shape: tuple[int, int, int]) -> None:
    network = ConvNet(shape[0], 4, 7)
    assert network(torch.randn(2, *shape)).shape == (2, 7)


def test_convnet_is_three_convolutions_with_batchnorm() -> None:
    """Of width, twice the width and the features; 3x3, strides 1, 2, 2; no bias before a BatchNorm."""
    network = ConvNet(3, 8, 20)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.stride[0]) for c in convolutions] == [(3, 8, 1), (8, 16, 2), (16, 20, 2)]
    assert sum(p.numel() for p in network.parameters()) == 9 * (3 * 8 + 8 * 16 + 16 * 20) + 2 * (8 + 16 + 20)
    sides = [network.layers[: 3 * count](torch.randn(2, 3, 32, 32)).shape[-1] for count in (1, 2, 3)]
    assert sides == [32, 16, 8]


def test_convnet_averages_over_places() -> None:
    """Features are means after a ReLU: never negative, and those of a shifted pattern are the pattern's."""
    network = ConvNet(1, 4, 6).eval()
    pattern = torch.zeros(1, 1, 64, 64)
    pattern[..., 20:29, 20:29] = torch.randn(9, 9)
    with torch.no_grad():
        z_BD, shifted_BD = network(pattern), network(pattern.roll((8, 12), (2, 3)))
        assert (network(torch.randn(9, 1, 8, 8)) >= 0).all()
    torch.testing.assert_close(shifted_BD, z_BD, rtol=1e-4, atol=1e-6)
    assert z_BD.max() > 1e-4


def test_mlp_has_no_batchnorm_and_treats_each_image_separately() -> None:
    network, images = MLP(64, 10, 5), torch.randn(4, 1, 8, 8)
    assert not list(network.buffers())
    torch.testing.assert_close(network(images)[1:2], network(images[1:2]))
    assert sum(p.numel() for p in network.parameters()) == 64 * 10 + 10 + 10 * 5 + 5


@pytest.mark.parametrize("hidden", ["50+40", (50, 40)])
def test_relu_mlp_is_linear_layers_with_relu_between_them(hidden: str | tuple[int, ...]) -> None:
    network = build_encoder("relu_mlp", (2, 3, 4), width=1, features=6, small_stem=True, hidden=hidden)
    layers = [layer for layer in network.modules() if not list(layer.children())]
    assert [type(layer) for layer in layers] == [nn.Flatten, *[nn.Linear, nn.ReLU] * 2, nn.Linear]
    assert sum(p.numel() for p in network.parameters()) == 25 * 50 + 51 * 40 + 41 * 6
    images = torch.randn(5, 2, 3, 4)
    first, second, last = (layer for layer in layers if isinstance(layer, nn.Linear))
    x_BD = images.reshape(5, 24)
    for linear in (first, second):
        x_BD = (x_BD @ linear.weight.T + linear.bias).clamp_min(0)
    torch.testing.assert_close(network(images), x_BD @ last.weight.T + last.bias)


def test_stem_pool_halves_the_maps_of_simvaes_encoder() -> None:
    build = partial(build_encoder, "simvae_resnet", (3, 32, 32), width=1, features=5, small_stem=True)
    flat = [network.get_submodule("head").in_features for network in (build(), build(stem_pool=False))]
    assert flat == [1024, 4096]
