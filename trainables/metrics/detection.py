"""Detection at a threshold: which share of the test images of each class is flagged at a false-alarm rate.

An area under the ROC curve is over all thresholds: a score with 0.99 may flag none of the images of a rare class. Each
metric is named by its rate, and by the number of its class, as rows name `normal_class`: `detected_0.01_3`. Reports
read these names, too, so this needs no PyTorch. Shapes: N test images, M held-out normal images.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.metrics.roc import alarm_bound, alarm_threshold, check_alarm_rate, clopper_pearson

DETECTED, FALSE_ALARMS, BOUND = "detected", "false_alarms", "alarm_bound"
"""Families of metrics: shares of anomalous and of normal test images that are flagged, and what the rate may really
be."""
LOW, HIGH = "low", "high"
"""Ends of the names of an interval's bounds."""
MOST_CLASSES = 100
"""Most classes of which each has metrics of its own; of more there are those of all anomalous images together."""


def detection_names(rates: Sequence[float], classes: int) -> list[str]:
    """Names of all metrics at these rates, of data with so many classes."""
    numbers = [f"_{number}" for number in range(classes)] if classes <= MOST_CLASSES else []
    names = []
    for rate in rates:
        shares = [f"{DETECTED}_{rate:g}", *(f"{DETECTED}_{rate:g}{number}" for number in numbers)]
        shares.append(f"{FALSE_ALARMS}_{rate:g}")
        names += [name for share in shares for name in (share, f"{share}_{LOW}", f"{share}_{HIGH}")]
        names.append(f"{BOUND}_{rate:g}")
    return names


def detection(
    rates: Sequence[float],
    score_N: NDArray[np.float64],
    held_out_M: NDArray[np.float64],
    label_N: NDArray[np.int64],
    outlier_N: NDArray[np.bool_],
    classes: int,
) -> dict[str, float]:
    """The metrics of `detection_names` for one score. NaN for the normal class among the others, for a class without
    test images, for a score that is not finite, and for a rate that the held-out images are too few for."""
    found = dict.fromkeys(detection_names(rates, classes), math.nan)
    for rate in rates:
        try:
            check_alarm_rate(rate, len(held_out_M))
        except ValueError:
            continue
        if not (np.isfinite(score_N).all() and np.isfinite(held_out_M).all()):
            continue
        flagged_N = score_N > alarm_threshold(held_out_M, rate)
        masks = {f"{FALSE_ALARMS}_{rate:g}": ~outlier_N, f"{DETECTED}_{rate:g}": outlier_N}
        for number in range(classes if classes <= MOST_CLASSES else 0):
            masks[f"{DETECTED}_{rate:g}_{number}"] = outlier_N & (label_N == number)
        for name, mask_N in masks.items():
            if images := int(mask_N.sum()):
                count = int(flagged_N[mask_N].sum())
                low, high = clopper_pearson(count, images)
                found |= {name: count / images, f"{name}_{LOW}": low, f"{name}_{HIGH}": high}
        found[f"{BOUND}_{rate:g}"] = alarm_bound(len(held_out_M), rate)
    return found


class Share(NamedTuple):
    """A share of images with its 95 % interval."""

    share: float
    low: float
    high: float


class Detection(NamedTuple):
    """What a trial flags at a false-alarm rate."""

    rate: float
    bound: float
    """What the real rate is at most (`roc.alarm_bound`); NaN, as all shares, if too few images were held out."""
    normal: Share | None
    """Of the normal test images."""
    anomalous: Share | None
    """Of all others."""
    classes: Mapping[int, Share]
    """Of those of each class that has some."""


def is_detection(name: str) -> bool:
    """Whether a column of rows is one of `detection_names`."""
    return re.fullmatch(rf"({DETECTED}|{FALSE_ALARMS}|{BOUND})_[0-9].*", name) is not None


def detections_of(values: Mapping[str, float | None]) -> list[Detection]:
    """What the metrics of a row say, by rate, the smallest first. `values` may have other columns."""
    found: dict[float, Detection] = {}
    for name in values:
        if match := re.fullmatch(rf"{BOUND}_([0-9.e-]+)", name):
            text = match[1]
            classes = {
                int(own[1]): share
                for column in values
                if (own := re.fullmatch(rf"{DETECTED}_{re.escape(text)}_(\d+)", column))
                and (share := _share(values, column))
            }
            normal, anomalous = (_share(values, f"{family}_{text}") for family in (FALSE_ALARMS, DETECTED))
            bound = values[name]
            rate = float(text)
            found[rate] = Detection(rate, math.nan if bound is None else bound, normal, anomalous, classes)
    return [found[rate] for rate in sorted(found)]


def _share(values: Mapping[str, float | None], name: str) -> Share | None:
    """The share of this name with its interval; None if it is null."""
    share, low, high = (values.get(each) for each in (name, f"{name}_{LOW}", f"{name}_{HIGH}"))
    if share is None or low is None or high is None or math.isnan(share):
        return None
    return Share(share, low, high)
