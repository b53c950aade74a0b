"""What a method promises. Methods, tasks and learners import all of it from here.

`method` is what all methods share, `images` and `pairs` what those of one task add.
"""

from trainables.contract.images import ImageMethod, NetworkBuilder
from trainables.contract.method import Batch, Capability, Losses, Method, Noise, Noises, Shapes
from trainables.contract.pairs import ConditionalDensity, PairsMethod, PairStatistics

__all__ = [
    "Batch",
    "Capability",
    "ConditionalDensity",
    "ImageMethod",
    "Losses",
    "Method",
    "NetworkBuilder",
    "Noise",
    "Noises",
    "PairStatistics",
    "PairsMethod",
    "Shapes",
]
