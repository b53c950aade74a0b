"""The rules that the user's own methods and encoders must follow to be trainable, checked on a few inputs."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map


class Fault(NamedTuple):
    """A rule that a user's module breaks, and how it breaks it."""

    law: str
    got: str


def called_twice(
    module: nn.Module, call: Callable[[nn.Module, Any], Any], inputs: Any, draws: str
) -> tuple[Any, Fault | None]:
    """Return the result of `call` on copies of a module and of inputs (a tree of tensors), and the reason why the
    module cannot be trained: a call adds weights or changes the inputs, or a second copy returns another result.
    `draws` is the advice for modules that draw random numbers."""
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
    """Return the reason why gradients of the result of `call` cannot train a module's weights in training mode: the
    call freezes or unfreezes weights, or does not use some of them."""
    weights, trained = dict(module.named_parameters()), _trained(module)
    total = call()
    if changed := trained ^ _trained(module):
        law = "must leave `requires_grad` of all weights as it is (freeze them in __init__ or train)"
        return Fault(law, f"{min(changed)} changed")
    gradients: Sequence[Tensor | None] = [None] * len(weights)
    if total.requires_grad:
        gradients = torch.autograd.grad(total, [*weights.values()], allow_unused=True)
    if unused := [key for key, gradient in zip(weights, gradients, strict=True) if gradient is None]:
        law = "must use all parameters (register averaged weights as buffers)"
        return Fault(law, f"{', '.join(unused[:3])} without a gradient")
    return None


def _trained(module: nn.Module) -> set[str]:
    """Names of the weights that require gradients."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name for name, tensor in tensors if tensor.is_leaf and tensor.requires_grad}


def _equal(first: object, second: object) -> bool:
    """Whether two leaves of a module's result are equal; NaN equals NaN."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)
    return type(first) is type(second)
