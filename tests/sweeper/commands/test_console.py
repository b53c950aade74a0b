"""`sweeper COMMAND` begins and ends the command's module."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper import version
from sweeper.commands import console
from sweeper.commands.console import COMMANDS, Subcommand, module_of
from sweeper.version import code_version
from tests.cases import for_each

ROOT = Path(__file__).parents[3]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that prints how it was started."""
    text = "import gc\ndef main(arguments):\n    print(arguments, gc.isenabled())\n    return 7\n"
    (tmp_path / "started_by_console.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(console, "COMMANDS", {"begin": Subcommand("begins", "started_by_console")})
    monkeypatch.setattr(console, "exit_at_signals", lambda **_: None)  # of this process
    monkeypatch.setattr(console, "end_process", sys.exit)


@pytest.mark.usefixtures("module")
def test_a_command_is_its_module_with_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", "begin", "a", "--b"])
    with pytest.raises(SystemExit) as end:
        console.main()
    assert end.value.code == 7 and capsys.readouterr().out == "['a', '--b'] True\n"


@pytest.mark.usefixtures("module")
def test_an_unknown_command_is_refused_with_the_choices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", "begn"])
    with pytest.raises(SystemExit) as end:
        console.main()
    assert (
        end.value.code == 2
        and capsys.readouterr().err == "error: no command 'begn' (did you mean 'begin'?); there are: begin\n"
    )


@pytest.mark.slow
@for_each("command", ["sweeper plan x", "sweeper.run x --plan"])
def test_a_working_folder_that_was_removed_is_one_line(command: str, tmp_path: Path) -> None:
    (folder := tmp_path / "gone").mkdir()
    process = subprocess.run(
        f"rmdir {folder}; exec {sys.executable} -m {command}",
        shell=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
    )
    error = "error: the working folder no longer exists; change to one that does, with cd\n"
    assert (process.returncode, process.stdout, process.stderr) == (2, "", error)


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", *arguments])
    console.main()
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name:<10}  {command.about}\n" in shown and callable(module_of(name).main)
    assert "  run         run a sweep, or continue it\n" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_a_usage_line_names_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        module_of(name).main(["--help"])
    assert end.value.code == 0 and capsys.readouterr().out.startswith(f"usage: sweeper {name} ")


@pytest.mark.slow
def test_a_run_prints_the_version_as_a_module_too() -> None:
    shown = subprocess.run([sys.executable, "-m", "sweeper.run", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"sweeper {code_version()}\n", "")


def test_the_version_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sweeper", "--version"])
    console.main()
    assert capsys.readouterr().out == f"sweeper {code_version()}\n"


CALL = "import version; print(version.code_version())"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The module in a new repository, not committed yet."""
    shutil.copy(version.__file__, tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "first")
    return tmp_path


def said(folder: Path, **variables: str) -> str:
    environment = os.environ | variables
    run = subprocess.run([sys.executable, "-c", CALL], cwd=folder, env=environment, check=True, capture_output=True)
    return run.stdout.decode().strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_version_has_the_commit_and_says_whether_files_differ_from_it(copied: Path) -> None:
    git(copied, "add", "version.py")
    git(copied, "commit", "--quiet", "-m", "second")
    commit = git(copied, "rev-parse", "--short", "HEAD").strip()
    assert said(copied) == f"{version.__version__}+{commit}"
    with (copied / "version.py").open("a") as file:
        file.write("# changed\n")
    assert said(copied) == f"{version.__version__}+{commit}.dirty"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_installed_package_does_not_take_the_commit_of_the_project_around_it(copied: Path) -> None:
    assert said(copied) == version.__version__


def test_a_job_has_the_version_that_was_submitted(tmp_path: Path) -> None:
    shutil.copy(version.__file__, tmp_path)
    assert said(tmp_path, **{version.SUBMITTED: "0.2.0+abc1234"}) == "0.2.0+abc1234"
