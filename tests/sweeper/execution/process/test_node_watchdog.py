"""A driver whose node has died raises NodeLost, or exits."""

import contextlib
import subprocess
import sys
import threading
import time

import pytest

from sweeper.errors import NodeLost
from sweeper.execution.signals import StopSignal
from sweeper.execution.watchdog import NodeWatchdog


def test_a_node_that_dies_ends_the_wait_for_it() -> None:
    answers = iter([None, None])
    watchdog = NodeWatchdog(lambda: next(answers, "Ray's head has died"), interval=0.05)
    with pytest.raises(NodeLost, match=r"^Ray's head has died$"), StopSignal().on_signals(), watchdog:
        time.sleep(300)


def test_a_block_that_ends_in_time_or_by_ctrl_c_is_not_disturbed() -> None:
    checks = threading.Semaphore(0)
    with NodeWatchdog(checks.release, interval=0.01):
        assert all(checks.acquire(timeout=60) for _ in range(3))
    with pytest.raises(KeyboardInterrupt), NodeWatchdog(lambda: None, interval=0.01):
        raise KeyboardInterrupt


def test_a_node_that_is_shut_down_on_purpose_ends_nothing() -> None:
    """Even if the node is being checked when the shutdown begins."""
    check_started, node_ended = threading.Event(), threading.Event()

    def died() -> str | None:
        check_started.set()
        return "gone" if node_ended.wait(60) else None

    with StopSignal().on_signals(), NodeWatchdog(died, interval=0.01) as watchdog:
        with contextlib.closing(watchdog):
            assert check_started.wait(60)
        node_ended.set()
        time.sleep(0.2)


def test_a_process_that_does_not_react_is_ended() -> None:
    code = (
        "import signal, time\n"
        "from sweeper.execution.watchdog import NodeWatchdog\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "def before_exit():\n"
        "    print('what there is')\n"
        "    time.sleep(300)\n"
        "with NodeWatchdog(lambda: 'the node has died', before_exit, interval=0.05, grace=0.1):\n"
        "    time.sleep(300)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert completed.returncode == 1 and completed.stdout == "what there is\n"
    assert completed.stderr == "error: the node has died; the same command continues\n", completed
