"""Encoders of the user's own: modules that are called with the shape of an image, and by name with what else they take.

Shapes: B images of C channels, H by W pixels, D features.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from trainables.networks.heads import frozen_for_training
from trainables.own_code import KINDS, imported_own, reason

R = TypeVar("R")


def takes_features(name: str) -> bool:
    """Whether the encoder takes the size D of the representation as `features`, so that it can be chosen. Raises
    ValueError, with one line, for what is no encoder, and NotImportedError (see `own_code`)."""
    return "features" in _parameters(name)


def build_own_encoder(name: str, image_shape: tuple[int, int, int], *, width: int, features: int) -> nn.Module:
    """Build `name(image_shape, width=width, features=features)`, without the names that it does not take, initialised
    from torch's global generator. Raises ValueError, with one line, unless it has the size D of its output, `features`
    if it takes them and else its attribute `features`."""
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
    """Try an encoder that `build_own_encoder` built on so many random images. Raises ValueError, with one line, unless
    it returns as many finite vectors, is a function of its images and weights, and all that it has to train takes
    part."""
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
        raise ValueError(f"the encoder {name} must return features {shape} of {examples} images, but returns {got}")
    if not first.isfinite().all():
        raise ValueError(f"the encoder {name} must return finite features of random images, but does not")
    fault = gradient_fault(network, lambda: encode(network, images_BCHW).square().sum())
    if fault:
        raise ValueError(f"the encoder {name} {fault.law}, but {fault.got}")


class Fault(NamedTuple):
    """A law that a module of the user breaks, and how."""

    law: str
    got: str


def called_twice(
    module: nn.Module, call: Callable[[nn.Module, Any], Any], inputs: Any, draws: str
) -> tuple[Any, Fault | None]:
    """Return what `call` returns of a copy of a module and of inputs, a tree of tensors, and why the module cannot be
    trained: a call adds weights or changes the inputs, or a second copy returns something else. `draws` says what to do
    where it draws random numbers."""
    weights = dict(module.named_parameters())
    if lazy := next((key for key, weight in weights.items() if is_lazy(weight)), ""):
        return None, Fault("must have all of its weights when it is built", f"{lazy} is lazy, without a shape")
    copies, given = [copy.deepcopy(module) for _ in range(2)], tree_map(torch.clone, inputs)
    before = torch.get_rng_state()
    first = call(copies[0], given)
    drawn = not torch.equal(torch.get_rng_state(), before)
    if added := next((key for key, _ in copies[0].named_parameters() if key not in weights), ""):
        return first, Fault("must have all of its weights when it is built", f"{added} is added by its first call")
    if not all(map(torch.equal, tree_leaves(given), tree_leaves(inputs))):
        return first, Fault("must leave its inputs as they are", "an operation changes them in place")
    second = call(copies[1], inputs)
    if all(map(_equal, tree_leaves(first), tree_leaves(second))):
        return first, None
    law = f"must draw no random numbers ({draws})" if drawn else "must return the same for the same inputs and weights"
    return first, Fault(law, "two calls with the same inputs differ")


def gradient_fault(module: nn.Module, call: Callable[[], Tensor]) -> Fault | None:
    """Return why the weights of a module in training mode cannot be trained by the gradients of what `call` returns: it
    freezes or unfreezes some, or leaves some out."""
    weights, trained = dict(module.named_parameters()), _trained(module)
    total = call()
    if changed := trained ^ _trained(module):
        law = "must leave `requires_grad` of all weights as it is (freeze them in __init__ or train)"
        return Fault(law, f"that of {min(changed)} changes")
    gradients: Sequence[Tensor | None] = [None] * len(weights)
    if total.requires_grad:
        gradients = torch.autograd.grad(total, [*weights.values()], allow_unused=True)
    if unused := [key for key, gradient in zip(weights, gradients, strict=True) if gradient is None]:
        law = "must use all parameters (averaged weights and the like are buffers)"
        return Fault(law, f"{', '.join(unused[:3])} without a gradient")
    return None


def _trained(module: nn.Module) -> set[str]:
    """Names of the weights that require gradients."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name for name, tensor in tensors if tensor.is_leaf and tensor.requires_grad}


def _equal(first: object, second: object) -> bool:
    """Whether two leaves of what a module returns are equal, NaN to itself too."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)
    return type(first) is type(second)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the encoder's class. Raises ValueError for what is none."""
    cls = imported_own(KINDS["encoder"], name)
    if not (inspect.isclass(cls) and issubclass(cls, nn.Module)):
        raise ValueError(f"the encoder {name} must be a subclass of torch.nn.Module, but is {cls!r:.60}")
    return inspect.signature(cls).parameters


def _tried(name: str, what: str, call: Callable[[], R]) -> R:
    """Call the user's code. Raises ValueError, with the line of the user's file, if it raises an exception."""
    try:
        return call()
    except Exception as error:
        raise ValueError(f"the encoder {name} fails at {what}: {reason(error, name.partition(':')[0])}") from error
