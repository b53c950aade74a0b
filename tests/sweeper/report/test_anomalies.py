"""The sample grid of the most and the least anomalous test images."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from sweeper.report import anomalies
from sweeper.report.anomalies import FLAGGED, Anomalies, SheetImage, draw_images
from sweeper.storage.files import Files

N, A, M = 40, 12, 30


def arrays() -> dict[str, np.ndarray]:
    """Of images with the scores 0 to 39, the higher half of them outliers, and held-out scores 0 to 29."""
    order = np.arange(N)[::-1]
    places = np.concatenate([order[: A // 2], order[-A // 2 :]])
    return {
        "shown": np.broadcast_to(places[:, None, None, None], (A, 5, 5, 1)).astype(np.uint8),
        "places": places,
        "scores": np.arange(N, dtype=np.float32),
        "labels": (np.arange(N) >= N // 2).astype(np.int16),
        "outlier": np.arange(N) >= N // 2,
        "held_out": np.arange(M, dtype=np.float32),
        "classes": np.array(["good", "$scratched$ and bent"]),
        "score": np.array("joint"),
    }


def write(files: Files, changes: dict[str, Any] | None = None) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays() | (changes or {})))
    files.write("sheets/grid/a/anomalies.npz", buffer.getvalue())


def drawn(alarm_rate: float | None) -> Figure:
    read = arrays()
    classes = tuple(map(str, read.pop("classes")))
    return anomalies.draw(Anomalies(**read, classes=classes), "a title", alarm_rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(("alarm_rate", "flagged"), [(None, 0), (0.1, 6), (0.9, 8)])
def test_images_above_the_threshold_have_a_frame(alarm_rate: float | None, flagged: int) -> None:
    """At 0.9 the fourth held-out score is the threshold, so that normal images are flagged, too."""
    frames = [to_rgb(axis.spines["left"].get_edgecolor()) for axis in drawn(alarm_rate).axes]
    assert len(frames) == A and sum(frame == to_rgb(FLAGGED) for frame in frames) == flagged


def test_each_image_stands_above_its_class_and_score_and_the_extremes_come_first() -> None:
    axes = drawn(0.1).axes
    values = [int(axis.images[0].get_array()[0, 0]) for axis in axes]  # type: ignore[index]
    assert values == [39, 38, 37, 36, 35, 34, 0, 1, 2, 3, 4, 5]
    texts = [[text.get_text() for text in axis.texts] for axis in axes]
    assert texts[0] == ["$scratched$…", "39.0"] and texts[6] == ["good", "0.00"]
    weights = [axis.texts[0].get_fontweight() for axis in axes]
    assert weights == ["normal"] * 6 + ["bold"] * 6


def test_the_lines_say_the_area_and_what_is_flagged() -> None:
    title, about, flagged, *_ = (text.get_text() for text in drawn(0.1).texts)
    assert title == "a title" and about == "score joint, AUROC 1.000: 20 normal (bold) and 20 other test images"
    assert flagged == (
        "flagged (framed) are 0.0 % of the normal and 60.0 % of the others, above the threshold 27.0 of the "
        "false-alarm rate 0.1"
    )
    assert not [text for text in drawn(None).texts if "flagged" in text.get_text()]


def test_the_area_has_an_interval_over_many_images_by_delong_on_the_logit_scale() -> None:
    values = np.arange(80.0)
    outlier = (values >= 40) ^ (values % 10 == 5)
    read: dict[str, Any] = arrays() | {"scores": values, "outlier": outlier, "labels": outlier.astype(np.int16)}
    figure = anomalies.draw(Anomalies(**read | {"classes": ("good", "bad"), "score": "joint"}), "a title", None)
    won_MN = values[outlier][:, None] > values[~outlier][None]
    area, variance = won_MN.mean(), sum(won_MN.mean(axis).var(ddof=1) / won_MN.shape[1 - axis] for axis in (0, 1))
    half = stats.norm.ppf(0.975) * variance**0.5 / (area * (1 - area))
    low, high = stats.logistic.cdf(stats.logistic.ppf(area) + np.array([-half, half]))
    assert (
        figure.texts[1]
        .get_text()
        .startswith(f"score joint, AUROC {area:.3f} [{low:.3f}, {high:.3f}] (95 % interval over images): 40 normal")
    )


def test_the_sample_grid_of_a_trial_is_a_picture_in_the_folder_of_its_request(tmp_path: Path) -> None:
    files = Files(tmp_path)
    anomalies.write(files, "grid", "grid/paper", "digits", "a", "title", None)
    assert not files.list("sheets")
    write(files)
    anomalies.write(files, "grid", "grid/paper", "digits", "a", "title", 0.1)
    picture = Image.open(tmp_path / "sheets/grid/paper/digits-anomalies.png")
    assert picture.width > 800


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": np.zeros(3)}, "its arrays must be of the same images"),
        ({"shown": np.zeros((A, 5, 5), np.uint8)}, "it must show images of one or three channels"),
        ({"places": np.full(A, N)}, "it must show images of one or three channels that are among"),
        ({"labels": np.full(N, 7)}, "its images must be of known classes"),
        ({"outlier": np.ones(N, bool)}, "its images must be of known classes, normal ones and others"),
    ],
)
def test_a_damaged_sample_grid_is_named_and_left_out(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    lines: list[str] = []
    files = Files(tmp_path, log=lines.append)
    write(files, changes)
    anomalies.write(files, "grid", "grid/paper", "digits", "a", "title", None)
    assert len(lines) == 1 and re.search(f"'sheets/grid/a/anomalies.npz' cannot be shown: {reason}", lines[0])
    assert files.list("sheets/grid") == ["a"]


def test_heat_is_drawn_beside_its_image_in_shades_that_all_images_share() -> None:
    """They are dark up to the median."""
    image, heats = np.zeros((4, 4, 1), np.uint8), [np.full((4, 4), 1.0, np.float32) for _ in range(2)]
    heats[1][2:] = 4.0
    parts = {"a": [SheetImage(image, "a", 1.0, True, heat=heat) for heat in heats], "b": []}
    axes = draw_images("a title", [], parts).axes
    assert len(axes) == 4
    for shown, beside, heat in zip(axes[::2], axes[1::2], heats, strict=True):
        (drawn,), at = beside.images, [axis.get_position() for axis in (shown, beside)]
        assert np.array_equal(np.asarray(drawn.get_array()), np.sqrt(heat)) and drawn.get_clim() == (1, 2)
        assert at[0].y0 == at[1].y0 and at[0].x0 < at[1].x0 < at[0].x0 + 2 * at[0].width
    assert len(draw_images("a title", [], {"a": [SheetImage(image, "a", 1.0, True)]}).axes) == 1
