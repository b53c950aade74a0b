"""`sweeper COMMAND` runs the command's module as `python -m` does."""

import importlib.util
import sys
from pathlib import Path

import pytest

from sweeper import console
from sweeper.console import COMMANDS, Command


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that prints how it was started."""
    (tmp_path / "started_by_console.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    commands = {"begin": Command("started_by_console", "begins", ("--first",))}
    monkeypatch.setattr(console, "COMMANDS", commands)


@pytest.mark.usefixtures("module")
def test_a_command_is_its_module_with_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", "begin", "a", "--b"])
    with pytest.raises(SystemExit) as end:
        console.main()
    assert end.value.code == 7 and capsys.readouterr().out == "__main__ ['--first', 'a', '--b']\n"


@pytest.mark.usefixtures("module")
def test_an_unknown_command_is_refused_with_the_choices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", "stop"])
    with pytest.raises(SystemExit) as end:
        console.main()
    assert end.value.code == 2 and capsys.readouterr().err == "error: no command 'stop'; there are: begin\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", *arguments])
    console.main()
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name:<8}  {command.about}\n" in shown and importlib.util.find_spec(command.module)
    assert "  run       run a sweep, or continue it\n" in shown
