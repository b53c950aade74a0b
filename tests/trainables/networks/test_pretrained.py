"""Encoders with weights of a file: equal to torchvision's network, frozen or not; refused where the file does not fit.

The weights are random ones that the tests write.
"""

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torchvision.models import get_model
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.vision_transformer import VisionTransformer
from torchvision.transforms.v2 import functional as tv

from sweeper.planning.cohorts import enumerate_trials
from tests.trainables.small import HERE, image_trial
from trainables.config import resolve
from trainables.image_trial import ImageTrial
from trainables.networks.pretrained import PretrainedEncoder
from trainables.sections import TrialConfig, Value
from trainables.tasks.images.model import ImageModel
from trainables.training.cohort import TrainingCohort
from trainables.training.model_file import pack_model, unpack_model
from trainables.training.train import retrain, train

SIDE = 32


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    torch.manual_seed(3)
    network = torchvision.models.resnet18(weights=None)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
    return network.eval()


@pytest.fixture
def weights(theirs: nn.Module, tmp_path: Path) -> Path:
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def config_of(weights: Path | str, **changes: Value) -> TrialConfig:
    small: dict[str, Value] = {
        "method": "random", "epochs": 0, "encoder": "torchvision:resnet18", "weights": str(weights), "normalise": False,
        "pretrained_size": SIDE, "normal_class": 3, "one_class_scores": "knn2+cosine_norm",
    }  # fmt: skip
    return resolve({**small, **changes})


@torch.no_grad()
def features_of(theirs: nn.Module, images_N188: Tensor) -> Tensor:
    """By torchvision: enlarged, grey as three channels, normalised, without the last layer."""
    body: Any = torchvision.models.resnet18(weights=None)
    body.load_state_dict(theirs.state_dict())
    body.fc = nn.Identity()
    enlarged = tv.resize(images_N188, [SIDE, SIDE], antialias=False).repeat(1, 3, 1, 1)
    features_ND: Tensor = body.eval()(tv.normalize(enlarged, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return features_ND


@pytest.mark.slow
def test_a_frozen_network_whose_head_is_a_large_part_of_it_is_read_from_its_file(tmp_path: Path) -> None:
    """Files that declare far more weights than they have are refused, and the head was counted."""
    torch.save(get_model("mobilenet_v2", weights=None).state_dict(), tmp_path / "weights.pth")
    own = config_of(tmp_path / "weights.pth", encoder="torchvision:mobilenet_v2", frozen=True)
    model = unpack_model(pack_model(retrain(own, HERE), {})).build()
    assert isinstance(model, ImageModel) and model.embed(torch.rand(2, 1, 8, 8))["z"].shape == (2, 1280)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True])
