"""Signals that stop a sweep in order."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from sweeper.execution import signals
from sweeper.execution.signals import AGAIN, ENDING_SECONDS, LAST_LINE, StopSignal


@pytest.mark.parametrize("number", signals.SIGNALS)
def test_a_signal_raises_and_is_remembered_if_the_exception_is_lost(number: signal.Signals) -> None:
    stopping, before = StopSignal(), signal.signal(number, signal.SIG_DFL)  # it may be ignored here, as under `nohup`
    try:
        stopping.check()
        with stopping.on_signals(), contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            signal.pause()  # never reached by a signal that raised
        assert signal.getsignal(number) == signal.SIG_DFL and stopping.asked
    finally:
        signal.signal(number, before)
    with pytest.raises(KeyboardInterrupt):
        stopping.check()


def test_a_hangup_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `nohup`."""
    stopping, before = StopSignal(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ours = {number: signal.getsignal(number) for number in signals.SIGNALS}
    try:
        with stopping.on_signals():
            signals.exit_at_signals()
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and not stopping.asked
    finally:
        for number, handler in {**ours, signal.SIGHUP: before}.items():
            signal.signal(number, handler)


PRINTS = """
import signal, sys, time
from sweeper.execution.signals import StopSignal, hangup_blocked
import subprocess
with StopSignal().on_signals():
    with hangup_blocked():
        child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"])
    try:
        print("begun", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("saved", flush=True)  # to a terminal that is gone
        open(sys.argv[1], "w").write(f"saved, {child.poll()}")
        child.kill()
"""


def test_a_closed_terminal_stops_in_order_and_ends_no_child(tmp_path: Path) -> None:
    terminal, own = os.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [sys.executable, "-c", PRINTS, str(tmp_path / "notified")]
    with subprocess.Popen(command, stdin=own, stdout=own, stderr=own, preexec_fn=take) as process:
        os.close(own)
        assert b"begun" in printed_until(terminal, b"begun")
        os.close(terminal)
        assert process.wait(60) == 0
    assert (tmp_path / "notified").read_text() == "saved, None"


def printed_until(terminal: int, text: bytes) -> bytes:
    """What is printed on a terminal until it has this text."""
    read = b""
    while text not in read:
        read += os.read(terminal, 1000)
    return read


def test_handlers_set_meanwhile_are_replaced_and_the_original_ones_restored() -> None:
    """As Ray does when it is started."""
    stopping = StopSignal()
    with stopping.on_signals():
        own = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with stopping.on_signals(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, own)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_later_signals_leave_the_orderly_end_alone_and_then_end_the_process(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    stopping = StopSignal(clock := Clock())
    with stopping.on_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        clock.now += ENDING_SECONDS - 0.1
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)  # raises nothing
        assert capfd.readouterr() == ("", AGAIN) and left == []
        clock.now += 0.1
        signal.raise_signal(signal.SIGTERM)
    assert capfd.readouterr() == ("", "interrupted; the same command continues\n") and left == [130]


def test_signals_that_were_handled_end_no_process_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if several arrive together, long after the first, or if another handler has been installed meanwhile."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(signals, "STUCK_SECONDS", 0.1)
    stopping = StopSignal(clock := Clock())
    with stopping.on_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        clock.now += 2 * ENDING_SECONDS
        time.sleep(0.5)
        monkeypatch.setattr(signals, "TOGETHER_SECONDS", 0.0)
        own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.5)
        signal.signal(signal.SIGTERM, own)
    assert left == []


@pytest.mark.slow
def test_a_sweep_handles_signals_from_its_first_to_its_last_line() -> None:
    """One that comes as the interpreter ends changes neither its last line nor its status."""
    code = (
        "import atexit, signal\n"
        "from sweeper.commands import run\n"
        "from sweeper.execution.startup import end_process\n"
        "run.parse_command = lambda _: signal.raise_signal(signal.SIGTERM)\n"
        "atexit.register(lambda: signal.raise_signal(signal.SIGTERM))\n"
        "end_process(run.main([]))\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 130 and completed.stdout == "", completed
    assert completed.stderr == LAST_LINE


def test_a_signal_while_modules_are_imported_ends_the_process_with_a_line() -> None:
    code = (
        "import signal, sys, types\n"
        "from sweeper.execution.signals import exit_at_signals\n"
        "exit_at_signals()\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (completed.returncode, completed.stderr) == (130, LAST_LINE)


STUCK = """
import ctypes, sys, threading
from sweeper.execution import signals
signals.STUCK_SECONDS = 0.2
library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
with signals.StopSignal().on_signals():
    library.pthread_mutex_lock(mutex)
    threading.Timer(1, print, ["stuck"], {"flush": True}).start()  # by then this thread waits in C
    library.pthread_mutex_lock(mutex)  # for ever, and no signal interrupts it
"""


def test_a_process_whose_main_thread_is_stuck_in_c_is_ended() -> None:
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, LAST_LINE)


CODE = """
import ctypes, os, signal, threading, time
from sweeper.execution.signals import kept_disposition
from sweeper.execution.signals import StopSignal

def foreign():
    with kept_disposition():
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # the system's default, past Python
        time.sleep({inside})
        if {inside}:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)

stopping = StopSignal(clock=lambda: 0.0)
stopping.asked = True  # a further signal is only noted
with stopping.on_signals():
    ours = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=foreign)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == ours
"""


def test_our_handler_is_restored_soon_and_at_the_end() -> None:
    """Another one would end the process without a word, or print where it was."""
    for inside in (0.5, 0):
        completed = subprocess.run([sys.executable, "-c", CODE.format(inside=inside)], capture_output=True, text=True)
        assert completed.returncode == 0 and "stopping" in completed.stderr, completed
