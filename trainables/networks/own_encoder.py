"""The user's own encoders: modules that are built from the shape of an image and, by keyword, the other arguments that
they accept.

Shapes: B images of C channels, H by W pixels, D features.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainables.networks.heads import frozen_for_training
from trainables.networks.module_checks import called_twice, gradient_fault
from trainables.own_code import KINDS, imported_own, reason

R = TypeVar("R")


def takes_features(name: str) -> bool:
    """Whether the encoder accepts the size D of the representation as `features`. Raises ValueError, with one line, if
    it is not an encoder, and NotImportedError (see `own_code`)."""
    return "features" in _parameters(name)


def build_own_encoder(name: str, image_shape: tuple[int, int, int], *, width: int, features: int) -> nn.Module:
    """Build `name(image_shape, width=width, features=features)`, without keywords that it does not accept, initialised
    from torch's global generator. Raises ValueError, with one line, unless the size D of its output is known: from the
    argument `features` if it is accepted, otherwise from the attribute `features`."""
    taken = _parameters(name)
    given = {key: value for key, value in (("width", width), ("features", features)) if key in taken}
    network = _tried(name, "building it", lambda: imported_own(KINDS["encoder"], name)(image_shape, **given))
    if "features" in given:
        network.features = features
    size = getattr(network, "features", None)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(
            f"the encoder {name} must take `features`, or have the size of its output as the attribute `features`, but "
            f"has {size!r:.60}"
        )
    assert isinstance(network, nn.Module)
    return network


def check_own_encoder(network: nn.Module, name: str, image_shape: tuple[int, int, int], examples: int) -> None:
    """Try an encoder from `build_own_encoder` on this many random images. Raises ValueError, with one line, unless it
    returns one finite vector per image, depends only on its images and weights, and uses all of its trainable
    weights."""
    images_BCHW = torch.rand((examples, *image_shape), generator=torch.Generator().manual_seed(0))
    shape = [examples, getattr(network, "features", None)]

    def encode(network: nn.Module, images_BCHW: Tensor) -> Any:
        return _tried(name, f"a batch of {examples} random images", lambda: network(images_BCHW))

    _tried(name, "train()", lambda: frozen_for_training(network))
    first, fault = called_twice(network, encode, images_BCHW, "set the probability of its dropout to 0")
    if fault:
        raise ValueError(f"the encoder {name} {fault.law}, but {fault.got}")
    if not isinstance(first, Tensor) or [*first.shape] != shape:
        got = f"a tensor {[*first.shape]}" if isinstance(first, Tensor) else f"a value of type {type(first).__name__}"
        raise ValueError(
            f"the encoder {name} must return features of shape {shape} for {examples} images, but returns {got}"
        )
    if not first.isfinite().all():
        raise ValueError(f"the encoder {name} must return finite features of random images, but does not")
    fault = gradient_fault(network, lambda: encode(network, images_BCHW).square().sum())
    if fault:
        raise ValueError(f"the encoder {name} {fault.law}, but {fault.got}")


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the encoder's class. Raises ValueError if it is not an encoder."""
    cls = imported_own(KINDS["encoder"], name)
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise ValueError(f"the encoder {name} must be a subclass of torch.nn.Module, but is {cls!r:.60}")
    return inspect.signature(cls).parameters


def _tried(name: str, what: str, call: Callable[[], R]) -> R:
    """Call the user's code. If it raises an exception, raise ValueError with the line in the user's file."""
    try:
        return call()
    except Exception as error:
        raise ValueError(f"the encoder {name} fails at {what}: {reason(error, name.partition(':')[0])}") from error
