"""Encoders: inputs and outputs, and SimVAE's against its Tables 3 and 4.

Shapes: B images of C channels, H by W pixels, D features.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.networks.stacking import assert_stacked_equals_alone
from trainables.contract import Batch, ImageMethod, Losses
from trainables.learners.optimisers import Rates, StackedSGD
from trainables.learners.stack import Stack
from trainables.networks.encoders import (
    ENCODERS,
    LENETS,
    MLP,
    ConvNet,
    LeNet,
    ResidualBlock,
    SimVAEResNet,
    WideResNet,
    build_encoder,
    resnet,
    simvae_resnet,
    simvae_resnet_authors,
)
from trainables.networks.trial_networks import Encoder, Layers, Networks


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
    assert network.features == {"resnet18": 512, "resnet50": 2048, "wide_resnet10_4": 256}.get(name, 5)


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


@pytest.mark.parametrize(
    ("name", "shape", "features", "sizes"),
    [("lenet", (1, 28, 28), 32, (25 * 8, 25 * 8 * 4, 4 * 7 * 7 * 32)),
     ("lenet_wide", (3, 32, 32), 128, (25 * 3 * 32, 25 * 32 * 64, 25 * 64 * 128, 128 * 4 * 4 * 128))],
)  # fmt: skip
def test_deep_svdds_encoder_has_nothing_but_the_authors_weights(
    name: str, shape: tuple[int, int, int], features: int, sizes: tuple[int, ...]
) -> None:
    """Those of convolutions and of the last layer: no biases, and no weights of a BatchNorm, whose epsilon is 1e-4."""
    network = build_encoder(name, shape, width=1, features=features, small_stem=True)
    assert [(key.endswith("weight"), weight.numel()) for key, weight in network.named_parameters()] == [
        (True, size) for size in sizes
    ]
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [norm.eps for norm in norms] == [1e-4] * len(LENETS[name])


@pytest.mark.parametrize("side", [4, 8, 11])
def test_stacked_lenets_equal_each_alone(side: int) -> None:
    networks = [LeNet((2, side, side + 3), (3, 2), features=2) for _ in range(3)]
    assert_stacked_equals_alone(networks, torch.rand(3, 4, 2, side, side + 3))


def test_images_smaller_than_the_pooling_are_refused() -> None:
    build = partial(build_encoder, width=1, features=2, small_stem=True)
    assert build("lenet_wide", (1, 8, 9))(torch.rand(2, 1, 8, 9)).shape == (2, 2)
    with pytest.raises(ValueError, match=r"^height and width must be at least 8 for encoder=lenet_wide, but are 8x7$"):
        build("lenet_wide", (1, 8, 7))


def test_stem_pool_halves_the_maps_of_simvaes_encoder() -> None:
    build = partial(build_encoder, "simvae_resnet", (3, 32, 32), width=1, features=5, small_stem=True)
    flat = [network.get_submodule("head").in_features for network in (build(), build(stem_pool=False))]
    assert flat == [1024, 4096]


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 32)])
def test_the_wide_resnet_has_the_published_layers(channels: int, side: int) -> None:
    """WRN-10-4: a stem, then in each of three stages two 3x3 convolutions and a 1x1 one; strides 1, 2, 2."""
    network = build_encoder("wide_resnet10_4", (channels, side, side), width=1, features=1, small_stem=True)
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    threes = [(c.in_channels, c.out_channels, c.stride[0]) for c in convolutions if c.kernel_size == (3, 3)]
    stages = [(16, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    assert threes == [(channels, 16, 1), *stages]
    ones = [(c.in_channels, c.out_channels, c.stride[0]) for c in convolutions if c.kernel_size == (1, 1)]
    assert ones == [(16, 64, 1), (64, 128, 2), (128, 256, 2)]
    norms = 2 * (16 + 64 + 64 + 128 + 128 + 256 + 256)
    weights = 9 * (16 * channels + sum(fan_in * width for fan_in, width, _ in stages))
    weights += sum(fan_in * width for fan_in, width, _ in ones)
    assert sum(parameter.numel() for parameter in network.parameters()) == weights + norms
    z_BD = network(torch.randn(3, channels, side, side))
    assert network.features == 256 and z_BD.shape == (3, 256) and (z_BD >= 0).all()


def test_stacked_wide_resnets_equal_each_alone() -> None:
    """Narrow ones, with two blocks a stage, of which the second has no convolution beside it."""
    networks = [WideResNet(2, blocks=2, widen=1) for _ in range(3)]
    assert_stacked_equals_alone(networks, torch.rand(3, 4, 2, 8, 8))


@pytest.mark.parametrize(("depth", "features", "parameters"), [(18, 512, 11_176_512), (50, 2048, 23_508_032)])
def test_size_is_the_published_one(depth: Literal[18, 50], features: int, parameters: int) -> None:
    network = resnet(depth)
    assert network.features == features
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("depth", [18, 50])
@pytest.mark.parametrize(
    ("side", "channels", "small_stem"), [(8, 1, True), (32, 3, True), (96, 3, False), (70, 4, False)]
)
def test_pooled_features_of_any_image(depth: Literal[18, 50], side: int, channels: int, small_stem: bool) -> None:
    network = resnet(depth, channels, small_stem).eval()
    with torch.no_grad():
        assert network(torch.randn(2, channels, side, side)).shape == (2, network.features)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [18, 50])
def test_equals_torchvision_with_its_weights(depth: Literal[18, 50]) -> None:
    import torchvision

    theirs = getattr(torchvision.models, f"resnet{depth}")()
    ours = resnet(depth)
    ours.load_state_dict({name: value for name, value in theirs.state_dict().items() if not name.startswith("fc.")})
    theirs.fc = nn.Identity()
    images_BCHW = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(ours(images_BCHW), theirs(images_BCHW))  # training mode: batch statistics
        assert torch.equal(ours.eval()(images_BCHW), theirs.eval()(images_BCHW))  # and running ones


@pytest.mark.parametrize(
    ("small_stem", "sides"),
    [(True, {"conv1": 32, "layer1": 32, "layer2": 16, "layer4": 4}), (False, {"conv1": 16, "layer1": 8, "layer2": 4})],
)
def test_small_stem_keeps_every_pixel_until_layer2(small_stem: bool, sides: dict[str, int]) -> None:
    network, seen = resnet(18, small_stem=small_stem).eval(), {}
    for name in sides:

        def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str = name) -> None:
            seen[name] = output.shape[-1]

        network.get_submodule(name).register_forward_hook(note)
    with torch.no_grad():
        network(torch.randn(1, 3, 32, 32))
    assert seen == sides


def test_stem_is_drawn_as_torchvision_draws_it() -> None:
    weight = resnet(18, channels=16, small_stem=True).get_parameter("conv1.weight")
    assert weight.shape == (64, 16, 3, 3)
    assert weight.std().item() == pytest.approx((2 / (64 * 3 * 3)) ** 0.5, rel=0.05)  # He, by fan-out


def test_gradient_reaches_every_parameter() -> None:
    network = resnet(18, channels=1, small_stem=True)
    network(torch.randn(4, 1, 16, 16)).square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert [name for name, grad in gradients.items() if grad is None or not grad.abs().sum() > 0] == []


class Regression(ImageMethod):
    """Pulls both views' features towards the noise, in float64 throughout; `forward` would return float32."""

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        errors = [(self.encoder(view_BCHW) - noise["target"]).square().mean() for view_BCHW in batch["views"]]
        return Losses(torch.stack(errors).sum(), {})


