"""Moving averages of networks: the key encoder of MoCo, the target network of BYOL."""

import copy

import torch
from torch import Tensor, nn


class MovingAverage(nn.Module):
    """A copy of a network whose weights are buffers: no optimiser changes them, only `update` does. The statistics of
    its BatchNorms are its own. Since everything is a buffer, each member of a stack has its own copy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = copy.deepcopy(network)
        for module in self.network.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                delattr(module, name)
                module.register_buffer(name, parameter.detach().clone())

    @torch.no_grad()
    def update(self, network: nn.Module, decay: Tensor) -> None:
        """Update each weight in place: `decay * weight + (1 - decay) * original`, with the weight of `network`."""
        own = dict(self.network.named_buffers())
        for name, weight in network.named_parameters():
            own[name].mul_(decay).add_((1 - decay) * weight)

    @torch.no_grad()
    def forward(self, *inputs: Tensor) -> Tensor:
        """Like that of the network, without gradients."""
        return self.network(*inputs)
