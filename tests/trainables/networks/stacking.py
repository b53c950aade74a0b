"""What a step of training does to networks of one shape, stacked under vmap or one after the other.

Shapes: K members; inputs `[K, B, ...]`.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

Trace = dict[str, Tensor]
"""Outputs, gradients and buffers after a step by name, `[K, ...]` each."""


def traced_alone(networks: Sequence[nn.Module], inputs: Tensor) -> Trace:
    """The gradients are those of the mean square of the outputs; networks are in training mode."""
    traces = []
    for network, x in zip(copy.deepcopy(networks), inputs, strict=True):
        output = network.train()(x)
        output.square().mean().backward()
        gradients = {f"gradient {name}": parameter.grad for name, parameter in network.named_parameters()}
        traces.append({"output": output.detach(), **gradients, **dict(network.named_buffers())})
    return {name: torch.stack([trace[name] for trace in traces]) for name in traces[0]}


def traced_fused(networks: Sequence[nn.Module], inputs: Tensor) -> Trace:
    template = copy.deepcopy(networks[0]).train()
    parameters, buffers = stack_module_state(list(networks))

    def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = functional_call(template, (parameters, buffers), (x,))
        return output

    output = torch.vmap(call, randomness="error")(parameters, buffers, inputs)
    loss = sum(member.square().mean() for member in output)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    named = {f"gradient {name}": gradient for name, gradient in zip(parameters, gradients, strict=True)}
    return {"output": output.detach(), **named, **buffers}


def assert_stacked_equals_alone(networks: Sequence[nn.Module], inputs: Tensor) -> None:
    """In float64, where only a mistake is larger than 1e-9."""
    doubled = [network.double() for network in networks]
    alone, fused = traced_alone(doubled, inputs.double()), traced_fused(doubled, inputs.double())
    assert alone.keys() == fused.keys()
    for name, expected in alone.items():
        assert torch.allclose(fused[name], expected, rtol=1e-9, atol=1e-10), name
