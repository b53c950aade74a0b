"""Of how many generated images a classifier is sure, and how evenly these are spread over the classes.

Shapes: N images, L classes. Leading dimensions, such as that of the members, are kept; results are float64.
"""

import math

import torch
from torch import Tensor


def confident_share(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """Share of the images one of whose classes has at least the probability `threshold`. NaN if a probability is."""
    return _confident(probabilities_NL, threshold).mean(-1)


def confident_coverage(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """Entropy of the classes of the images that `confident_share` counts, over `log L`: 1 if each class has equally
    many, 0 if all are of one class, or if there are none. NaN if a probability is."""
    confident_N1 = _confident(probabilities_NL, threshold)[..., None]
    guess_NL = torch.nn.functional.one_hot(probabilities_NL.argmax(-1), probabilities_NL.shape[-1])
    count_L = (confident_N1 * guess_NL).sum(-2)
    share_L = count_L / count_L.sum(-1, keepdim=True).clamp_min(1)
    return torch.special.entr(share_L).sum(-1) / math.log(probabilities_NL.shape[-1])


def _confident(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """1 for each image of which the classifier is sure, 0 for the others, float64 `[N]`."""
    largest_N = probabilities_NL.double().amax(-1)
    return torch.where(largest_N.isnan(), torch.nan, (largest_N >= threshold).double())
