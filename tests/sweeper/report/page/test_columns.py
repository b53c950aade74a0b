import math

import pandas as pd

from sweeper.report.figures import views_of
from sweeper.report.formatting import json_values
from sweeper.report.page.findings import declared_metrics, encode
from sweeper.storage.rows import Columns
from tests.sweeper.report.page.stored import SWEEP

VIEWS = [views_of(SWEEP, "paper")]
COLUMNS = Columns({"width": int, "nu": float, "flip": bool}, ("knn_z", "loss"))


def test_values_keep_every_digit_and_their_type() -> None:
    assert json_values(pd.Series([0.1 + 0.2, 1e-300, math.nan, math.inf, -math.inf])) == [
        0.30000000000000004, 1e-300, None, "inf", "-inf",
    ]  # fmt: skip
    widths = json_values(pd.Series([64.0, math.nan]), int)
    assert widths == [64, None] and isinstance(widths[0], int)
    assert json_values(pd.Series([True, None, "a"], dtype=object)) == [True, None, "a"]
    assert json_values(pd.Series(pd.to_datetime(["2026-01-02T03:04:05Z", None]))) == ["2026-01-02T03:04:05+00:00", None]


def test_equal_values_are_stored_once() -> None:
    rows = pd.DataFrame({"width": [64, 64], "nu": [1.0, 2.0]})
    width, nu = encode(rows, COLUMNS, ())
    assert width == {"name": "width", "kind": "hyperparameter", "constant": 64}
    assert nu["values"] == [1.0, 2.0]
    assert encode(rows[:0], COLUMNS, ())[0]["values"] == []


def test_metrics_have_direction_unit_and_bounds() -> None:
    rows = pd.DataFrame({"knn_z": [0.5], "loss": [1.0], "status": ["finished"]})
    knn, loss, status = encode(rows, COLUMNS, VIEWS)
    assert (knn["direction"], knn["percent"], knn["bounds"]) == ("maximize", True, [0.0, 1.0])
    assert (loss["direction"], loss["percent"], loss["bounds"]) == ("minimize", False, None)
    assert status["kind"] == "run"


def test_a_metric_is_shown_alike_on_validation_and_on_test_images() -> None:
    rows = pd.DataFrame({"val_knn_z": [0.5]})
    (column,) = encode(rows, Columns({}, ("val_knn_z",)), VIEWS)
    assert column["percent"] and column["direction"] == "maximize"


def test_the_first_view_of_a_metric_decides() -> None:
    assert set(declared_metrics(VIEWS)) == {"auroc_joint", "knn_z", "loss"}
    assert declared_metrics(()) == {}


def test_metrics_of_a_family_have_one_unit() -> None:
    rows = pd.DataFrame({"knn_mu": [0.5]})
    (column,) = encode(rows, Columns({}, ("knn_mu",)), VIEWS)
    assert column["percent"], "as knn_z, which a view shows in percent"
