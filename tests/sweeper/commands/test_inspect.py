"""`sweeper inspect`: from a folder of images to ten lines, and from these to `sweeper score`."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from torchvision.models import get_model

import sweeper
from sweeper.commands import inspect, score
from tests.cases import for_each
from tests.image_files import write_own_images
from tests.screws import DEFECTS, write_screws
from trainables.config import resolve


@pytest.fixture(scope="module")
def screws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_screws(tmp_path_factory.mktemp("screws") / "screws", good=44, tested_good=10, each=5, masks=True)


WHERE = re.compile(r"where: the heat map beside each image has a pixel AUROC of ([\d.]+), by the masks of 20 images")


def pixel_area(model: Any, screws: Path) -> float:
    """By scikit-learn, of all pixels of the test images; those of good screws have no mask."""
    heats, marked = [], []
    for path in sorted((screws / "test").rglob("*.png")):
        heats.append(model.heat(model.load_images([path]))[0].numpy())
        mask = screws / "ground_truth" / path.parent.name / f"{path.stem}_mask.png"
        shape = heats[-1].shape
        is_marked = mask.exists() and np.asarray(Image.open(mask).resize(shape[::-1])) > 127
        marked.append(np.broadcast_to(is_marked, shape))
    return float(roc_auc_score(np.ravel(marked), np.ravel(heats)))


@pytest.mark.slow
def test_a_folder_becomes_ten_lines_a_model_and_the_next_command(
    screws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty-two images are held out, so that rates from 0.05 on can be had. The same command trains nothing again."""
    monkeypatch.setattr(inspect, "STEPS", 4)
    monkeypatch.chdir(tmp_path)
    words = [str(screws), "--normal", "good", "--image-size", "32"]
    assert inspect.main(words) == 0
    out, err = capsys.readouterr()
    assert err.startswith("note: dataset=folder: 44 training and 30 test images in ")
    shown, *lines = [line for line in out.splitlines() if not re.match(r"inspect \(|\d+ (cohorts|of)", line)]
    assert re.fullmatch(r"images: grey, 1[0-9]{2} pixels a side in the median, resized to 32 x 32", shown)
    assert lines.pop(0).startswith("note: a detail of 4 pixels in a file is 1.0 pixels then, and hardly seen; --image-")
    assert lines[0] == (
        f"{screws}: 22 images of good to learn from and 22 for thresholds; tested on 10 others and 20 of 4 kinds "
        "of defect"
    )
    assert re.match(r"best of 6 methods: [a-z_]+ by its score [a-z0-9_]+, AUROC 0\.\d{3}|1\.000", lines[1])
    for line, rate in zip(
        lines[2:4], ("5 % false alarms (at most 15 %)", "10 % false alarms (at most 23 %)"), strict=True
    ):
        assert line.startswith(f"found at {rate}: bent ")
        assert [*re.findall(r"(\w+) [\d.]+ % \[[\d.]+, [\d.]+\]", line)] == [*DEFECTS, "good"]
    first = lines
    *lines, where = [line for line in lines if not line.startswith("where")] + [*filter(WHERE.match, lines)]
    model = sweeper.load_model(lines[7].removeprefix("model: "))
    assert WHERE.fullmatch(where)[1] == f"{pixel_area(model, screws):.3f}"  # type: ignore[index]
    assert [line.split(":")[0] for line in lines[4:]] == [
        *(line.split(":")[0] for line in lines[4:5]),
        *("surer of false alarms", "surer of the method", "model", "sample grid", "page", "next"),
    ]
    assert re.match(r"surer of \w+: with 20 test images in place of 5 it would be about ", lines[4])
    assert "so far" not in "".join(lines) and "claim" not in "".join(lines)
    places = dict(line.split(": ", 1) for line in lines[-4:])
    assert Image.open(places["sample grid"]).width > 800 and Path(places["page"]).stat().st_size > 100_000
    command = shlex.split(places["next"])
    assert command[:3] == ["sweeper", "score", places["model"]] and sweeper.load_model(places["model"]).scores
    assert score.main([str(screws / "test") if word == "NEW_IMAGES" else word for word in command[2:]]) == 0
    assert "flagged: " in capsys.readouterr().out
    assert inspect.main(words) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith("images")][1:] == first
    for rate, found in (("0.1", lines[3]), ("0.3", None)):  # of any rate, without another training
        assert inspect.main([*words, "--alarm-rate", rate]) == 0
        out = capsys.readouterr().out
        (own,) = [line for line in out.splitlines() if line.startswith("found at ")]
        assert own == found if found else own.startswith("found at 30 % false alarms (at most ")
        assert f"--alarm-rate {rate} --csv" in out and "to run" not in out
    assert score.main([places["model"], str(screws / "test"), "--alarm-rate", "0.3"]) == 0
    assert "at a false-alarm rate of 0.3, from 22 held-out normal images" in capsys.readouterr().out
    assert inspect.main([*words, "--alarm-rate", "0.01"]) == 2
    assert capsys.readouterr().err == (
        "error: --alarm-rate 0.01 needs 99 held-out images of good, but inspect holds out 22 of 44; choose 0.043 or "
        "more, or add images\n"
    )


