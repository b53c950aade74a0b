import base64
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sweeper.report.page import embedded
from sweeper.report.page.embedded import pack_curves
from sweeper.storage.layout import log_path
from tests.sweeper.report.page.stored import NAME, add_sample_grids, fill


def history(trials: int, epochs: int, metrics: tuple[str, ...]) -> pd.DataFrame:
    records = [(f"t{t}", e, m, t + e / 1000) for t in range(trials) for m in metrics for e in range(epochs)]
    return pd.DataFrame(records, columns=["trial_id", "epoch", "metric", "value"])


def test_every_value_is_found_again() -> None:
    reports = history(3, 4, ("auroc", "loss"))
    reports = reports[~((reports["trial_id"] == "t1") & (reports["epoch"] == 2))]  # one is missing
    packed = pack_curves(reports, ["t2", "t1", "t0"], ["loss"])
    assert [series["metric"] for series in packed.series] == ["loss", "auroc"] and packed.note == ""
    for series in packed.series:
        size = len(series["trials"]) * len(series["epochs"])
        values = packed.values[series["offset"] :][:size].reshape(len(series["trials"]), -1)
        assert series["trials"] == [0, 1, 2] and series["epochs"] == [0, 1, 2, 3]
        np.testing.assert_array_equal(
            values, [[2, 2.001, 2.002, 2.003], [1, 1.001, np.nan, 1.003], [0, 0.001, 0.002, 0.003]]
        )


def test_trials_of_others_are_left_out() -> None:
    assert pack_curves(history(2, 1, ("loss",)), ["t1"], []).values.tolist() == [1.0]
    assert pack_curves(history(0, 0, ()), ["t1"], []).values.size == 0


def test_a_long_history_is_thinned_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr(embedded, "CURVE_BYTES", 8 * 2 * 3 * 40)
    packed = pack_curves(history(3, 100, ("a", "b")), ["t0", "t1", "t2"], [])
    epochs = packed.series[0]["epochs"]
    assert epochs[0] == 0 and epochs[-1] == 99 and 20 < len(epochs) <= 40
    assert packed.values.nbytes <= embedded.CURVE_BYTES
    assert (
        packed.note.startswith("To keep this page small, curves show at most ") and "of up to 100 epochs" in packed.note
    )


def test_the_last_metrics_are_left_out_if_thinning_is_not_enough(monkeypatch) -> None:
    monkeypatch.setattr(embedded, "CURVE_BYTES", 8 * 3 * embedded.MIN_EPOCHS)
    monkeypatch.setattr(embedded, "BYTES_PER_TRIAL", 0)
    packed = pack_curves(history(3, 100, ("a", "b", "c")), ["t0", "t1", "t2"], ["c"])
    assert [series["metric"] for series in packed.series] == ["c"]
    assert "there are no curves of a, b" in packed.note


def test_what_exceeds_the_limit_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    add_sample_grids(store, side=200)
    both = embedded.collect_pictures(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in both.pictures] == [None, "trial00000"] and both.left_out == 0
    monkeypatch.setattr(embedded, "PICTURE_BYTES", len(both.pictures[0].source) * 3 // 4)
    fewer = embedded.collect_pictures(store.files, NAME, ["trial00000"])
    assert [picture.trial for picture in fewer.pictures] == [None] and fewer.left_out == 1


def test_of_logs_the_last_lines_are_kept_and_of_many_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path)
    monkeypatch.setattr(embedded, "LOG_BYTES", 10)
    monkeypatch.setattr(embedded, "MOST_LOGS", 2)
    for trial, log in {"a": b"1\n2\n", "b": b"longer than\n9\n10\n", "c": b"3"}.items():
        store.files.write(log_path(NAME, trial), log)
    logs, left_out = embedded.collect_logs(store.files, NAME, ["none", "b", "a", "c"])
    assert [(log.trial, log.text, log.cut) for log in logs] == [("b", "9\n10\n", True), ("a", "1\n2\n", False)]
    assert left_out == 1 and (tmp_path / "reports" / logs[0].path).resolve() == tmp_path / log_path(NAME, "b")


def test_large_pictures_are_scaled_down_and_damaged_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "MAX_SIDE", 16)
    store = fill(tmp_path)
    add_sample_grids(store, side=32)
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
