import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeper.storage.files import Files, read_record
from trainables.json_input import PositiveCount


@dataclass(frozen=True)
class Counted:
    count: PositiveCount


def test_a_damaged_file_counts_as_absent_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = Files(tmp_path)
    files.write("sound.json", b'{"count": 3}')
    files.write("damaged.json", b'{"count": ')
    files.write("invalid.json", b'{"count": -3}')
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    names = ("sound", "damaged", "invalid", "folder", "pipe", "missing")
    assert [read_record(files, f"{name}.json", Counted) for name in names] == [Counted(3), *[None] * 5]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("'")[1] for line in lines] == [f"{name}.json" for name in names[1:-1]]
    assert "count must be at least 1" in lines[1] and "a folder" in lines[2] and "a named pipe" in lines[3]


def test_only_files_and_folders_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "b.json").mkdir()
    os.mkfifo(tmp_path / "c.json")
    assert Files(tmp_path).list() == ["a.json", "b.json"] and Files(tmp_path).list_files("", ".json") == ["a.json"]
    assert [name in capsys.readouterr().err for name in ("b.json' must be a file",)] == [True]
