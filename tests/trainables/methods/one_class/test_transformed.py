"""Methods that tell transformations apart: losses and scores compared with loops over copies, in float64, and what a
rotation of the input does.

Shapes: T transformations, B images.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.transforms.v2.functional import resized_crop

from tests.trainables.methods.plain import NO_NOISE, Builder
from trainables.config import resolve
from trainables.contract import ImageMethod
from trainables.losses.one_class import fitted_dirichlet
from trainables.methods.one_class.csi import CSI, CSIConfig
from trainables.methods.one_class.geom import GEOM
from trainables.methods.one_class.goad import GOAD, GOADConfig
from trainables.methods.one_class.rotation import Rotation
from trainables.methods.one_class.transformed import TransformedConfig, TransformedMethod

B, SIDE, D = 5, 4, 6


class Flat(nn.Module):
    """A linear encoder of images of one channel and 4x4 pixels."""

    features = D

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE**2, D)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.linear(images_BCHW.flatten(1))


def built(method: type[ImageMethod], config: Any, shape: tuple[int, ...] = (1, SIDE, SIDE)) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return method(config, Builder(Flat), {"views": shape}).double()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(B, 1, SIDE, SIDE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "float", Tensor.double)


def one_copy(image_HW: np.ndarray[Any, Any], flip: bool, rows: int, columns: int, turns: int) -> Tensor:
    """By NumPy, with a shift by one pixel of four."""
    mirrored = np.fliplr(image_HW) if flip else image_HW
    padded = np.pad(mirrored, 1, mode="symmetric")
    window = padded[1 - rows : 1 - rows + SIDE, 1 - columns : 1 - columns + SIDE]
    return torch.from_numpy(np.rot90(window, turns).copy())[None, None]


def test_rotations_loss_is_the_mean_cross_entropy_of_three_heads(images: Tensor) -> None:
    model = built(Rotation, TransformedConfig())
    losses: dict[str, list[float]] = {"turns": [], "rows": [], "columns": []}
    truth = torch.zeros(B, dtype=torch.float64)
    for index, image_CHW in enumerate(images.numpy()):
        for rows in (-1, 0, 1):
            for columns in (-1, 0, 1):
                for turns in range(4):
                    logits_M = model.classifier(model(one_copy(image_CHW[0], False, rows, columns, turns)))[0]
                    heads = {"turns": (logits_M[:4], turns), "rows": (logits_M[4:7], rows % 3)}
                    heads["columns"] = (logits_M[7:], columns % 3)
                    for head, (own_M, label) in heads.items():
                        losses[head].append(F.cross_entropy(own_M, torch.tensor(label)).item())
                        truth[index] += own_M.softmax(0)[label].item() / 108
    actual = model.losses({"views": (images,)}, NO_NOISE)
    expected = {head: np.mean(values) for head, values in losses.items()}
    assert {head: part.item() for head, part in actual.parts.items()} == pytest.approx(expected)
    assert actual.total.item() == pytest.approx(np.mean([*expected.values()]))
    torch.testing.assert_close(model.score(images, NO_NOISE)["probability"], -truth)


def test_without_a_translation_rotation_has_the_one_head_of_four_rotations(images: Tensor) -> None:
    model = built(Rotation, TransformedConfig(translation=0.0))
    assert model.classifier.out_features == 4 and Rotation.encoded_count(model.config) == 4
    losses = model.losses({"views": (images,)}, NO_NOISE)
    expected = [
        F.cross_entropy(model.classifier(model(images.rot90(turns, (-2, -1)))), torch.full((B,), turns)).item()
        for turns in range(4)
    ]
    assert list(losses.parts) == ["turns"] and losses.total.item() == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("method", [Rotation, GEOM, GOAD])
def test_all_copies_pass_the_encoder_at_once_in_training_and_in_turn_in_evaluation(
    method: type[TransformedMethod], images: Tensor
) -> None:
    model = built(method, method.Config())
    together, calls = model.copies(images), []
    model.encoder.register_forward_hook(lambda _, inputs, __: calls.append(len(inputs[0])))
    in_turn = model.copies_in_turn(images)
    torch.testing.assert_close(together, in_turn)
    assert calls == [B] * method.encoded_count(model.config)
    model.losses({"views": (images,)}, NO_NOISE)
    assert calls[-1] == B * method.encoded_count(model.config)


def test_rotating_the_input_permutes_the_outputs_of_the_rotations(images: Tensor) -> None:
    """That of k quarter turns of the rotated image is that of k + 1 of the image."""
    rotation = built(Rotation, TransformedConfig(translation=0.0))
    turned = images.rot90(1, (-2, -1))
    torch.testing.assert_close(rotation.copies(turned), rotation.copies(images).roll(-1, 0))
    csi = built(CSI, CSIConfig(projector_width=0))
    for own, shifted in zip(csi._rotated(turned), csi._rotated(images), strict=True):
        torch.testing.assert_close(own, shifted.roll(-1, 0))


def test_geoms_loss_and_scores_are_those_of_one_classifier_of_72(images: Tensor) -> None:
    model = built(GEOM, TransformedConfig())
    losses = model.losses({"views": (images,)}, NO_NOISE)
    all_copies = [
        (flip, rows, columns, turns)
        for flip in (False, True)
        for rows in (0, -1, 1)
        for columns in (0, -1, 1)
        for turns in range(4)
    ]
    log_p = [
        [model.classifier(model(one_copy(image[0], *copy)))[0].log_softmax(0) for copy in all_copies]
        for image in images.numpy()
    ]
    expected = np.array([[log_p[b][t][t].item() for t in range(72)] for b in range(B)])
    assert losses.total.item() == pytest.approx(-expected.mean())
    scores = model.score(images, NO_NOISE)
    np.testing.assert_allclose(scores["log_probability"].detach().numpy(), -expected.mean(1))
    mean_TT = torch.stack([torch.stack([log_p[b][t].detach() for t in range(72)]) for b in range(B)]).mean(0)
    alpha_TT = fitted_dirichlet(mean_TT)
    for b in range(B):
        density = np.mean([((alpha_TT[t] - 1) * log_p[b][t]).sum().item() for t in range(72)])
        assert scores["dirichlet"][b].item() == pytest.approx(-density, rel=1e-5)


def test_goads_loss_has_three_terms_and_its_score_is_of_distances(images: Tensor) -> None:
    model = built(GOAD, GOADConfig(translation=0.0, triplet_weight=0.5, margin=0.2, norm_weight=3.0))
    losses = model.losses({"views": (images,)}, NO_NOISE)
    each = model.transformations
    z = [[model(each[t](images[b : b + 1], 0))[0].detach() for b in range(B)] for t in range(8)]
    centres = [torch.stack(own).mean(0) for own in z]
    total, scores = 0.0, [0.0] * B
    for t in range(8):
        for b in range(B):
            squared = torch.tensor([(z[t][b] - centre).square().sum() for centre in centres], dtype=torch.float64)
            triplet = max(0.0, (squared[t] + 0.2 - squared[[m for m in range(8) if m != t]].min()).item())
            entropy = F.cross_entropy(model.classifier(z[t][b]), torch.tensor(t)).item()
            total += entropy + 0.5 * triplet + 3.0 * z[t][b].square().mean().item()
            scores[b] -= (-squared).log_softmax(0)[t].item() / 8
    assert losses.total.item() == pytest.approx(total / 8 / B)
    np.testing.assert_allclose(model.score(images, NO_NOISE)["log_probability"].detach().numpy(), scores)


def test_running_means_weigh_early_steps_alike_and_then_the_newest_most(images: Tensor) -> None:
    model = built(GOAD, GOADConfig(translation=0.0))
    values = [torch.full((8, D), float(step), dtype=torch.float64) for step in range(40)]
    for step, value in enumerate(values, 1):
        model.centre_TD.update(value)
        if step <= 20:
            assert model.centre_TD.mean[0, 0].item() == pytest.approx((step - 1) / 2)
    expected = 9.5
    for step in range(20, 40):
        expected = 0.95 * expected + 0.05 * step
    assert model.centre_TD.mean[0, 0].item() == pytest.approx(expected)


def test_csis_loss_is_nt_xent_of_eight_views_an_image_and_a_cross_entropy(images: Tensor) -> None:
    model = built(CSI, CSIConfig(projector_width=8, projection=3, tau=0.3, shift_weight=0.7))
    other = images + 0.3 * torch.randn(images.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    losses = model.losses({"views": (images, other)}, NO_NOISE)
    z = [model(view.rot90(k, (-2, -1))).detach() for view in (images, other) for k in range(4)]
    entropies = [F.cross_entropy(model.classifier(z[i]), torch.full((B,), i % 4)).item() for i in range(8)]
    u = F.normalize(model.projector(torch.cat(z)), dim=-1).detach().numpy()
    similarity, contrastive = np.exp(u @ u.T / 0.3), []
    for i in range(8 * B):
        positive = (i + 4 * B) % (8 * B)  # the same rotation of the other view
        contrastive.append(-math.log(similarity[i, positive] / (similarity[i].sum() - similarity[i, i])))
    expected = {"contrastive": np.mean(contrastive), "shift": np.mean(entropies)}
    assert {name: part.item() for name, part in losses.parts.items()} == pytest.approx(expected)
    assert losses.total.item() == pytest.approx(expected["contrastive"] + 0.7 * expected["shift"])


def test_csis_scores_compare_with_the_last_training_images(images: Tensor) -> None:
    """Of 15 training images the last 8 are in the bank; the means are over all steps."""
    model = built(CSI, CSIConfig(projector_width=8, projection=3, bank=8))
    source = torch.Generator().manual_seed(3)
    batches = [torch.randn(2, B, 1, SIDE, SIDE, dtype=torch.float64, generator=source) for _ in range(3)]
    for first, second in batches:
        model.losses({"views": (first, second)}, NO_NOISE)
    kept = torch.cat([batches[2][0], batches[1][0][:3]])
    seen = torch.cat([batch.flatten(0, 1) for batch in batches])
    contrastive, shift = np.zeros(B), np.zeros(B)
    for k in range(4):
        z_seen, z_kept, z_own = (model(each.rot90(k, (-2, -1))).detach() for each in (seen, kept, images))
        axes, p = F.normalize(model.projector(z_kept), dim=-1), model.projector(z_own)
        mean_norm = model.projector(z_seen).norm(dim=-1).mean()
        mean_logit = model.classifier(z_seen)[:, k].mean().clamp_min(1e-2)
        contrastive -= ((p @ axes.T).amax(1) / mean_norm).detach().numpy() / 4
        shift -= (model.classifier(z_own)[:, k] / mean_logit).detach().numpy() / 4
    scores = {name: score.detach().numpy() for name, score in model.score(images, NO_NOISE).items()}
    np.testing.assert_allclose(scores["contrastive"], contrastive)
    np.testing.assert_allclose(scores["shift"], shift)
    np.testing.assert_allclose(scores["csi"], contrastive + shift)


def test_csis_scores_can_be_means_over_crops(images: Tensor) -> None:
    """Of 4x4 pixels a crop has 3x3, at one of four places, as torchvision crops and enlarges."""
    model = built(CSI, CSIConfig(projector_width=8, projection=3, bank=8, score_crops=3))
    model.losses({"views": (images, images)}, NO_NOISE)
    assert model.score_noise(B)["places"].shape == (3, 2, B)
    corners = torch.tensor([[[0, 1, 0, 1, 1], [0, 0, 1, 1, 0]], [[1] * B, [0] * B], [[0] * B, [1] * B]])
    expected = []
    for tops, lefts in corners.tolist():
        boxes = zip(images, tops, lefts, strict=True)
        expected.append(
            model._scores(torch.stack([resized_crop(image, top, left, 3, 3, [4, 4]) for image, top, left in boxes]))
        )
    for name, score in model.score(images, {"places": (0.25 + 0.5 * corners).double()}).items():
        torch.testing.assert_close(score, torch.stack([scores[name] for scores in expected]).mean(0))


def test_a_shift_of_less_than_a_pixel_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"at least 0\.125 for images of 8x8, but got translation=0\.05$"):
        resolve({"method": "geom", "dataset": "digits", "encoder": "convnet", "translation": 0.05})