def test_features_are_those_of_torchvision_and_a_model_needs_the_file_no_longer(
    theirs: nn.Module, weights: Path, frozen: bool
) -> None:
    trained = retrain(config_of(weights, frozen=frozen), HERE)
    weights.unlink()
    model, images = trained.build(), torch.rand(4, 1, 8, 8)
    assert isinstance(model, ImageModel)
    torch.testing.assert_close(model.embed(images)["z"], features_of(theirs, images), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_neighbours_of_features_are_an_anomaly_score(weights: Path) -> None:
    (report,) = train([config_of(weights)], HERE)
    metrics = report.members[0].metrics
    assert 0 < metrics["auroc_knn2_z"] < 1 and 0 < metrics["auroc_cosine_norm_z"] < 1  # type: ignore[operator]


@pytest.mark.slow
def test_fine_tuning_draws_features_together_from_the_file_on(weights: Path) -> None:
    """PANDA: compactness around the mean of the features, with few epochs."""
    config = config_of(
        weights, method="deep_svdd", epochs=2, centre_margin=0.0, lr=1e-3, batch_size=60, one_class_scores=""
    )
    cohort = TrainingCohort([config], HERE, torch.device("cpu"), None)
    before = {name: tensor.clone() for name, tensor in cohort._stacks[0].parameters.items()}
    losses = [cohort.epoch(epoch)["loss"].item() for epoch in range(2)]
    assert losses[1] < losses[0]
    assert any(not torch.equal(tensor, before[name]) for name, tensor in cohort._stacks[0].parameters.items())


@pytest.mark.slow
def test_what_is_frozen_stays_to_the_last_statistic(weights: Path) -> None:
    config = config_of(weights, method="simclr", epochs=1, frozen=True, projector_width=16, projection=8, lr=0.1)
    config = replace(config, training=replace(config.gradient, batch_size=60))
    cohort = TrainingCohort([config, config], HERE, torch.device("cpu"), None)
    stack = cohort._stacks[0]
    assert all(name.startswith("method.projector") for name in stack.parameters)
    before = {name: tensor.clone() for name, tensor in stack.buffers.items() if "encoder" in name}
    cohort.epoch(0)
    assert before and all(torch.equal(stack.buffers[name], tensor) for name, tensor in before.items())


@pytest.mark.slow
def test_parts_can_stay_frozen_while_the_others_are_fine_tuned(weights: Path) -> None:
    """As in PANDA: the later layers draw the features together, and the earlier ones keep even their statistics."""
    config = config_of(
        weights, method="deep_svdd", epochs=1, centre_margin=0.0, lr=1e-2, batch_size=60, one_class_scores="",
        frozen_parts="conv1+bn1+layer1+layer2",
    )  # fmt: skip
    stack = TrainingCohort([config], HERE, torch.device("cpu"), None)._stacks[0]
    assert isinstance(config, ImageTrial)
    parts = {name.split(".")[3] for name in stack.parameters}
    assert parts == {"layer3", "layer4"}
    before = {name: tensor.clone() for name, tensor in {**stack.parameters, **stack.buffers}.items()}
    cohort = TrainingCohort([config], HERE, torch.device("cpu"), None)
    cohort.epoch(0)
    stack = cohort._stacks[0]
    for name, tensor in {**stack.parameters, **stack.buffers}.items():
        if ".network." in name and name.endswith(("weight", "running_mean")):
            assert torch.equal(tensor, before[name]) == (name.split(".")[3] not in parts), name
    with pytest.raises(ValueError, match=r"it has no 'layer9'; there are: conv1, bn1, relu, maxpool, layer1, .*layer4"):
        replace(config.networks, pretrained=replace(config.pretrained, frozen_parts="layer9")).build((1, 8, 8))
    with pytest.raises(ValueError, match=r"frozen=true freezes all parts"):
        config_of(weights, frozen=True, frozen_parts="layer1")


def test_a_method_without_weights_beside_a_frozen_encoder_is_refused_when_it_is_planned(weights: Path) -> None:
    with pytest.raises(ValueError, match=r"deep_svdd has none besides its encoder, so frozen must be false"):
        config_of(weights, method="deep_svdd", epochs=1, frozen=True)
    assert config_of(weights, method="simclr", epochs=1, frozen=True).method == "simclr"
    assert config_of(weights, frozen=True).method == "random", "which trains nothing"


@pytest.mark.slow
def test_a_trial_is_identified_by_the_content_of_the_file(theirs: nn.Module, weights: Path, tmp_path: Path) -> None:
    """Not by its name, its folder or its time."""

    def trial_id(path: Path) -> str:
        (trial,) = enumerate_trials([{"path": str(path)}], lambda combination: config_of(str(combination["path"])))
        return trial.id

    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "copy.pth"
    copy.write_bytes(weights.read_bytes())
    first = trial_id(weights)
    assert trial_id(copy) == first
    torch.save({**theirs.state_dict(), "conv1.weight": torch.zeros(64, 3, 7, 7)}, copy)
    assert trial_id(copy) != first
    planned = config_of(weights)
    weights.write_bytes(copy.read_bytes())
    with pytest.raises(
        ValueError, match=r"weights.pth must be the ones that the trials were planned with .* have changed"
    ):
        TrainingCohort([planned], HERE, torch.device("cpu"), None)


@pytest.mark.slow
def test_a_file_of_safetensors_without_the_last_layer_will_do(theirs: nn.Module, tmp_path: Path) -> None:
    body = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("fc.")}
    save_file(body, str(tmp_path / "weights.safetensors"))
    model = retrain(config_of(tmp_path / "weights.safetensors"), HERE).build()
    assert isinstance(model, ImageModel)
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(model.embed(images)["z"], features_of(theirs, images), rtol=1e-4, atol=1e-5)


