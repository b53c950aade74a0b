"""Accuracy, likelihood and calibration of methods that classify, at every report.

All are computed in float64 from the logits. Shapes: K members, N evaluated images, L classes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial
from trainables.metrics.evaluator import EvaluationSet, Floats, RepresentationEvaluator, Representations, all_finite
from trainables.metrics.probes import TOP, shares_of_top

BINS = 15
"""Bins of confidence of the calibration error, of equal width."""


@torch.no_grad()
def classification_metrics(logits_NL: Tensor, labels_N: Tensor) -> dict[str, float]:
    """`accuracy`, `nll`, `ece` and, with more than five classes, `top5`. Among classes with equal logits the lowest
    index ranks first. All NaN if a logit is not finite."""
    tops = {"accuracy": 1, **({"top5": TOP} if logits_NL.shape[-1] > TOP else {})}
    if not all_finite(logits_NL):
        return dict.fromkeys([*tops, "nll", "ece"], math.nan)
    shares = shares_of_top(logits_NL, labels_N, [*tops.values()])
    log_p_NL = logits_NL.double().log_softmax(-1)
    nll = -log_p_NL.gather(-1, labels_N[:, None]).mean().item()
    return {**dict(zip(tops, shares, strict=True)), "nll": nll, "ece": calibration_error(log_p_NL.exp(), labels_N)}


def calibration_error(p_NL: Tensor, labels_N: Tensor) -> float:
    """Expected calibration error, in [0, 1]: images are binned by confidence (the largest probability) with bins `(i /
    15, (i + 1) / 15]`; the mean of |accuracy - mean confidence| over bins, weighted by the number of images (Guo et al.
    2017)."""
    confidence_N, predicted_N = p_NL.max(-1)
    bin_N = ((confidence_N * BINS).ceil().long() - 1).clamp(0, BINS - 1)
    gap_N = (predicted_N == labels_N).double() - confidence_N
    return gap_N.new_zeros(BINS).index_add_(0, bin_N, gap_N).abs().sum().item() / len(labels_N)


class Classification(RepresentationEvaluator):
    """Metrics of every method that classifies. No key is needed to request them."""

    needs_bank = False

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        if "classify" not in method.capabilities:
            return ()
        return ("accuracy", *(("top5",) if classes > TOP else ()), "nll", "ece")

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        logits_KNL = self.images.classified(vectors.stack, tested.images)
        by_member = [classification_metrics(logits_NL, tested.labels) for logits_NL in logits_KNL]
        return {name: np.array([metrics[name] for metrics in by_member]) for name in by_member[0]}
