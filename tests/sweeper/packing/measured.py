"""Groups of trials, with made-up measurements."""

import math
from dataclasses import replace

from sweeper.packing.workloads import Workload
from sweeper.plan.cohorts import Group, Trial
from trainables.training.measurement import Measurement

MIB = 2**20
PLENTY = 2**40


def measurement(width: int, seconds: float, bytes: int = MIB, held: int = 0) -> Measurement:
    return Measurement(width, seconds, bytes, held)


STACKING_PAYS = [measurement(w, 1e-3 / math.sqrt(w)) for w in (1, 2, 4, 8, 16, 32)]
STACKING_COSTS = [measurement(w, 1e-3 * w) for w in (1, 2, 4, 8, 16, 32)]
FLAT = [measurement(w, 1e-3) for w in (1, 2, 4, 8, 16, 32)]
EACH_100_MIB = [replace(stack, bytes=stack.width * 100 * MIB) for stack in STACKING_PAYS]


def members(*lengths: int, **config: int) -> Group:
    """Return a group with one stream of each length."""
    return [[Trial(f"{stream}.{i}", config) for i in range(length)] for stream, length in enumerate(lengths)]


FOUR_OF_EIGHT = members(8, 8, 8, 8)
LONG = Workload(FOUR_OF_EIGHT, [measurement(1, 1e-3, 100 * MIB)], 100_000)
"""A workload of a hundred seconds per member."""