@for_each(
    ("change", "law"),
    [
        (
            "five",
            "inspect needs at least 20 training images of good, half of them for a threshold at a false-alarm rate ",
        ),
        ("named", "no class 'goood' (did you mean 'good'?); there are: bent, good, missing_head, scratch, thread"),
        (
            "beside",
            "test/Good has no training images and is named nearly as the normal class 'good': rename it to test",
        ),
        ("mask", "the image {own}/ground_truth/bent/000_mask.png cannot be decoded ("),
        ("tested", "inspect needs at least 20 training images of bent, half of them for a threshold at a false-alarm "),
        ("absent", "dataset=folder lacks the split 'train': there is no folder "),
        ("cut", "the image {own}/test/bent/000.png cannot be decoded (image file is truncated); remove or replace it"),
        (
            "defects",
            "test images must be of the normal class and of others, but for normal_class=good folder has none ",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_line(
    screws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, law: str
) -> None:
    own = tmp_path / change
    shutil.copytree(screws, own)
    if change == "five":
        for path in sorted((own / "train/good").iterdir())[5:]:
            path.unlink()
    elif change == "beside":
        (own / "test/bent").rename(own / "test/Good")
    elif change == "absent":
        shutil.rmtree(own / "train")
    elif change == "cut":
        (own / "test/bent/000.png").write_bytes((own / "test/bent/000.png").read_bytes()[:700])
    elif change == "mask":
        (own / "ground_truth/bent/000_mask.png").write_text("none")
    elif change == "defects":
        for defect in DEFECTS:
            shutil.rmtree(own / "test" / defect)
    name = {"named": "goood", "tested": "bent"}.get(change, "good")
    assert inspect.main([str(own), "--normal", name, "--store", str(tmp_path / "store")]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {law.format(own=own)}") and err.count("\n") == 1 and not out
    assert not (tmp_path / "store").exists()


@for_each(
    ("weights", "law"),
    [
        ("resnet18", "--weights must be a network of torchvision and its file, resnet18=FILE, but got 'resnet18'"),
        (
            f"resnet19={__file__}",
            "no encoder 'torchvision:resnet19' (did you mean 'torchvision:resnet18'?) ",
        ),
        ("resnet18=absent.pth", "weights must be a readable file, but absent.pth is not: No such file or directory"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_in_one_line(
    screws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str, law: str
) -> None:
    words = [str(screws), "--normal", "good", "--store", str(tmp_path / "store"), "--weights", weights]
    assert inspect.main(words) == 2
    out, err = capsys.readouterr()
    assert f"error: {law}" in err and err.count("error:") == 1 and not out


@pytest.mark.slow
def test_weights_of_a_file_are_those_of_patchcore(screws: Path, tmp_path: Path) -> None:
    torch.save(get_model("mobilenet_v2", weights=None).state_dict(), tmp_path / "w.pth")
    found = inspect.image_folder(str(screws), "good")
    sweep: Any = inspect.request_for(found, 32, "results", f"mobilenet_v2={tmp_path / 'w.pth'}").sweep
    (grid,) = [grid for grid in sweep.presets["methods"] if grid.fixed["method"] == "patchcore"]
    config: Any = resolve({**grid.fixed, "normal_class": 1})
    assert config.networks.build((1, 32, 32)).name == "torchvision:mobilenet_v2" and not config.pixel_views.normalise


def test_the_size_is_chosen_by_the_files_and_grey_ones_are_read_as_grey(screws: Path, tmp_path: Path) -> None:
    found = inspect.image_folder(str(screws), "good")
    assert found.grey and 110 < found.side < 160 and found.size() == 64 and found.images == 44
    small = inspect.image_folder(str(write_own_images(tmp_path, ("bad", "good"), train=24)), "good")
    assert not small.grey or small.side < 40
    assert small.size() == 32 and small.rates == (0.1,) and not [*inspect._of_files(small, 32)][1:]
    assert [line[:40] for line in inspect._of_files(found, 64)][1:] == [
        "note: a detail of 4 pixels in a file is " for _ in range(found.side > 128)
    ]


@for_each(("images", "held_out", "rates"), [(44, 22, (0.05, 0.1)), (200, 100, (0.01, 0.05)), (2000, 400, (0.01, 0.05))])
def test_as_many_images_are_held_out_as_the_rates_need(
    screws: Path, images: int, held_out: int, rates: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = inspect.image_folder(str(screws), "good")
    monkeypatch.setattr(inspect.ImageFolder, "images", property(lambda _: images))
    assert int(found.validation * images) == held_out and found.rates == rates
