"""Quality of decoded images: pixel errors, Frechet distances, and classifier-based measures.

Shapes: K members, N samples, M test images, B images of a batch, C channels (1 or 3), H rows, W columns, pixels in [0,
1]; D features, L classes. Leading dimensions of the samples, such as the members, are kept; results are float64.
"""

import importlib.util
import math
import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.metrics.evaluator import all_finite
from trainables.metrics.sample_classifiers import digits_classifier


def frechet_distance(samples_ND: Tensor, test_MD: Tensor) -> Tensor:
    """Squared Frechet distance `|m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2))` between Gaussians with the means m and
    unbiased covariances S of the two sets, in float64. NaN if a feature is not finite. Raises ValueError unless both
    sets have at least two vectors.

    With factors `S = R^T R`, the eigenvalues of `S1 S2` are the squared singular values of `R1 R2^T`. The sum of these
    singular values is therefore the trace of the root, and no matrix square root is computed.
    """
    for vectors_ND in (samples_ND, test_MD):
        if vectors_ND.shape[-2] < 2:
            raise ValueError(f"a Frechet distance needs at least 2 vectors of each set, but got {vectors_ND.shape[-2]}")
    finite = samples_ND.isfinite().all(-1).all(-1) & test_MD.isfinite().all()
    sample_mean_D, sample_factor_DD = _mean_and_factor(torch.where(finite[..., None, None], samples_ND, 0.0))
    test_mean_D, test_factor_DD = _mean_and_factor(torch.where(finite.any(), test_MD, 0.0))
    traces = sample_factor_DD.square().sum((-2, -1)) + test_factor_DD.square().sum()
    root_trace = torch.linalg.svdvals(sample_factor_DD @ test_factor_DD.mT).sum(-1)
    distance = (sample_mean_D - test_mean_D).square().sum(-1) + traces - 2 * root_trace
    return torch.where(finite, distance, torch.nan)


