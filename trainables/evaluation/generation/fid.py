"""Frechet inception distance, by torchmetrics and with Inception weights that the user provides.

Shapes: K members, N samples, M test images, B images of a batch, C channels (1 or 3), H rows, W columns.
"""

import importlib.util
import math
import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.evaluation.probes import all_finite

LIBRARIES = ("torchmetrics", "torch_fidelity")
"""What the extra `fid` installs."""
REASON_LENGTH = 200
"""Most characters of an error of these libraries that are passed on, in one line."""


def check_fid(weights: Path) -> None:
    """Raises ValueError unless torchmetrics and torch-fidelity are installed and `weights` is a file."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise ValueError(f"FID needs {names}, which the extra fid has: pip install 'torchmetrics[image]'")
    if not weights.is_file():
        raise ValueError(f"FID needs a file of Inception weights, but there is no file {weights}")


@torch.no_grad()
def fid(
    samples_KNCHW: Tensor, test_images_MCHW: Tensor, weights: Path, device: torch.device, batch_size: int = 64
) -> list[float]:
    """FID of each member's samples against the test images, from the 2048 pooled features of Inception-v3. Pixels are
    in [0, 1]. Lower is better; only values from equally many samples compare. NaN if a pixel is not finite.

    `weights` is torch-fidelity's file `weights-inception-2015-12-05-6726825d.pth`. It is unpickled, so it must come
    from a source that the user trusts. Raises ValueError if it cannot be used, as `check_fid` does, and for images with
    2 or more than 3 channels.
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
    """Convert images in [0, 1] to what torchmetrics takes, uint8 `[B, 3, H, W]`: pixels are clipped and rounded, and a
    grey channel is repeated. The library itself enlarges them to 299 pixels."""
    channels = images_BCHW.shape[1]
    if channels not in (1, 3):
        raise ValueError(f"Inception takes images of 1 or 3 channels, but got {channels}")
    return (images_BCHW.clamp(0, 1) * 255).round().byte().expand(-1, 3, -1, -1).contiguous()


def _load_metric(weights: Path) -> Any:
    """torchmetrics' metric. It keeps the statistics of the real images when it is reset."""
    check_fid(weights)
    from torchmetrics.image.fid import FrechetInceptionDistance

    try:
        return FrechetInceptionDistance(reset_real_features=False, feature_extractor_weights_path=str(weights))
    except Exception as error:  # unpickling may raise any
        reason = textwrap.shorten(str(error), REASON_LENGTH, placeholder="...")
        raise ValueError(f"{weights} does not hold the Inception weights of torch-fidelity: {reason}") from error
