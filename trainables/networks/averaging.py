"""Moving averages of networks: the key encoder of MoCo, the target network of BYOL."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Averaged(nn.Module):
    """A copy of a network whose weights are buffers: no optimiser sees them, they follow the original by `follow`.

    The statistics of its BatchNorms are its own. As all is in buffers, members of a stack have theirs each.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        for module in self.network.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())

    @torch.no_grad()
    def follow(self, network: nn.Module, keep: Tensor) -> None:
        """Each weight becomes `keep` of itself and `1 - keep` of that of the `network` it is a copy of, in place."""
        own = dict(self.network.named_buffers())
        for name, weight in network.named_parameters():
            own[name].mul_(keep).add_((1 - keep) * weight)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> Tensor:
        """As the network's, without gradients."""
        out: Tensor = self.network(*inputs)
        return out
