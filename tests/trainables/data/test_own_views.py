"""Views of the user's own: the same for a member that trains alone or stacked, refused by one line if they are none."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from tests.trainables.small import metrics_of
from trainables import own_code
from trainables.config import resolve
from trainables.contract import Noise, Noises
from trainables.data.own_views import OwnViews, about_views, check_own_views
from trainables.data.views import PixelViews, Views
from trainables.training.checks import check_trials, stacking_notes
from trainables.training.train import train

NAME = "my_views:Gain"
SHAPE = (8, 2, 9, 10)


class Gain:
    """Each image is made darker."""

    def noise(self, batch: int, image_shape: tuple[int, int, int]) -> Noises:
        return {"gain": Noise((batch, 1, 1, 1), 0, "uniform"), "specks": Noise((batch, *image_shape), 0)}

    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return ((0.5 + 0.5 * noise["gain"]) * images + 0.1 * noise["specks"]).clamp(0, 1)


PIPELINE = v2.Compose([v2.RandomHorizontalFlip(0.5), v2.RandomErasing(0.5), v2.GaussianBlur(3)])


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own_code, "_imported", {})
    yield


def _own(made: object) -> str:
    own_code._imported[NAME] = made
    return NAME


@pytest.mark.parametrize("made", [Gain, PIPELINE], ids=["declared", "torchvision"])
def test_they_are_drawn_by_the_generator_alone_and_after_the_keys(made: object) -> None:
    views, images = OwnViews(Views(flip=1.0), _own(made)), torch.rand(SHAPE)
    check_own_views(NAME, SHAPE[1:])
    state = torch.get_rng_state()
    seen = []
    for seed in (3, 3, 4):
        drawn = views.draw(torch.Generator().manual_seed(seed), SHAPE, PixelViews())
        seen.append(views.apply(images, drawn))
        assert torch.allclose(views.apply(images[2:5], drawn.sliced(slice(2, 5))), seen[-1][2:5], atol=1e-6)
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    assert torch.equal(torch.get_rng_state(), state)
    drawn = views.draw(torch.Generator().manual_seed(3), SHAPE, PixelViews())
    plain = OwnViews(Views(), NAME)
    assert torch.equal(seen[0], plain.apply(images.flip(-1), drawn.__class__(plain.before.draw(
        torch.Generator(), SHAPE), drawn.noise, drawn.batch_dims)))  # fmt: skip


class Written(Gain):
    """The same, in place."""

    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return images.copy_(super().__call__(images, noise))


def test_views_in_place_leave_the_images_of_other_views_as_they_are() -> None:
    images = torch.rand(SHAPE)
    before = images.clone()
    drawn = OwnViews(Views(), _own(Gain)).draw(torch.Generator().manual_seed(0), SHAPE, PixelViews())
    expected = OwnViews(Views(), NAME).apply(images, drawn)
    assert torch.equal(OwnViews(Views(), _own(Written)).apply(images, drawn), expected)
    assert torch.equal(images, before)
    check_own_views(NAME, SHAPE[1:])


@pytest.mark.parametrize("made", [Gain, PIPELINE], ids=["declared", "torchvision"])
def test_a_member_trains_the_same_alone_or_stacked(made: object) -> None:
    keys: dict[str, Any] = {"method": "simclr", "normal_class": 3, "epochs": 1, "batch_size": 60}
    keys |= {"projector_width": 8, "projection": 4}
    keys |= {"augmentation": _own(made), "width": 8, "features": 4}
    both = [resolve({**keys, "seed": seed}) for seed in (0, 1)]
    stacked = list(train(both, Path()))
    expected, found = metrics_of(stacked, 1)[-1], metrics_of(list(train(both[1:], Path())), 0)[-1]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    plain = list(train([resolve({key: value for key, value in keys.items() if key != "augmentation"})], Path()))
    assert metrics_of(plain, 0)[-1]["loss"] != pytest.approx(metrics_of(stacked, 0)[-1]["loss"], rel=1e-4)


def test_what_is_lost_is_said_in_one_line() -> None:
    assert about_views(_own(Gain)) == ""
    config = resolve({"method": "simclr", "augmentation": _own(PIPELINE)})
    (line,) = stacking_notes([config], check_trials([config], None))
    assert (
        line.startswith("the views my_views:Gain declare no noise, so they are made image by image") and len(line) < 300
    )


class Bright(Gain):
    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return images + 1


class Drawing(Gain):
    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return torch.rand_like(images)


class Mixing(Gain):
    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return images.mean(0, keepdim=True).expand_as(images)


class Smaller(Gain):
    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        return images[..., 1:]


class Failing(Gain):
    def __call__(self, images: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
        raise RuntimeError("no\nway")


REFUSALS: dict[object, str] = {
    3: "the views my_views:Gain must be callable, but are of type int",
    Bright: "must be in [0, 1], but are from 1.",
    Drawing: "must draw no random numbers (declare them in noise(batch, image_shape) and take them as an",
    Mixing: "must depend on each image alone, but those of half a batch differ",
    Smaller: "must be float images [8, 2, 9, 10], like their input, but are [8, 2, 9, 9] of torch.float32",
    Failing: "must work on 8 random images, but fail: RuntimeError: no way",
}


@pytest.mark.parametrize("made", REFUSALS, ids=str)
def test_what_are_no_views_are_refused_in_one_line(made: object) -> None:
    with pytest.raises(ValueError) as refused:
        check_own_views(_own(made), SHAPE[1:])
    assert REFUSALS[made] in str(refused.value) and "\n" not in str(refused.value)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no augmentation 'flip'; it must be your own, as my_views:MyViews"):
        resolve({"method": "simclr", "augmentation": "flip"})
