"""A sweep over a user's own images: trials of each folder, trained once, and no start with a damaged file."""

from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from sweeper.report.page.contents import collect
from sweeper.storage.files import Files
from tests.fake_executor import without_ray
from tests.image_files import write_own_images

KEYS = {"dataset": "folder", "epochs": 1, "batch_size": 4, "validation": 0, "image_size": 8, "image_channels": 1}
SWEEP = ["anomaly_grid", "--preset", "digits", "--axis", "beta=1", "--axis", "nu=1", "--normal-class", "dog"]
ARGUMENTS = [*SWEEP, *(word for key, value in KEYS.items() for word in ("--set", f"{key}={value}"))]


@pytest.mark.slow
def test_other_images_are_other_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [write_own_images(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    store = tmp_path / "store"
    with without_ray(tmp_path):
        for folder in folders:
            assert run.main([*ARGUMENTS, "--data", str(folder), "--store", str(store)]) == 0
        folders[0].rename(tmp_path / "moved")
        capsys.readouterr()
        assert run.main([*ARGUMENTS, "--data", str(tmp_path / "moved"), "--store", str(store)]) == 0
    assert "trials to run" not in capsys.readouterr().out
    rows = pd.read_parquet(store / "trials/sweep=anomaly_grid")
    names = collect(Files(store), "anomaly_grid").report["classes"]
    assert set(names) == set(rows["image_digest"]) and all("dog" in classes for classes in names.values())
    assert len(rows) == 2 and rows["trial_id"].nunique() == rows["image_digest"].nunique() == 2
    assert set(rows["status"]) == {"finished"} and set(rows["normal_class"]) == {1}
    assert rows["auroc_joint"].between(0, 1).all() and len(list((store / "heatmaps/anomaly_grid").iterdir())) == 2


def test_a_damaged_image_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_own_images(tmp_path / "images")
    file = images / "test/fox/1.jpg"
    file.write_bytes(file.read_bytes()[:-30])
    monkeypatch.setattr(run, "connected", lambda *_, **__: pytest.fail("Ray must not start"))
    assert run.main([*ARGUMENTS, "--data", str(images), "--store", str(tmp_path / "store")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the image {file} cannot be decoded (") and error.count("\n") == 1


def test_test_images_that_are_training_images_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = write_own_images(tmp_path / "images")
    same = next((images / "train/dog").iterdir())
    (images / f"test/dog/same{same.suffix}").write_bytes(same.read_bytes())
    assert run.main([*ARGUMENTS, "--data", str(images), "--store", str(tmp_path / "store"), "--plan"]) == 0
    assert "; warning: 1 of the test images are training images, too" in capsys.readouterr().err
