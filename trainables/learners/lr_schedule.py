"""The learning rate schedule."""

from __future__ import annotations

import math


def cosine(step: int, steps: int, warmup: int = 0) -> float:
    """The learning rate at `step` of `steps`, as a share of its peak: linear from 0 over `warmup` steps, then
    half a cosine down to 0."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
