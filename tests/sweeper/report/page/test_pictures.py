from pathlib import Path

import pytest

from sweeper.report.page import pictures
from tests.sweeper.report.page.stored import NAME, add_sheets, fill


def test_what_exceeds_the_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    add_sheets(store, side=200)
    both = pictures.collect(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in both.pictures] == [None, "trial00000"] and both.left_out == 0
    monkeypatch.setattr(pictures, "BYTES", len(both.pictures[0].source))
    fewer = pictures.collect(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in fewer.pictures] == [None] and fewer.left_out == 1


def test_large_pictures_are_scaled_down_and_damaged_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "MAX_SIDE", 16)
    store = fill(tmp_path)
    add_sheets(store, side=32)
    store.files.write(f"sheets/{NAME}/trial00000/samples.png", b"no picture")
    found = pictures.collect(store.files, NAME, ["trial00000"])
    assert [(picture.width, picture.height) for picture in found.pictures] == [(16, 16)]
    assert found.left_out == 1
