"""The images of an evaluation: files or tensors, in either precision."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.image_files import write_imagenet
from tests.trainables.metrics.evaluated import EVERYTHING, eval_config
from tests.trainables.small import HERE, image_trial
from tests.trainables.training.judged import without_seconds
from trainables.data.datasets.catalog import load
from trainables.image_trial import ImageTrial
from trainables.sections import Value
from trainables.tasks.images import task
from trainables.training.train import train

FILES: dict[str, Value] = {"dataset": "imagenet", "batch_size": 6, "features": 4, "width": 4}
DECODED: dict[str, Value] = {
    "content_probe_epochs": 1, "content_knn": 3, "gmm_n_init": 1, "reconstructions": True, "samples_per_class": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        eval_config(**FILES, **{**EVERYTHING, "knn": 3, "epochs": 0}),
        image_trial({"method": "cr_vae", **FILES, **DECODED, "decoder_hidden": "8", "lr": 1e-6, "epochs": 1}),
    ],
    ids=["untrained", "trained on plain images"],
)
def test_images_as_files_give_the_same_metrics_as_tensors(
    config: ImageTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without augmentation views, too, are the same."""
    write_imagenet(tmp_path, train=6, val=4)
    files = load("imagenet", tmp_path)
    tensors = replace(files, train_images=files.train_images[:], test_images=files.test_images[:])
    from_files = without_seconds(list(train([config], tmp_path)))
    monkeypatch.setattr(task, "dataset_of", lambda config, data: tensors)
    assert without_seconds(list(train([config], tmp_path))) == from_files
    (_, (member,), _), *_ = from_files
    assert member.status == "finished" and not any("top5" in name for name in member.metrics)


def test_metrics_in_bfloat16_are_nearly_the_same() -> None:
    configs = {
        kind: [eval_config(beta=beta, **EVERYTHING, epochs=0, precision=kind) for beta in (0.5, 7.0)]
        for kind in ("float32", "bfloat16")
    }
    (full,), (half,) = (list(train(members, HERE)) for members in configs.values())
    assert full.members != half.members
    for actual, expected in zip(half.members, full.members, strict=True):
        assert dict(actual.metrics) == pytest.approx(dict(expected.metrics), abs=0.05)
