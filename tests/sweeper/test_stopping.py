import contextlib
import os
import signal

import pytest

from sweeper.stopping import Stopping
from sweeper.tuning import Stopper, Watcher


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_and_is_remembered_where_the_exception_is_lost(number: signal.Signals) -> None:
    stopping, before = Stopping(), signal.getsignal(number)
    stopping.check()
    with stopping.on_signals(), contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)
        signal.pause()  # never reached by a signal that raised
    assert signal.getsignal(number) is before and stopping.asked
    with pytest.raises(KeyboardInterrupt):
        stopping.check()


def test_handlers_set_meanwhile_are_replaced_and_the_own_ones_come_back() -> None:
    """As Ray does when it is started."""
    stopping = Stopping()
    with stopping.on_signals():
        own = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with stopping.on_signals(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, own)


def test_tune_stops_when_asked_or_when_the_listener_failed() -> None:
    stopping = Stopping()
    watcher = Watcher(None, stopping)
    stopper = Stopper(watcher)
    assert not stopper.stop_all()
    stopping.asked = True
    assert stopper.stop_all()
    stopping.asked, watcher.error = False, ValueError()
    assert stopper.stop_all()
