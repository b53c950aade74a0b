"""The pixels as the representation; the result is the same for every seed."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from trainables.config import resolve
from trainables.data.datasets.catalog import load
from trainables.image_trial import Encoder, Layers, Networks
from trainables.methods.baselines.untrained import Pixels, UntrainedConfig
from trainables.sections import Value
from trainables.training.train import train


def test_its_representation_is_every_value_of_the_image_in_order() -> None:
    """The encoder exists, as the contract requires, but its weights do not matter."""
    images_BCHW = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5).double()
    networks = Networks(Encoder("convnet", width=2, features=7), Layers())
    model = Pixels(UntrainedConfig(), networks, {"views": (3, 4, 5)})
    assert model.features == 60
    assert torch.equal(model.embed(images_BCHW)["z"], images_BCHW.view(2, 60).float())


def test_seeds_stacked_or_alone_have_the_accuracy_of_scikit_learns_neighbours() -> None:
    """On the pixels that encoders get: normalised, not augmented."""
    fixed: Mapping[str, Value] = {
        "method": "pixels",
        "epochs": 0,
        "encoder": "convnet",
        "width": 2,
        "features": 4,
        "knn": 1,
    }
    configs = [resolve({**fixed, "seed": seed, "rotation": 30.0}) for seed in (0, 1)]
    (stacked,), (alone,) = train(configs, Path()), train(configs[:1], Path())
    digits = load("digits", Path())
    bank_ND, test_MD = (
        ((images[:].flatten(1) / 16 - 0.305470) / 0.376049).numpy()
        for images in (digits.train_images, digits.test_images)
    )
    nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute").fit(bank_ND, digits.train_labels)
    expected = nearest.score(test_MD, digits.test_labels)
    accuracies = {member.metrics["knn_z"] for report in (stacked, alone) for member in report.members}
    assert len(accuracies) == 1 and accuracies.pop() == pytest.approx(expected, abs=4e-3)


def test_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="pixels does not train, so epochs must be 0, but got epochs=100"):
        resolve({"method": "pixels"})
