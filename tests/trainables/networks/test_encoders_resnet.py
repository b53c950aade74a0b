from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses
from trainables.image_trial import Encoder, Layers, Networks
from trainables.learners.optimisers import StackedSGD
from trainables.learners.stack import Stack
from trainables.networks.encoders import resnet


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


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
            models, streams=range(len(members)), lr=[0.05] * len(members), weight_decay=[1e-3] * len(members),
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
