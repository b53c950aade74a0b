"""Helpers to run the command line with wrong requests, in this process."""

import sys
from pathlib import Path
from typing import NamedTuple, Never

import pytest

from sweeper.commands import run, sweep_run
from sweeper.execution import session as cluster


class Refused(NamedTuple):
    error: str
    """The error's only line, without `error: `."""
    out: str


class CommandLine:
    """Command line that runs in this process, with its own store."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.store, self._capsys = folder, folder / "store", capsys

    def refuse(self, *arguments: str, name: str = "anomaly_grid", preset: str = "digits") -> Refused:
        """Run a request, and assert that it ends with status 2, prints one line, and changes no file."""
        files_before = snapshot(self.folder)
        status = run.main([name, "--preset", preset, "--store", str(self.store), *arguments])
        out, err = self._capsys.readouterr()
        assert status == 2 and err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err, err
        assert snapshot(self.folder) == files_before
        assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
        return Refused(err.removeprefix("error: ").strip(), out)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Path -> content of every file except lock files."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def command_line_of(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Create a `CommandLine` on which starting Ray fails the test."""

    def start(*_: object, **__: object) -> Never:
        raise AssertionError("Ray must not be started for a request that is wrong")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sweep_run, "connected", start)
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.0)
    return CommandLine(folder, capsys)
