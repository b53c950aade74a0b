"""The classifier's loss by hand, and that it tells digits apart.

Shapes: B images.
"""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from trainables.config import resolve
from trainables.methods.baselines.classifier import Classifier
from trainables.sections import Value
from trainables.training.cohort import TrainingCohort
from trainables.training.stacks import build_models

B = 12
SOURCE = torch.Generator().manual_seed(0)
VIEWS = torch.randn(B, 1, 8, 8, generator=SOURCE)
LABELS = torch.randint(10, (B,), generator=SOURCE)
NOISE = {"weight": torch.tensor([0.3, 0.1]), "partners": torch.rand(B, generator=SOURCE)}


def _model(**changes: Value) -> Classifier:
    config = resolve({"method": "classifier", "encoder": "mlp", "width": 16, "features": 8, **changes})
    (model,) = build_models([config], {"views": (1, 8, 8), "logits": (10,)})
    assert isinstance(model, Classifier)
    return model.eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_mixup_it_is_the_cross_entropy_of_the_images(smoothing: float) -> None:
    model = _model(smoothing=smoothing)
    loss = model.losses({"views": (VIEWS,), "labels": LABELS}, NOISE).total
    logits = model.head(model.encoder(VIEWS))
    torch.testing.assert_close(loss, F.cross_entropy(logits, LABELS, label_smoothing=smoothing))


def test_mixup_is_the_cross_entropy_of_mixed_images_with_mixed_targets() -> None:
    model, order = _model(mixup=1.0, smoothing=0.1), NOISE["partners"].argsort()
    loss = model.losses({"views": (VIEWS,), "labels": LABELS}, NOISE).total
    cosine = math.cos(0.2 * math.pi)
    weight = (1 + 0.7**0.5 * cosine / (0.3 + 0.7 * cosine**2) ** 0.5) / 2  # of Beta(1, 1), by both numbers
    partners = torch.empty_like(order)
    partners[order] = order.roll(-1)
    targets = F.one_hot(LABELS, 10).float()
    mixed = weight * VIEWS + (1 - weight) * VIEWS[partners], weight * targets + (1 - weight) * targets[partners]
    expected = F.cross_entropy(model.classify(mixed[0]), mixed[1], label_smoothing=0.1)
    torch.testing.assert_close(loss, expected)


def test_it_classifies_the_digits() -> None:
    config = resolve({
        "method": "classifier", "encoder": "mlp", "width": 32, "features": 16, "epochs": 5, "lr": 0.1, "batch_size": 60,
    })  # fmt: skip
    cohort = TrainingCohort([config], Path(), torch.device("cpu"), None)
    for epoch in range(cohort.epochs):
        cohort.epoch(epoch)
    (accuracy,), (ece,) = (cohort.evaluate(last=True)[name] for name in ("accuracy", "ece"))
    assert accuracy > 0.9 and ece < 0.1  # chance is 0.1
