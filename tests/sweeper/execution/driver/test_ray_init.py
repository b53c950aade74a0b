"""Ray's start and end leave the handling of SIGTERM to this process."""

import signal
import sys

import pytest
import ray._private.utils

from sweeper.execution.driver.ray_init import _own_sigterm
from sweeper.execution.process.stop_signal import StopSignal


def test_a_sigterm_while_ray_starts_reaches_our_handler() -> None:
    """Ray's own ends the process with status 15 and without a word."""
    stopping, rays = StopSignal(), ray._private.utils.set_sigterm_handler
    with stopping.on_signals():
        ours = signal.getsignal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), _own_sigterm():
            ray._private.utils.set_sigterm_handler(lambda number, _: sys.exit(number))
            signal.raise_signal(signal.SIGTERM)
        assert stopping.asked and signal.getsignal(signal.SIGTERM) == ours
    assert ray._private.utils.set_sigterm_handler is rays
