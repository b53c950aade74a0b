"""torchvision's encoders with weights from the user's file. Nothing is downloaded.

Shapes: B images of C channels, H by W pixels in [0, 1]; D features.
"""

import functools
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.networks.heads import frozen_as_buffers

PREFIX = "torchvision:"
TORCHVISION = tuple(
    f"{PREFIX}{name}"
    for name in (
        "convnext_tiny",
        "convnext_small",
        "convnext_base",
        "efficientnet_b0",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "mobilenet_v3_large",
        "resnet18",
        "resnet34",
        "resnet50",
        "resnet101",
        "resnet152",
        "resnext50_32x4d",
        "vit_b_16",
        "vit_b_32",
        "wide_resnet50_2",
        "wide_resnet101_2",
    )
)
"""Encoders whose weights come from a file."""
TRANSFORMER = "vit_"
"""Prefix of the names of vision transformers, which end with the side of their patches. Weights fit one image size."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation per channel of the training images of torchvision's networks."""


class PretrainedEncoder(nn.Module):
    """A torchvision network up to its pooled features, for images in [0, 1] of any size. A grey channel is repeated,
    and images are resized to squares of `side` pixels and normalised as in torchvision.

    A `frozen` network consists of buffers and always keeps the statistics of its file, so nothing of it is trained;
    `frozen_parts` does the same for parts of the network. In training, dropout and stochastic depth are off, because
    methods must draw no random numbers themselves."""

    mean_C11: Tensor
    std_C11: Tensor

    def __init__(self, name: str, side: int, frozen: bool, frozen_parts: Sequence[str] = ()) -> None:
        """Raises ValueError for a part that is not in the network."""
        super().__init__()
        import torchvision  # imported here because it takes seconds

        known = name.removeprefix(PREFIX)
        sized = {"image_size": side} if known.startswith(TRANSFORMER) else {}
        network: Any = torchvision.models.get_model(known, weights=None, num_classes=1, **sized)  # the head is dropped
        self.head = [part for part, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
        """Name of the last layer, which the encoder lacks but a file may contain."""
        self.features = network.get_submodule(self.head).in_features
        network.set_submodule(self.head, nn.Identity())
        for module in network.modules():
            if isinstance(module, nn.Dropout | torchvision.ops.StochasticDepth):
                module.p = 0.0
        self.name, self.side = name, side
        self._kept = self._parts(network, [""] if frozen else frozen_parts)
        """Names of the frozen parts; an empty name stands for the whole network."""
        self.register_buffer("mean_C11", torch.tensor(MEAN)[:, None, None])
        self.register_buffer("std_C11", torch.tensor(STD)[:, None, None])
        self.network: nn.Module = network
        for part in self._kept:
            frozen_as_buffers(self.network.get_submodule(part).requires_grad_(False).eval())

    def _parts(self, network: nn.Module, names: Sequence[str]) -> Sequence[str]:
        """Return the names after checking that they are parts of the network."""
        own = dict(network.named_modules())
        for name in names:
            if name not in own:
                parts = ", ".join(part for part, _ in network.named_children() if part != self.head)
                raise ValueError(
                    f"frozen_parts must be parts of {self.name}, but it has no {name!r}; there are: {parts}"
                )
        return names

    def load(self, weights: Mapping[str, Tensor], source: str) -> None:
        """Load a state dict without its last layer. Raises ValueError, with the `source` in the message, if it does not
        fit this network."""
        given = {key: value for key, value in weights.items() if not key.startswith(f"{self.head}.")}
        own = {**dict(self.network.named_parameters()), **dict(self.network.named_buffers())}
        law = f"{source} must be a state dict of {self.name}, but"
        for key in given:
            if key not in own:
                raise ValueError(f"{law} that has no {key!r:.80}")
        for key, tensor in own.items():
            if key not in given and not key.endswith("num_batches_tracked"):
                raise ValueError(f"{law} it has no {key}")
            if key in given and given[key].shape != tensor.shape:
                raise ValueError(f"{law} {key} has the shape {[*given[key].shape]} instead of {[*tensor.shape]}")
        with torch.no_grad():
            for key, value in given.items():
                own[key].copy_(value)

    def train(self, mode: bool = True) -> "PretrainedEncoder":
        super().train(mode)
        for part in self._kept:
            self.network.get_submodule(part).eval()
        return self

    def forward(self, images_BCHW: Tensor) -> Tensor:
        sides, shrinks = (self.side, self.side), max(images_BCHW.shape[-2:]) > self.side
        if tuple(images_BCHW.shape[-2:]) != sides:
            images_BCHW = F.interpolate(images_BCHW, sides, mode="bilinear", antialias=shrinks)
        batch = images_BCHW.shape[0]
        normalised_BCHW = (images_BCHW.expand(batch, 3, *sides) - self.mean_C11) / self.std_C11
        features_BD: Tensor = self.network(normalised_BCHW)
        return features_BD


def check_side(name: str, side: int) -> None:
    """Raises ValueError if a vision transformer's patches do not fill images of this side."""
    patch = name.rpartition("_")[2]
    if name.startswith(f"{PREFIX}{TRANSFORMER}") and side % int(patch):
        raise ValueError(f"pretrained_size must be a multiple of {patch} for encoder={name}, but got {side}")


def file_digest(path: str) -> str:
    """Hash of a file's content. Raises ValueError, with one line, if it cannot be read."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # reading a named pipe would block
            raise ValueError(f"weights must be a file, but {path} is a folder, named pipe, device or socket")
        return _digest(path, found.st_mtime_ns, found.st_size)
    except OSError as error:
        raise ValueError(f"weights must be a readable file, but {path} is not: {error.strerror}") from None


@functools.lru_cache(maxsize=8)
def _digest(path: str, changed: int, size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


@functools.lru_cache(maxsize=1)
def read_weights(path: str, digest: str) -> Mapping[str, Tensor]:
    """The state dict in a PyTorch or safetensors file, read without executing code. Raises ValueError, with one line
    that names the file, if the file is missing, damaged, or does not match this `digest`."""
    found = file_digest(path)
    if digest and found != digest:
        raise ValueError(
            f"the weights in {path} must be the ones that the trials were planned with (weights_digest={digest}), but "
            f"have changed (weights_digest={found})"
        )
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            return load_file(path)
        weights: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # readers raise many types of exceptions for a damaged file
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"weights must be a PyTorch or safetensors state dict, but {path} is not: {reason:.200}"
        ) from None
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"weights must be a state dict (names to tensors), but {path} contains something else")
    return weights
