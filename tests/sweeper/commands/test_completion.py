"""The completion script: what a shell completes with it, without Python."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from sweeper.commands import completion
from sweeper.commands.console import COMMANDS
from sweeper.definition import registry
from sweeper.request import options

WORDS = {
    "commands": ["run", "plan", "completion"],
    "sweeps": ["grid", "grid_long", "other"],
    "presets:grid": ["paper", "digits"],
    "options:run": ["--keep", "--preset", "--set"],
    "options:completion": ["bash", "zsh"],
    "values:--keep": ["best", "all", "none"],
    "keys": ["lr", "method", "normalise"],
    "key:method": ["vje", "vicreg", "byol"],
}
BREAKS = " \t\n\"'><=;|&(:"
"""What bash takes for the end of a word by default."""


@pytest.fixture(scope="module")
def tables() -> dict[str, list[str]]:
    return completion.tables()


def completed(line: str, folder: Path, words: dict[str, list[str]], shell: str = "bash") -> set[str]:
    """What the shell's function completes at the end of a line; PATH is empty, so that it starts no program."""
    text = completion.script(shell, words)
    ready = "" if shell == "bash" else "autoload() { :; }; bashcompinit() { :; }; complete() { :; }\n"
    breaks = f"COMP_WORDBREAKS={shlex.quote(BREAKS)}\n" if shell == "bash" else ""
    call = f'COMP_LINE={shlex.quote(line)}\nCOMP_POINT={len(line)}\n_sweeper\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    executable = shutil.which(shell)
    assert executable
    flags = ["--norc"] if shell == "bash" else ["-f"]
    run = subprocess.run(
        [executable, *flags],
        input=ready + text + breaks + call,
        capture_output=True,
        text=True,
        env={"PATH": str(folder)},
    )
    assert not run.stderr, run.stderr
    return {*run.stdout.split("\n")} - {""}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sweeper ", {"run", "plan", "completion"}),
        ("sweeper pl", {"plan"}),
        ("sweeper run gr", {"grid", "grid_long"}),
        ("sweeper run my_own.py", set()),
        ("sweeper run grid --preset ", {"paper", "digits"}),
        ("sweeper run other --preset ", set()),
        ("sweeper run grid --", {"--keep", "--preset", "--set"}),
        ("sweeper run grid --keep n", {"none"}),
        ("sweeper run grid --set ", {"lr=", "method=", "normalise="}),
        ("sweeper run grid --axis method=v", {"vje", "vicreg"}),
        ("sweeper run grid --axis method=vje,b", {"vje,byol"}),
        ("sweeper run grid --set lr=0", set()),
        ("sweeper completion z", {"zsh"}),
    ],
)
def test_a_line_is_completed(line: str, expected: set[str], tmp_path: Path) -> None:
    assert completed(line, tmp_path, WORDS) == expected
    if shutil.which("zsh"):  # there a word does not end at an equals sign
        key = "method=" if "method=" in line else ""
        assert completed(line, tmp_path, WORDS, "zsh") == {f"{key}{word}" for word in expected}


def test_the_script_has_what_the_command_line_takes(tables: dict[str, list[str]]) -> None:
    assert tables["commands"] == list(COMMANDS) and tables["sweeps"] == registry.names()
    assert tables["presets:anomaly_grid"] == list(registry.find("anomaly_grid").presets)
    own = {option.flag for option in options().values()}
    assert own <= {*tables["options:run"]} & {*tables["options:submit"]}
    assert {"--slurm", "--stop"} <= {*tables["options:submit"]} and {"--port"} <= {*tables["options:view"]}
    assert all(f"options:{command}" in tables for command in COMMANDS)
    assert tables["values:--keep"][:3] == ["best", "all", "none"] and "values:--preset" not in tables
    assert {"cmaes", "tpe"} <= {*tables["values:--sampler"]} and "shuffled" in tables["values:--order"]
    assert {"vje", "byol"} <= {*tables["key:method"]} and {"digits", "cifar10"} <= {*tables["key:dataset"]}
    assert tables["key:normalise"] == ["true", "false"] and "lr" in tables["keys"] and "key:lr" not in tables
    assert all(word.isprintable() and not set(word) & set(" '\"$`\\") for words in tables.values() for word in words)


def test_another_shell_is_refused_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main(["fish"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "'bash', 'zsh'" in line
