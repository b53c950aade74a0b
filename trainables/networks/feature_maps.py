"""Feature maps of an encoder: the outputs of its layers that still have rows and columns.

Shapes: B images of C channels, H by W pixels.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from trainables.networks.pretrained import PretrainedEncoder

LEVELS = 2
"""Number of resolutions that `mid_level` chooses."""


def feature_maps(encoder: nn.Module, images_BCHW: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """The outputs of the layers with these names, `[B, channels, rows, columns]`, in the order of computation. Layers
    with another kind of output are left out."""
    maps: dict[str, Tensor] = {}

    def keep(name: str, layer: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            maps.pop(name, None)  # a layer that is called again comes later
            maps[name] = output

    layers = dict(_network(encoder).named_modules())
    hooks = [layers[name].register_forward_hook(partial(keep, name)) for name in names]
    try:
        encoder(images_BCHW)
    finally:
        for hook in hooks:
            hook.remove()
    return maps


@torch.no_grad()
def map_shapes(encoder: nn.Module, image_shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Name of each layer with a feature map -> the map's shape `(channels, rows, columns)`, in the order of
    computation. Layers of torchvision's encoders have torchvision's names."""
    training = encoder.training
    names = [name for name, _ in _network(encoder).named_modules() if name]
    maps = feature_maps(encoder.eval(), torch.zeros(1, *image_shape), names)
    encoder.train(training)
    return {name: tuple(map_1CHW.shape[1:]) for name, map_1CHW in maps.items()}


def mid_level(shapes: Mapping[str, tuple[int, ...]]) -> Sequence[str]:
    """Names of the layers with mid-level features, given the result of `map_shapes`: the last layers of the two
    resolutions before the coarsest, such as `layer2` and `layer3` of a ResNet. Of fewer resolutions, all but the
    coarsest, or the only one. Layers within a block do not count, unless no block ends at their resolution."""
    last_of: dict[tuple[int, int], str] = {}
    for name, (_, rows, columns) in shapes.items():
        known = last_of.get((rows, columns), name)
        if rows * columns > 1 and name.count(".") <= known.count("."):
            last_of[rows, columns] = name
    names = [last_of[size] for size in sorted(last_of, key=lambda size: -size[0] * size[1])]
    return names[-LEVELS - 1 : -1] or names


def _network(encoder: nn.Module) -> nn.Module:
    """The network whose layers are named."""
    return encoder.network if isinstance(encoder, PretrainedEncoder) else encoder
