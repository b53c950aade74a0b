"""Metrics of generated digits, for data sets whose images are those of `digits`.

Shapes: N samples, M test images, H = W = 8 pixels in [0, 1]. Leading dimensions of the samples, such as that of the
members, are kept; results are float64 on the CPU.
"""

import torch
from torch import Tensor

from trainables.evaluation.generation.digits_classifier import digits_classifier
from trainables.evaluation.generation.frechet import frechet_distance


def frechet_digits(samples_N1HW: Tensor, test_images_M1HW: Tensor) -> Tensor:
    """Frechet distance between samples and test images in the last hidden layer of `digits_classifier`. Lower is
    better: real training images have 0.31, Gaussians of the pixels of each class about 2.1. NaN if a pixel is not
    finite.

    Fewer samples have a larger distance, so only distances of equally many compare: SimVAE's are of 100 of each class.
    """
    features = digits_classifier().features
    return frechet_distance(features(samples_N1HW), features(test_images_M1HW))


def sample_accuracy(samples_N1HW: Tensor, labels_N: Tensor) -> Tensor:
    """Share of the samples that `digits_classifier` assigns to the class that they were sampled for. NaN if a pixel is
    not finite."""
    logits_NL = digits_classifier()(samples_N1HW)
    correct_N = logits_NL.argmax(-1) == labels_N.cpu()
    return torch.where(logits_NL.isfinite().all(-1), correct_N.double(), torch.nan).mean(-1)
