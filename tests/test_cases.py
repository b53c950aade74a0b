"""A law of many cases fails with each case that breaks it, and cases do not see each other."""

import os
from pathlib import Path

import pytest

from tests.cases import for_each


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    ran: list[tuple[int, str]] = []

    @for_each("number", [1, 2, 3])
    @for_each(("text", "length"), [("a", 1), ("bb", 2)])
    def law(number: int, text: str, length: int) -> None:
        ran.append((number, text))
        assert number != length, f"{number} is the length"

    with pytest.raises(AssertionError, match="1 is the length") as caught:
        law()
    assert ran == [(number, text) for number in (1, 2, 3) for text in ("a", "bb")]
    assert caught.value.__notes__ == ["fails with:\ntext='a', length=1", "fails with:\nnumber=1\nnumber=2"]


def test_a_law_needs_cases_and_takes_what_they_name() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        for_each("number", [])
    with pytest.raises(AssertionError, match="marks are of items"):
        for_each("number", [1, pytest.param(2)])
    with pytest.raises(AssertionError, match="does not take all of"):
        for_each("number", [1])(lambda text: None)


@for_each("number", range(2))
def test_each_case_has_patches_a_folder_and_output_of_its_own(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "SWEEPER_CASE" not in os.environ and not list(tmp_path.iterdir()) and capsys.readouterr().out == ""
    monkeypatch.setenv("SWEEPER_CASE", str(number))
    (tmp_path / "file").touch()
    print(number)
