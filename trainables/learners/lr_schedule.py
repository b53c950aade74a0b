"""The learning rate's course over a run."""

from __future__ import annotations

import math


def cosine(step: int, steps: int, warmup: int = 0) -> float:
    """Share of the peak rate at `step` of `steps`: linear from 0 over `warmup` steps, then half a cosine down to 0."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
