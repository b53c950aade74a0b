import subprocess
import sys

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
