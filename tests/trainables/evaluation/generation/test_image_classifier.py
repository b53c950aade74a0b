"""The classifier of real images: what it learns, and what it leaves alone. Shapes: N images, C channels, H by W."""

import pytest
import torch

from trainables.metrics.sample_classifiers import train_image_classifier

N, CLASSES = 640, 4


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    """A bright quadrant for each class, on noise; the last tenth has no label."""
    source = torch.Generator().manual_seed(0)
    labels_N = torch.randint(CLASSES, (N,), generator=source)
    images_NCHW = 0.5 * torch.rand(N, 1, 8, 8, generator=source)
    for row, label in enumerate(labels_N.tolist()):
        top, left = 4 * (label // 2), 4 * (label % 2)
        images_NCHW[row, :, top : top + 4, left : left + 4] += 0.4
    labels_N[-N // 10 :] = -1
    return images_NCHW, labels_N


def test_it_tells_the_classes_of_its_training_images_and_leaves_torchs_generator_alone() -> None:
    (images_NCHW, labels_N), state = _images(), torch.get_rng_state()
    train = [train_image_classifier(images_NCHW, labels_N, CLASSES, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state) and not train[0].training
    logits_NL = train[0](images_NCHW)
    assert logits_NL.shape == (N, CLASSES) and torch.equal(logits_NL, train[1](images_NCHW))
    known_N = labels_N >= 0
    assert (logits_NL.argmax(-1) == labels_N)[known_N].float().mean() > 0.9


def test_it_leaves_the_generators_of_accelerators_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.manual_seed` seeds them too, and no fork of the CPU's generator restores them."""
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.manual_seed(0)
    assert seeded == [0]
    train_image_classifier(*_images(), CLASSES, torch.Generator().manual_seed(3))
    assert seeded == [0]