def _mean_and_factor(vectors_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The mean `[D]`, and R `[min(N, D), D]` such that `R^T R` is the unbiased covariance, in float64."""
    vectors_ND = vectors_ND.double()
    mean_1D = vectors_ND.mean(-2, keepdim=True)
    centred_ND = (vectors_ND - mean_1D) / (vectors_ND.shape[-2] - 1) ** 0.5
    return mean_1D.squeeze(-2), torch.linalg.qr(centred_ND, mode="r").R


FRECHET_IMAGES = 500
"""Number of samples that `frechet_digits` compares. The distance grows as the number falls: 0.31 for all 1,260 training
images, 0.80 ± 0.20 for 500 of them (mean ± standard deviation over 200 draws)."""


def frechet_digits(samples_N1HW: Tensor, test_images_M1HW: Tensor) -> Tensor:
    """Frechet distance between FRECHET_IMAGES of the samples, evenly spaced, and the test images in the last hidden
    layer of `digits_classifier`. Lower is better: class-wise Gaussians of pixels score about 2.2. NaN if a pixel is not
    finite, or for fewer samples."""
    count = samples_N1HW.shape[-4]
    if count < FRECHET_IMAGES:
        return torch.full(samples_N1HW.shape[:-4], torch.nan, dtype=torch.float64)
    chosen = torch.arange(FRECHET_IMAGES, device=samples_N1HW.device) * count // FRECHET_IMAGES
    features = digits_classifier().features
    return frechet_distance(features(samples_N1HW[..., chosen, :, :, :]), features(test_images_M1HW))


def sample_accuracy(samples_N1HW: Tensor, labels_N: Tensor) -> Tensor:
    """Share of the samples that `digits_classifier` assigns to the class for which they were generated. NaN if a pixel
    is not finite."""
    logits_NL = digits_classifier()(samples_N1HW)
    correct_N = logits_NL.argmax(-1) == labels_N.cpu()
    return torch.where(logits_NL.isfinite().all(-1), correct_N.double(), torch.nan).mean(-1)


def confident_share(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """Share of the images with a class probability of at least `threshold`. NaN if a probability is NaN."""
    return _confident(probabilities_NL, threshold).mean(-1)


def confident_coverage(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """Entropy of the classes of the images that `confident_share` counts, divided by `log L`: 1 if all classes are
    equally frequent, 0 for a single class or no confident image. NaN if a probability is NaN."""
    confident_N1 = _confident(probabilities_NL, threshold)[..., None]
    guess_NL = torch.nn.functional.one_hot(probabilities_NL.argmax(-1), probabilities_NL.shape[-1])
    count_L = (confident_N1 * guess_NL).sum(-2)
    share_L = count_L / count_L.sum(-1, keepdim=True).clamp_min(1)
    return torch.special.entr(share_L).sum(-1) / math.log(probabilities_NL.shape[-1])


def _confident(probabilities_NL: Tensor, threshold: float) -> Tensor:
    """1 for each image that the classifier assigns confidently, 0 for the others, float64 `[N]`."""
    largest_N = probabilities_NL.double().amax(-1)
    return torch.where(largest_N.isnan(), torch.nan, (largest_N >= threshold).double())


def reconstruction_mse(images_NCHW: Tensor, reconstructions_NCHW: Tensor) -> Tensor:
    """Mean over images and pixels of the squared difference (SimVAE, table 7). Lower is better."""
    return (reconstructions_NCHW - images_NCHW).square().mean((-4, -3, -2, -1), dtype=torch.float64)


def diversity(samples_NCHW: Tensor, test_images_MCHW: Tensor) -> Tensor:
    """Pixel variance over the samples divided by pixel variance over the test images, each summed over the pixels: 1 if
    the samples vary as much as the images, 0 if all samples are equal."""
    return _total_variance(samples_NCHW) / _total_variance(test_images_MCHW)


def _total_variance(images_NCHW: Tensor) -> Tensor:
    return images_NCHW.double().var(-4).sum((-3, -2, -1))


LIBRARIES = ("torchmetrics", "torch_fidelity")
"""Packages that the extra `fid` installs."""
REASON_LENGTH = 200
"""Maximum length of a library's error message that is passed on, in one line."""


def check_fid(weights: Path) -> None:
    """Raises ValueError unless torchmetrics and torch-fidelity are installed and `weights` is a file."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise ValueError(f"FID needs {names} from the extra fid: pip install 'torchmetrics[image]'")
    if not weights.is_file():
        raise ValueError(f"FID needs a file of Inception weights, but there is no file {weights}")


@torch.no_grad()
def fid(
    samples_KNCHW: Tensor, test_images_MCHW: Tensor, weights: Path, device: torch.device, batch_size: int = 64
) -> list[float]:
    """FID of each member's samples against the test images, from the 2048 pooled features of Inception-v3. Pixels are
    in [0, 1]. Lower is better; values are comparable only for equal numbers of samples. NaN if a pixel is not finite.

    `weights` is torch-fidelity's file `weights-inception-2015-12-05-6726825d.pth`. It is unpickled, so it must come
    from a source that the user trusts. Raises ValueError if it cannot be used, as `check_fid`, and for images with 2 or
    more than 3 channels.
    """
    metric = _load_metric(weights).to(device)
    for batch_BCHW in test_images_MCHW.split(batch_size):
        metric.update(inception_images(batch_BCHW).to(device), real=True)
    values = []
    for samples_NCHW in samples_KNCHW:
        if not all_finite(samples_NCHW):
            values.append(math.nan)
            continue
        for batch_BCHW in samples_NCHW.split(batch_size):
            metric.update(inception_images(batch_BCHW).to(device), real=False)
        values.append(metric.compute().item())
        metric.reset()
    return values


def inception_images(images_BCHW: Tensor) -> Tensor:
    """Convert images in [0, 1] to the input of torchmetrics, uint8 `[B, 3, H, W]`: pixels are clipped and rounded, and
    a grey channel is repeated. The library itself resizes the images to 299 pixels."""
    channels = images_BCHW.shape[1]
    if channels not in (1, 3):
        raise ValueError(f"Inception takes images of 1 or 3 channels, but got {channels}")
    return (images_BCHW.clamp(0, 1) * 255).round().byte().expand(-1, 3, -1, -1).contiguous()


def _load_metric(weights: Path) -> Any:
    """torchmetrics' metric, which keeps the statistics of the real images when it is reset."""
    check_fid(weights)
    from torchmetrics.image.fid import FrechetInceptionDistance

    try:
        return FrechetInceptionDistance(reset_real_features=False, feature_extractor_weights_path=str(weights))
    except Exception as error:  # unpickling may raise anything
        reason = textwrap.shorten(str(error), REASON_LENGTH, placeholder="...")
        raise ValueError(f"{weights} does not hold the Inception weights of torch-fidelity: {reason}") from error
