"""SimVAE's transposed-convolution decoders against section 5.3 of its specification."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tests.trainables.networks.stacking import assert_stacked_equals_alone
from trainables.networks.decoders import UpsamplingBlock, plain_block, simvae_deconv, simvae_deconv_authors

L = 64
Build = Callable[[int, tuple[int, int, int]], nn.Sequential]
both = pytest.mark.parametrize("build", [simvae_deconv, simvae_deconv_authors])


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


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