def _without_layer(state: dict[str, Tensor]) -> object:
    return {name: tensor for name, tensor in state.items() if name != "layer1.0.conv1.weight"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_layer, r"must be a state dict of torchvision:resnet18, but it has no layer1.0.conv1.weight$"),
        (lambda state: {**state, "more": torch.ones(1)}, r"torchvision:resnet18, but that has no 'more'$"),
        (
            lambda state: {**state, "conv1.weight": torch.ones(2, 3)},
            r"but conv1.weight has the shape \[2, 3\] instead of \[64, 3, 7, 7\]$",
        ),
        (lambda state: {"epoch": 3}, r"names to tensors\), but .* contains something else$"),
        (lambda state: nn.Linear(1, 1), "must be a PyTorch or safetensors state dict, but .*weights.pth is not: "),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(
    theirs: nn.Module, weights: Path, damage: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    torch.save(damage(dict(theirs.state_dict())), weights)
    with pytest.raises(ValueError, match=message) as error:
        TrainingCohort([config_of(weights)], HERE, torch.device("cpu"), None)
    assert str(weights) in str(error.value) and "\n" not in str(error.value)


def test_damaged_and_absent_files_are_refused_by_name(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"must be a PyTorch or safetensors state dict, but .*weights.pth is not: "):
        TrainingCohort([config_of(weights)], HERE, torch.device("cpu"), None)
    with pytest.raises(ValueError, match=r"^weights must be a readable file, but nowhere.pth is not: No such file"):
        config_of("nowhere.pth")
    pipe = weights.with_name("pipe")
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match=r"^weights must be a file, but .*/pipe is a folder, named pipe, device or"):
        config_of(pipe)
    with pytest.raises(
        ValueError, match=r"^encoder=torchvision:resnet18 needs weights=FILE, .* nothing is downloaded$"
    ):
        config_of("")
    with pytest.raises(ValueError, match=r"so normalise must be false$"):
        config_of(weights, normalise=True)
    with pytest.raises(ValueError, match=r"^weights needs an encoder torchvision:NAME, but got .* with encoder=mlp$"):
        config_of(weights, encoder="mlp")
    assert image_trial({"method": "vje"}).pretrained.weights == ""


def small(name: str, image_size: int = 224, **_: object) -> nn.Module:
    """As `torchvision.models.get_model`, with fewer and narrower layers where a network has tens of millions of
    weights."""
    if name == "vit_b_32":
        return VisionTransformer(image_size, patch_size=32, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32)
    if name == "convnext_tiny":
        return ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)])
    network: nn.Module = get_model(name, weights=None)
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "convnext_tiny", "vit_b_32"])
def test_other_networks_have_the_features_before_their_last_layer_also_as_a_stack(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In evaluation, and with gradients in training, where nothing is random."""
    torch.manual_seed(0)
    monkeypatch.setattr(torchvision.models, "get_model", small)
    theirs = small(name, SIDE).eval()
    encoder = PretrainedEncoder(f"torchvision:{name}", SIDE, frozen=False)
    encoder.load(theirs.state_dict(), "file")
    encoders = [encoder, deepcopy(encoder)]
    with torch.no_grad():
        for parameter in encoders[1].parameters():
            parameter.mul_(0.9)
    images = torch.rand(2, 3, SIDE, SIDE)
    features: list[Tensor] = []
    last = [module for module in theirs.modules() if isinstance(module, nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, inputs: features.extend(inputs))
    with torch.no_grad():
        theirs(tv.normalize(images, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
        torch.testing.assert_close(encoders[0].eval()(images), features[0], rtol=1e-4, atol=1e-5)
    images = images.double()  # BatchNorm of two images of one pixel magnifies what rounds differently
    for training in (False, True):
        for encoder in encoders:
            encoder.double().train(training)
        parameters, buffers = stack_module_state(encoders)

        def embed(*state: Any) -> Tensor:
            return functional_call(encoders[0], state, (images,))

        together = torch.vmap(embed, randomness="error")(parameters, buffers)
        each = torch.stack([encoder(images) for encoder in encoders])
        torch.testing.assert_close(together, each, rtol=1e-3, atol=1e-4)
    together.square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in parameters.values())


def test_patches_of_a_transformer_must_fill_the_images(weights: Path) -> None:
    with pytest.raises(ValueError, match=r"pretrained_size must be a multiple of 16 for encoder=torchvision:vit_b_16"):
        config_of(weights, encoder="torchvision:vit_b_16", pretrained_size=40)
    with pytest.raises(ValueError, match=r"no encoder 'torchvision:googlenet'"):
        config_of(weights, encoder="torchvision:googlenet")
