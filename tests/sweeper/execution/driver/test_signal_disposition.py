import subprocess
import sys


def test_our_handler_is_restored_before_ray_ends_its_processes() -> None:
    """Ray sets SIGTERM to the system's default first: another one would end the process without a word."""
    code = (
        "import ctypes, os, signal, sys, time, types\n"
        "from sweeper.execution.driver import ray_session\n"
        "from sweeper.execution.driver.stop_signal import StopSignal\n"
        "def shutdown():\n"
        "    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)\n"  # as Ray does, past Python
        "    time.sleep(0.5)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(0.1)\n"
        "sys.modules['ray'] = types.SimpleNamespace(shutdown=shutdown)\n"
        "stopping = StopSignal(clock=lambda: 0.0)\n"
        "stopping.asked = True\n"
        "with stopping.on_signals():\n"
        "    ours = signal.getsignal(signal.SIGTERM)\n"
        "    ray_session._shut_down()\n"
        "    assert signal.getsignal(signal.SIGTERM) == ours\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 0, completed
