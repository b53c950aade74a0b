"""What a run takes from its machine."""

import getpass
import pickle
import threading

import pytest

from sweeper.runtime import REAL, user_name


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


def test_the_user_is_the_account_unless_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    assert user_name() == "root"
    monkeypatch.setenv("SWEEPER_USER", "ada")
    assert user_name() == "ada"


def test_an_account_without_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", unknown)
    monkeypatch.delenv("SWEEPER_USER", raising=False)
    assert user_name() is None
