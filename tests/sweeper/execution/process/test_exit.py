import subprocess
import sys

CODE = """
import atexit, sys, threading, time
from sweeper.execution.startup import end_process
class Slow:
    def __del__(self): print("taken apart")
slow = Slow()
def late(): time.sleep(0.1); print("thread")
atexit.register(lambda: print("handler"))
threading.Thread(target=late).start()
print("work", end=" ")
end_process(3)
"""


def test_threads_handlers_and_output_are_waited_for_but_objects_are_not() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "work thread\nhandler\n", "")
