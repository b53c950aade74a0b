"""MoCo v2: a view must identify its key among keys of earlier batches from a slowly moving encoder (arXiv 2003.04297).

Shapes: B images, D features, P dimensions of the projection, M keys in the queue.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.similarity import info_nce
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.networks.heads import MovingAverage
from trainables.validation import above, at_least, between, checked


@checked
class MoCoConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.2
    """Temperature."""
    ema: Annotated[float, between(0, 1)] = 0.99
    """Decay of the key encoder's moving average: the share of its value that a weight keeps per step."""
    queue: Annotated[int, at_least(1)] = 4096
    """Number M of keys in the queue, which come from the latest batches."""


class MoCo(ProjectedMethod):
    """Fusible: `tau`, `ema`. The queue length is not fusible, because it determines a tensor shape.

    Unlike in the paper, the defaults are for small images: an `ema` of 0.99 instead of 0.999, a queue of 4,096 keys
    instead of 65,536, and a hidden layer of 512 units instead of 2048. Queries come from the first view, keys from the
    second. Without BatchNorm shuffling, the key encoder sees the whole batch, as on one GPU.
    """

    Config = MoCoConfig
    fusible = frozenset({"tau", "ema"})
    projector_norm = None

    tau: Tensor
    ema: Tensor
    queue_MP: Tensor

    def __init__(self, config: MoCoConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.keys = MovingAverage(nn.Sequential(self.encoder, self.projector))
        self.register_buffer("queue_MP", F.normalize(torch.randn(config.queue, self.projection), dim=-1))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """InfoNCE of the queries against their own keys and the queue. The keys are then added to the queue."""
        query_images_BCHW, key_images_BCHW = batch["views"]
        query_BP = self.project(query_images_BCHW)
        key_BP = F.normalize(self.keys(key_images_BCHW).float(), dim=-1)
        loss = info_nce(query_BP, key_BP, self.queue_MP.clone(), self.tau).mean()
        self.queue_MP.copy_(torch.cat([key_BP, self.queue_MP])[: self.config.queue])
        return Losses(loss, {})

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.keys.update(nn.Sequential(self.encoder, self.projector), self.ema)
