"""The share of each class of test images that is flagged at a false-alarm rate."""

import math
import re

import numpy as np
import pytest

from tests.cases import for_each
from trainables.config import resolve
from trainables.image_trial import ImageTrial
from trainables.metrics.catalog import metric_names
from trainables.metrics.detection import MOST_CLASSES, detection, detection_names, detections_of
from trainables.metrics.meanings import family_of
from trainables.metrics.roc import alarm_threshold, clopper_pearson
from trainables.training.metric_names import method_of

NORMAL, BENT, SCRATCH, ABSENT = range(4)
HELD_OUT = np.arange(100.0)


def test_each_class_has_the_share_above_the_threshold_and_its_interval() -> None:
    """The threshold at 0.01 is 99, the largest held-out score, which itself is not flagged."""
    labels = np.array([NORMAL] * 4 + [BENT] * 4 + [SCRATCH] * 5)
    scores = np.array([0, 5, 50, 200, 99, 99.5, 100, 300, 1, 2, 3, 99, 98], float)
    found = detection((0.01,), scores, HELD_OUT, labels, labels != NORMAL, 4)
    assert alarm_threshold(HELD_OUT, 0.01) == 99
    shares = {
        "detected_0.01": (3, 9),
        "detected_0.01_1": (3, 4),
        "detected_0.01_2": (0, 5),
        "false_alarms_0.01": (1, 4),
    }
    for name, (count, images) in shares.items():
        known = [found[name], found[f"{name}_low"], found[f"{name}_high"]]
        assert known == [count / images, *clopper_pearson(count, images)], name
    assert all(math.isnan(found[f"detected_0.01_{number}"]) for number in (NORMAL, ABSENT))
    (said,) = detections_of(found)
    assert said.rate == 0.01 and said.bound == found["alarm_bound_0.01"] and [*said.classes] == [BENT, SCRATCH]
    assert said.classes[SCRATCH].share == 0 and said.normal is not None and said.normal.share == 0.25


def test_a_rate_that_cannot_be_had_and_scores_that_are_not_finite_have_no_values() -> None:
    labels = np.array([NORMAL, BENT])
    for held_out, score in ((HELD_OUT[:98], 1.0), (HELD_OUT, math.nan)):
        found = detection((0.01,), np.array([0, score]), held_out, labels, labels != NORMAL, 2)
        assert all(map(math.isnan, found.values()))
        (said,) = detections_of(found)
        assert said.normal is None and said.anomalous is None and not said.classes


def test_many_classes_have_no_metrics_of_their_own() -> None:
    """A file of rows has at most 5,000 columns."""
    labels = np.arange(MOST_CLASSES + 1)
    names = detection_names((0.01,), len(labels))
    found = detection((0.01,), labels.astype(float) + 99, HELD_OUT, labels, labels > 0, len(labels))
    assert [*found] == names and len(names) == 7 and found["detected_0.01"] == 1
    assert len(detection_names((0.01,), MOST_CLASSES)) == 7 + 3 * MOST_CLASSES


def test_every_name_has_a_family_that_says_which_direction_is_better() -> None:
    directions = {name: family_of(name) for name in detection_names((0.005, 1e-05), 2)}
    assert all(family is not None and family.may_be_undefined for family in directions.values())
    better = {name: family.direction for name, family in directions.items() if family and family.direction}
    assert {name for name, direction in better.items() if direction == "minimize"} == {
        "false_alarms_0.005",
        "false_alarms_1e-05",
    }
    assert {name for name, direction in better.items() if direction == "maximize"} == {
        f"detected_{rate}{number}" for rate in ("0.005", "1e-05") for number in ("", "_0", "_1")
    }


@for_each(
    ("keys", "reported"),
    [
        ({"dataset": "folder"}, True),
        ({"dataset": "folder", "validation": 0.0}, False),
        ({"dataset": "folder", "alarm_rates": ""}, False),
        ({"dataset": "digits"}, False),
    ],
)
def test_trials_on_one_class_of_own_images_report_it(keys: dict[str, str | float], reported: bool) -> None:
    config = resolve({"method": "vje", "normal_class": 0, "validation": 0.2, **keys})
    assert isinstance(config, ImageTrial)
    names = metric_names(config, method_of("vje"), 5, True)  # type: ignore[arg-type]
    assert ("detected_0.05_4" in names) == reported
    assert not any(name.startswith("detected") for name in metric_names(config, method_of("vje"), 5, False))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0.01,0.05", "1", "0", "nan", "+0.1", "often"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("alarm_rates must be shares in (0, 1), joined by +, but got")):
        resolve({"method": "vje", "dataset": "folder", "alarm_rates": text})
    with pytest.raises(ValueError, match="each false-alarm rate must be named once"):
        resolve({"method": "vje", "dataset": "folder", "alarm_rates": "0.01+0.010"})
