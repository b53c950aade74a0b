import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweeper.report.page import embedded
from tests.sweeper.report.page.stored import NAME, add_sheets, fill


def test_what_exceeds_the_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    add_sheets(store, side=200)
    both = embedded.collect_pictures(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in both.pictures] == [None, "trial00000"] and both.left_out == 0
    monkeypatch.setattr(embedded, "PICTURE_BYTES", len(both.pictures[0].source) * 3 // 4)
    fewer = embedded.collect_pictures(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in fewer.pictures] == [None] and fewer.left_out == 1


def test_large_pictures_are_scaled_down_and_damaged_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "MAX_SIDE", 16)
    store = fill(tmp_path)
    add_sheets(store, side=32)
    store.files.write(f"sheets/{NAME}/trial00000/samples.png", b"no picture")
    found = embedded.collect_pictures(store.files, NAME, ["trial00000"])
    assert [(picture.width, picture.height) for picture in found.pictures] == [(16, 16)]
    assert found.left_out == 1


def test_a_picture_of_few_colours_stays_as_it_is(tmp_path: Path) -> None:
    store, buffer = fill(tmp_path), io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 2, (8, 8), dtype=np.uint8) * 255
    Image.fromarray(pixels.repeat(30, 0).repeat(30, 1)).save(buffer, "PNG")
    store.files.write(f"sheets/{NAME}/paper/digits-samples.png", buffer.getvalue())
    (found,) = embedded.collect_pictures(store.files, NAME, []).pictures
    assert found.source == f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    assert (found.width, found.height) == (240, 240)
