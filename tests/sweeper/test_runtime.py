"""What a run takes from its machine."""

import pickle
import threading

from sweeper.runtime import REAL


def test_a_single_name_needs_no_thread() -> None:
    assert REAL.map(lambda name: threading.current_thread(), ["a"]) == [threading.current_thread()]
    assert threading.current_thread() not in REAL.map(lambda name: threading.current_thread(), ["a", "b"])


def test_a_copy_has_the_surroundings_of_its_own_process() -> None:
    assert pickle.loads(pickle.dumps(REAL)) is REAL


def test_what_is_begun_runs_beside_the_caller_and_can_be_awaited() -> None:
    may_end, ended = threading.Event(), list[str]()

    def act() -> None:
        may_end.wait()
        ended.append("ended")

    task = REAL.begin("beside", act)
    assert task.is_alive() and not ended
    may_end.set()
    task.join()
    assert ended == ["ended"] and not task.is_alive()
