"""Metrics of generated digits, for data sets whose images are those of `digits`.

Shapes: N samples, M test images, H = W = 8 pixels in [0, 1]. Leading dimensions of the samples, such as that of the
members, are kept; results are float64 on the CPU.
"""

import torch
from torch import Tensor

from trainables.evaluation.generation.digits_classifier import digits_classifier
from trainables.evaluation.generation.frechet import frechet_distance

FRECHET_IMAGES = 500
"""Samples that `frechet_digits` compares. Fewer have a larger distance: it is 0.31 for all 1,260 training images, and
0.80 ± 0.20 for 500 of them (mean ± standard deviation over 200 draws)."""


def frechet_digits(samples_N1HW: Tensor, test_images_M1HW: Tensor) -> Tensor:
    """Frechet distance between FRECHET_IMAGES of the samples, evenly spaced, and the test images in the last hidden
    layer of `digits_classifier`. Lower is better: Gaussians of the pixels of each class have about 2.2. NaN if a pixel
    of these is not finite, or for fewer samples."""
    count = samples_N1HW.shape[-4]
    if count < FRECHET_IMAGES:
        return torch.full(samples_N1HW.shape[:-4], torch.nan, dtype=torch.float64)
    chosen = torch.arange(FRECHET_IMAGES, device=samples_N1HW.device) * count // FRECHET_IMAGES
    features = digits_classifier().features
    return frechet_distance(features(samples_N1HW[..., chosen, :, :, :]), features(test_images_M1HW))


def sample_accuracy(samples_N1HW: Tensor, labels_N: Tensor) -> Tensor:
    """Share of the samples that `digits_classifier` assigns to the class that they were sampled for. NaN if a pixel is
    not finite."""
    logits_NL = digits_classifier()(samples_N1HW)
    correct_N = logits_NL.argmax(-1) == labels_N.cpu()
    return torch.where(logits_NL.isfinite().all(-1), correct_N.double(), torch.nan).mean(-1)
