"""The reason why a cohort was lost, as far as the driver can know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.execution.executor import last_words
from sweeper.storage.io.files import Files
from trainables.contract import WHY


@pytest.mark.parametrize(("left_by", "heard"), [("now", "hung: at x.py:3 step"), ("before", None)])
def test_last_words_are_heard_once_and_only_those_of_this_run(left_by: str, heard: str | None, tmp_path: Path) -> None:
    (tmp_path / f"c.pt{WHY}").write_text(f"{left_by} hung: at x.py:3 step")

    def read() -> str | None:
        return last_words(Files(tmp_path), "{}.pt".format, "now", "c")

    assert [read(), read()] == [heard, None]
    assert not list(tmp_path.iterdir()), "a reason is read once"
