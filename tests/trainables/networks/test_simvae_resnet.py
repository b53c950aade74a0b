"""SimVAE's residual encoders against section 5.2 of its specification. Shapes: C channels; D features."""

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from tests.trainables.networks.stacking import assert_stacked_equals_alone
from trainables.networks.encoders import ResidualBlock, SimVAEResNet, simvae_resnet, simvae_resnet_authors


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _stages_size(widths: tuple[int, ...]) -> int:
    """Of two blocks per stage: four 3x3 convolutions, a 1x1 convolution, five BatchNorms of two vectors."""
    return sum(
        9 * fan_in * width + 3 * 9 * width**2 + fan_in * width + 5 * 2 * width
        for fan_in, width in itertools.pairwise(widths)
    )


@pytest.mark.parametrize(("side", "parameters"), [(32, 969_920), (64, 1_757_632)])
def test_the_authors_encoder_has_as_many_parameters_as_theirs(side: int, parameters: int) -> None:
    assert _size(simvae_resnet_authors((3, side, side), 128)) == parameters


@pytest.mark.parametrize(
    ("side", "stem_pool", "flat"), [(64, True, 4096), (32, True, 1024), (32, False, 4096), (28, True, 1024)]
)
def test_the_papers_encoder_has_the_size_of_its_table(side: int, stem_pool: bool, flat: int) -> None:
    network = simvae_resnet((3, side, side), 128, stem_pool=stem_pool)
    assert network.head.in_features == flat
    stem = 16 * 3 * 4 * 4 + 2 * 16
    assert _size(network) == stem + _stages_size((16, 32, 64, 128, 256)) + flat * 128 + 128


def _sides(network: SimVAEResNet, side: int) -> list[int]:
    """Height after the stem and after each of the stages of two blocks."""
    maps = network.eval().stem(torch.zeros(1, 3, side, side))
    sides = [maps.shape[-1]]
    for first in range(0, len(network.stages), 2):
        maps = network.stages[first : first + 2](maps)
        sides.append(maps.shape[-1])
    return sides


@torch.no_grad()
def test_maps_shrink_as_in_the_tables() -> None:
    assert _sides(simvae_resnet((3, 64, 64), 4, stem_pool=True), 64) == [32, 32, 16, 8, 4]
    assert _sides(simvae_resnet((3, 32, 32), 4, stem_pool=True), 32) == [16, 16, 8, 4, 2]
    assert _sides(simvae_resnet((3, 32, 32), 4, stem_pool=False), 32) == [31, 31, 16, 8, 4]
    assert _sides(simvae_resnet_authors((3, 32, 32), 4), 32) == [15, 15, 8, 4]
    assert _sides(simvae_resnet_authors((3, 64, 64), 4), 64) == [31, 31, 16, 8]


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64), (2, 33, 50), (3, 9, 70)])
@torch.no_grad()
def test_images_of_any_size_have_features(shape: tuple[int, int, int]) -> None:
    """The width of the linear layer is computed from the shape."""
    for network in (
        simvae_resnet(shape, 6, stem_pool=True),
        simvae_resnet(shape, 6, stem_pool=False),
        simvae_resnet_authors(shape, 6),
    ):
        z_BD = network.eval()(torch.randn(2, *shape))
        assert z_BD.shape == (2, network.features) == (2, 6) and z_BD.isfinite().all()


def test_a_block_adds_its_input_or_the_inputs_projection() -> None:
    """With the last BatchNorm's weight at 0, which silences the convolutions."""
    images = torch.randn(3, 4, 6, 6)
    for project, stride in ((False, 1), (True, 2)):
        block = ResidualBlock(4, 4, stride, project)
        nn.init.zeros_(block.layers.get_parameter("4.weight"))
        torch.testing.assert_close(block(images), block.shortcut(images).relu())
    assert isinstance(ResidualBlock(4, 4, 1, False).shortcut, nn.Identity)
    assert ResidualBlock(4, 8, 2, True)(images).shape == (3, 8, 3, 3)


def test_initial_weights_follow_he_except_in_the_authors_stem() -> None:
    """PyTorch's own initial weights are uniform in `+-1/sqrt(fan-in)`."""
    network = simvae_resnet((3, 64, 64), 10, stem_pool=True)
    authors = simvae_resnet_authors((3, 64, 64), 10)
    for convolution in (network.stem[0], *(layer for net in (network, authors) for layer in net.stages.modules())):
        if isinstance(convolution, nn.Conv2d):
            fan_out = convolution.out_channels * math.prod(convolution.kernel_size)
            assert convolution.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.1)
    assert authors.stem.get_parameter("0.weight").abs().max().item() == pytest.approx(
        1 / math.sqrt(3 * 4 * 4), rel=0.01
    )


@pytest.mark.parametrize("authors", [False, True])
def test_gradients_reach_every_parameter(authors: bool) -> None:
    shape = (3, 32, 32)
    network = simvae_resnet_authors(shape, 5) if authors else simvae_resnet(shape, 5, stem_pool=True)
    network(torch.rand(4, *shape)).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert all(grad is not None and grad.isfinite().all() for grad in gradients.values())
    silent = {name for name, grad in gradients.items() if grad is not None and not grad.abs().sum() > 0}
    assert silent == set()


def test_stacked_encoders_equal_each_alone() -> None:
    """Narrow ones, with every kind of layer."""

    def build() -> SimVAEResNet:
        stem = nn.Sequential(nn.Conv2d(1, 3, 4), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        return SimVAEResNet(stem, 3, (4, 5), (4, 4), features=2)

    assert_stacked_equals_alone([build() for _ in range(3)], torch.rand(3, 4, 1, 11, 11))
