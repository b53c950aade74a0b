"""A driver whose node has died raises NodeLost, or exits."""

import contextlib
import subprocess
import sys
import threading
import time

import pytest

from sweeper.errors import NodeLost
from sweeper.execution.driver.node_watchdog import NodeWatchdog
from sweeper.execution.driver.stop_signal import StopSignal


def test_a_node_that_dies_ends_what_waits_for_it() -> None:
    answers = iter([None, None])
    watchdog = NodeWatchdog(lambda: next(answers, "Ray's head has died"), interval=0.05)
    with pytest.raises(NodeLost, match=r"^Ray's head has died$"), StopSignal().on_signals(), watchdog:
        time.sleep(300)


def test_what_ends_in_time_or_by_ctrl_c_is_let_alone() -> None:
    looked = threading.Semaphore(0)
    with NodeWatchdog(looked.release, interval=0.01):
        assert all(looked.acquire(timeout=60) for _ in range(3))
    with pytest.raises(KeyboardInterrupt), NodeWatchdog(lambda: None, interval=0.01):
        raise KeyboardInterrupt


def test_a_node_that_is_shut_down_on_purpose_ends_nothing() -> None:
    """Even if the node is being checked when the shutdown begins."""
    looking, gone = threading.Event(), threading.Event()

    def died() -> str | None:
        looking.set()
        return "gone" if gone.wait(60) else None

    with StopSignal().on_signals(), NodeWatchdog(died, interval=0.01) as watchdog:
        with contextlib.closing(watchdog):
            assert looking.wait(60)
        gone.set()
        time.sleep(0.2)


def test_a_process_that_does_not_end_even_then_is_ended() -> None:
    code = (
        "import signal, time\n"
        "from sweeper.execution.driver.node_watchdog import NodeWatchdog\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "def before_exit():\n"
        "    print('what there is')\n"
        "    time.sleep(300)\n"
        "with NodeWatchdog(lambda: 'the node has died', before_exit, interval=0.05, grace=0.1):\n"
        "    time.sleep(300)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and done.stdout == "what there is\n"
    assert done.stderr == "error: the node has died; the same command continues\n", done
