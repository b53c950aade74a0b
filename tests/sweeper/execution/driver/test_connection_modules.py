"""Workers find the user's modules: in the folders of this machine, or in what a cluster elsewhere is sent."""

import importlib
from pathlib import Path

import pytest

from sweeper.execution import session
from sweeper.spec.user_code import search_folder
from tests.user_files import user_folder

__all__ = ["user_folder"]


def test_a_cluster_elsewhere_is_sent_the_users_modules(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = user_folder / "deep"
    folder.mkdir()
    for name in ("sent_by_deep", "sent_by_working_folder"):
        path = folder if name.endswith("deep") else user_folder
        (path / f"{name}.py").write_text("")
        search_folder(path)
        importlib.import_module(name)
    modules = [str(folder / "sent_by_deep.py"), str(user_folder / "sent_by_working_folder.py")]
    sent = session._init_arguments("head:6379", "")["runtime_env"]["py_modules"]
    assert sorted(sent[:2]) == modules and [Path(path).name for path in sent[2:]] == [
        *("sweeper", "trainables", "search_spaces"),
    ]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")  # in a job, whose working directory has the second module
    assert session._init_arguments("head:6379", "")["runtime_env"] == {"py_modules": modules[:1]}
    assert "runtime_env" not in session._init_arguments(None, "/scratch")
