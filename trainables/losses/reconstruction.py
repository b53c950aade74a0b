"""Negative log-likelihoods of images given what a decoder makes of their latents (SimVAE, section 3.4).

Shapes: B images of C channels, H by W pixels in [0, 1]; further dimensions before C, such as views, are kept. Every
function returns one value per image, `[B]`: a sum over its pixels.
`sigma2 > 0` and `divisor > 0` are floats or 0-dimensional tensors. Constants that depend on sigma2 and the number of
pixels alone are left out.
"""

import torch.nn.functional as F
from torch import Tensor


def gaussian_reconstruction(images_BCHW: Tensor, mean_BCHW: Tensor, sigma2: float | Tensor) -> Tensor:
    """`||x - mean||^2 / (2 sigma2)` (SimVAE Eq. 5); left out is `C H W / 2 log(2 pi sigma2)`."""
    return (images_BCHW - mean_BCHW).square().sum((-3, -2, -1)) / (2 * sigma2)


def bernoulli_reconstruction(images_BCHW: Tensor, logits_BCHW: Tensor, divisor: float | Tensor) -> Tensor:
    """Cross-entropy of the pixels and `sigmoid(logits)`, over `divisor`: 1 for the likelihood, exp(-4.6) = 0.01005 in
    the authors' code. Finite for all logits."""
    entropies_BCHW = F.binary_cross_entropy_with_logits(logits_BCHW, images_BCHW, reduction="none")
    return entropies_BCHW.sum((-3, -2, -1)) / divisor