@pytest.mark.slow
def test_fused_equals_solo_with_running_statistics() -> None:
    """In float64 two steps differ by 1e-9 at most, unless members affect each other."""
    initial = [resnet(18, small_stem=True).double().state_dict() for _ in range(2)]
    views = torch.randn(2, 2, 2, 4, 3, 8, 8, dtype=torch.float64)  # step, stream, view
    noise = torch.randn(2, 2, 4, 512, dtype=torch.float64)  # step, stream

    def trained(members: list[int]) -> dict[str, Tensor]:
        networks = Networks(Encoder("resnet18"), Layers())
        models = [Regression(None, networks, {"views": (3, 8, 8)}).double() for _ in members]
        for model, member in zip(models, members, strict=True):
            model.encoder.load_state_dict(initial[member])
        stack = Stack(
            models, streams=range(len(members)), rates=Rates([0.05] * len(members), [1e-3] * len(members)),
            make_optimiser=partial(StackedSGD, momentum=0.9),
        )  # fmt: skip
        for step in range(2):
            batches = [{"views": tuple(views[step][member])} for member in members]
            stack.step(batches, [{"target": noise[step][member]} for member in members], [{} for _ in members], 1.0)
        return {**stack.parameters, **stack.buffers}

    fused, solo = trained([0, 1]), [trained([0]), trained([1])]
    assert fused["method.encoder.bn1.num_batches_tracked"].tolist() == [4, 4]  # two views, two steps
    for name, value in fused.items():
        for member in (0, 1):
            torch.testing.assert_close(value[member], solo[member][name][0], rtol=1e-8, atol=1e-9)
    for name in ("conv1.weight", "bn1.running_mean"):
        moved = fused[f"method.encoder.{name}"][0] - initial[0][name]
        assert moved.abs().max().item() > 1e-4


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
