"""Classification: cross-entropy with smoothed labels, and mixtures of images (mixup).

Shapes: B images of a batch, L classes.
"""

import math

import torch
from torch import Tensor


def smoothed_cross_entropy(logits_BL: Tensor, labels_B: Tensor, smoothing: Tensor) -> Tensor:
    """Cross-entropy of each image, `[B]`, with targets `(1 - smoothing) onehot + smoothing / L`."""
    log_p_BL = logits_BL.log_softmax(-1)
    own_B = log_p_BL.gather(-1, labels_B[:, None])[:, 0]
    return -(1 - smoothing) * own_B - smoothing * log_p_BL.mean(-1)


def symmetric_beta(alpha: Tensor, uniforms_2: Tensor) -> Tensor:
    """A sample of Beta(alpha, alpha), a scalar, from two uniform numbers in [0, 1); 1 for `alpha = 0`.

    Exact: with `w = u ** (1 / alpha)` and `c = cos(2 pi v)`, `t = sqrt((1 - w) / w) c` is Student's t with 2 alpha
    degrees of freedom, divided by sqrt(2 alpha) (Bailey 1994), and `(1 + t / sqrt(1 + t^2)) / 2` has the Beta
    distribution. Numerator and denominator are multiplied by `sqrt(w)`, which may be 0.
    """
    w, c = uniforms_2[0] ** (1 / alpha), (2 * math.pi * uniforms_2[1]).cos()
    sample = (1 + (1 - w).sqrt() * c / (w + (1 - w) * c.square()).sqrt()) / 2
    return torch.where(alpha > 0, sample, 1.0)


def random_partners(uniforms_B: Tensor) -> Tensor:
    """A random partner for each image, as indices `[B]`: the image with the next larger random number; the image with
    the largest number gets the one with the smallest."""
    order_B = uniforms_B.argsort()
    return order_B.roll(-1)[order_B.argsort()]
