"""Groups of trials and what might have been measured of them."""

from __future__ import annotations

import math
from typing import NamedTuple

from sweeper.packing.workloads import Workload
from sweeper.plan.cohorts import Group
from sweeper.plan.trials import Trial

MIB = 2**20
PLENTY = 2**40


class Measured(NamedTuple):
    width: int
    seconds: float
    bytes: int = MIB
    held: int = 0


STACKING_PAYS = [Measured(w, 1e-3 / math.sqrt(w)) for w in (1, 2, 4, 8, 16, 32)]
STACKING_COSTS = [Measured(w, 1e-3 * w) for w in (1, 2, 4, 8, 16, 32)]
FLAT = [Measured(w, 1e-3) for w in (1, 2, 4, 8, 16, 32)]
EACH_100_MIB = [one._replace(bytes=one.width * 100 * MIB) for one in STACKING_PAYS]


def members(*lengths: int, **config: int) -> Group:
    """Streams of so many trials."""
    return [[Trial(f"{stream}.{i}", config) for i in range(length)] for stream, length in enumerate(lengths)]


FOUR_OF_EIGHT = members(8, 8, 8, 8)
LONG = Workload(FOUR_OF_EIGHT, [Measured(1, 1e-3, 100 * MIB)], 100_000)
"""A hundred seconds a member."""
