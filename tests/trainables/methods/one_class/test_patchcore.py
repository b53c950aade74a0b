"""PatchCore: its patches, bank, scores and heat maps against SciPy and scikit-learn, and which encoders it takes.

Shapes: B images, P patches of D features.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates, uniform_filter
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.method_configs import images_of_tests
from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.learners.data_parallel import draw_noise
from trainables.losses.patches import greedy_coreset
from trainables.methods.one_class import patchcore
from trainables.methods.one_class.patchcore import PatchCore
from trainables.networks.encoders import build_encoder
from trainables.networks.feature_maps import map_shapes, mid_level
from trainables.networks.pretrained import PretrainedEncoder
from trainables.sections import TrialConfig, Value
from trainables.tasks.images.model import ImageModel
from trainables.training.checks import check_trials
from trainables.training.stacks import build_models
from trainables.training.train import retrain

Floats = NDArray[np.float64]


def config_of(**changes: Value) -> TrialConfig:
    small: dict[str, Value] = {
        "method": "patchcore", "normal_class": 3, "encoder": "convnet", "width": 24, "features": 48, "epochs": 1,
        "bank": 60,
    }  # fmt: skip
    return resolve({**small, **changes})


def fitted(images_BCHW: Tensor, **changes: Value) -> PatchCore:
    (model,) = build_models([config_of(**changes)], {"views": (1, 8, 8)})
    assert isinstance(model, PatchCore)
    with torch.no_grad():
        model.fit({"plain": (images_BCHW,)}, draw_noise(model.noise(len(images_BCHW)), "noise", 0))
    return model.eval()


def resized(map_CRS: Floats, side: int) -> Floats:
    """By bilinear interpolation between the centres of pixels."""
    place = (np.arange(side) + 0.5) * map_CRS.shape[-1] / side - 0.5
    places = np.meshgrid(place, place, indexing="ij")
    return np.stack([map_coordinates(map_RS, places, order=1, mode="nearest") for map_RS in map_CRS])


@torch.no_grad()
def patches_of(model: PatchCore, images_BCHW: Tensor) -> Floats:
    """`[B, 8, 8, D]`: the convolutions of strides 1 and 2 of the encoder, averaged and resized by SciPy."""
    layers, patches = model.encoder.layers, []
    for first_CRS, second_CRS in zip(layers[:3](images_BCHW), layers[:6](images_BCHW), strict=True):  # type: ignore[operator, index]
        maps = [map_CRS.double().numpy() for map_CRS in (first_CRS, second_CRS)]
        averaged = [uniform_filter(map_CRS, (0, 3, 3), mode="constant") for map_CRS in maps]
        patches.append(np.concatenate([resized(map_CRS, 8) for map_CRS in averaged]).transpose(1, 2, 0))
    return np.stack(patches)


def test_the_bank_is_a_coreset_of_the_patches_and_scores_are_distances_from_it() -> None:
    images_BCHW = images_of_tests()[:30]
    model = fitted(images_BCHW[:20])
    expected_BPD = patches_of(model, images_BCHW).reshape(30, 64, -1)
    assert model.layers == ["layers.2", "layers.5"] and model.map_size == (8, 8)
    np.testing.assert_allclose(model.patches(images_BCHW), expected_BPD, atol=1e-5)
    training_ND = model.patches(images_BCHW[:20]).flatten(0, 1)
    noise = draw_noise(model.noise(20), "noise", 0)
    projected_ND, first = training_ND @ noise["projection"], noise["order"].flatten().argmin()
    assert projected_ND.shape == (20 * 64, patchcore.PROJECTED)
    torch.testing.assert_close(model.bank_MD, training_ND[greedy_coreset(projected_ND, 60, first)])
    bank = NearestNeighbors(n_neighbors=1).fit(model.bank_MD.double().numpy())
    distance_BP = bank.kneighbors(expected_BPD.reshape(-1, 72))[0].reshape(30, 64)
    plain = fitted(images_BCHW[:20], neighbours=1)
    np.testing.assert_allclose(plain.score(images_BCHW, {})["patch_distance"], distance_BP.max(1), atol=1e-4)
    heat_BHW = resized(distance_BP.reshape(30, 8, 8), 8) ** 2
    np.testing.assert_allclose(model.heat(images_BCHW), heat_BHW, atol=1e-4)
    weight_B = model.score(images_BCHW, {})["patch_distance"] / plain.score(images_BCHW, {})["patch_distance"]
    assert (weight_B > 0).all() and (weight_B < 1).all() and weight_B.std() > 0.001


def test_of_many_patches_the_noise_draws_those_that_the_bank_is_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    images_BCHW = images_of_tests()[:20]
    monkeypatch.setattr(patchcore, "PATCHES", 60)
    model = fitted(images_BCHW)
    order_N = draw_noise(model.noise(20), "noise", 0)["order"].flatten()
    drawn_ND = model.patches(images_BCHW).flatten(0, 1)[order_N.argsort()[:60]]
    difference_NN = torch.cdist(model.bank_MD.double(), drawn_ND.double())
    assert difference_NN.amin(0).max() < 1e-5 and difference_NN.amin(1).max() < 1e-5


def test_a_heat_map_is_as_large_as_the_image_and_hot_where_it_was_changed() -> None:
    """Also of encoders whose maps are smaller than images, and of a model from its file."""
    model = retrain(config_of(patch_layers="layers.5", one_class_scores="knn1"), HERE).build()
    assert isinstance(model, ImageModel) and model.has_heat and model.method.map_size == (4, 4)
    images_BCHW = load("digits", HERE).test_images[:20]
    assert isinstance(images_BCHW, Tensor)
    changed = images_BCHW.clone()
    changed[:, :, 4:, :4] = 16 - changed[:, :, 4:, :4]
    grown_BHW = model.heat(changed) - model.heat(images_BCHW)
    assert grown_BHW.shape == (20, 8, 8) and (model.heat(changed) >= 0).all()
    assert grown_BHW[:, 4:, :4].mean() > 5 * grown_BHW[:, :4, 4:].mean().abs()
    assert {"patch_distance", "knn1_z"} == {*model.scores}


RESNET = ("layer2", "layer3")


@for_each(
    ("name", "layers"),
    [
        ("convnet", ("layers.2", "layers.5")),
        ("lenet", ("layers.2", "layers.6")),
        ("resnet18", RESNET),
        ("wide_resnet10_4", ("layers.1", "layers.2")),
        ("torchvision:resnet18", RESNET),
        ("torchvision:mobilenet_v2", ("features.6", "features.13")),
        ("mlp", ()),
    ],
)
def test_the_layers_of_middle_resolutions_are_chosen(name: str, layers: tuple[str, ...]) -> None:
    """PatchCore's own for ResNets."""
    encoder: nn.Module = (
        PretrainedEncoder(name, 64, frozen=True)
        if name.startswith("torchvision:")
        else build_encoder(name, (3, 32, 32), width=4, features=8, small_stem=True)
    )
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    assert tuple(mid_level(map_shapes(encoder.train(), (3, 32, 32)))) == layers and encoder.training
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())


@for_each(
    ("keys", "law"),
    [
        ({"encoder": "mlp"}, "patchcore needs an encoder with feature maps, such as encoder=convnet, but got one "),
        (
            {"patch_layers": "layers.5+layer3"},
            "no layer of the encoder with a feature map 'layer3'.*; there are: layer",
        ),
    ],
)
def test_an_encoder_without_the_maps_is_refused_before_anything_trains(keys: dict[str, Value], law: str) -> None:
    with pytest.raises(ValueError, match=f"^{law}"):
        check_trials([config_of(**keys)], Path())
