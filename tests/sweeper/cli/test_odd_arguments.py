"""Hostile arguments on the command line end with exit status 2 and one line, without a traceback."""

from pathlib import Path

import pytest

from tests.sweeper.cli.refusals import CommandLine, command_line_of


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (f"--cohort {'9' * 5000}", "--cohort must be at most 9223372036854775807, but got 9999999"),
        (f"--retries {2**63}", "--retries must be at most 9223372036854775807, but got 9223372036854775808"),
        (f"--search-seed {'9' * 5000}", "--search-seed must be at most 9223372036854775807, but got 999"),
        ("--patience inf", "`--patience <= 1e+09` must hold, but got inf"),
        ("--save-every 1e300", "`--save-every <= 1e+09` must hold, but got 1e300"),
        (f"--set seed={10**26}", "`seed <= 9223372036854775807` must hold, but got seed=1000"),
        (f"--set seed={2**63}", "`seed <= 9223372036854775807` must hold, but got seed=9223372036854775808"),
        (f"--set normal_class={10**30}", "`normal_class <= 9223372036854775807` must hold, but got normal_class=1000"),
        (f"--set width={10**19}", "`width <= 9223372036854775807` must hold, but got width=1000"),
        (f"--set seed={'9' * 5000}", "seed must be a whole number, but got seed=999"),
        (f"nu_ablation --set held_out={'9' * 5000}", "held_out must be ascending class indices joined by +, but got "),
        ("--axis weight_decay=0,-0", "the values of axis weight_decay must differ, but "),
        ("--set lr=-0.0", "`lr > 0` must hold, but got lr=0.0"),
        ("--set lr=[1,2]", "lr must be a number, but got lr=[1,2]"),
        ("--set lr=\u202e1", "lr must be a number, but got lr=\\u202e1"),
        ("--set method=\x1b[31m", "no method '\\x1b[31m'; there are: "),
        (
            "vje_search --warm-start ../../x",
            "--warm-start must name a sweep, whose name must consist of letters, digits, ",
        ),
        (f"--address host:{'9' * 5000}", "no Ray cluster answers at host:999"),
    ],
)
def test_an_odd_argument(command_line: CommandLine, arguments: str, law: str) -> None:
    name, *options = (arguments if arguments[0] != "-" else f"anomaly_grid {arguments}").split(" ")
    assert command_line.refuse(*options, name=name).error.startswith(law)


@pytest.mark.parametrize("option", ["--trials", "--wave", "--stack", "--address", "--warm-start", "--search-seed"])
def test_an_empty_value_of_an_option_is_refused(command_line: CommandLine, option: str) -> None:
    """An empty argument is what an unset shell variable leaves."""
    assert command_line.refuse(option, "").error.endswith("but got ''")


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "soon", "9" * 400])
def test_an_invalid_patience(command_line: CommandLine, seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_PATIENCE", seconds)
    law = "SWEEPER_PATIENCE must be a number of seconds from 0 to 1e+09, but got SWEEPER_PATIENCE="
    assert command_line.refuse("--set", "nu=3").error.startswith(law)


def test_an_error_is_one_line_whatever_the_arguments(command_line: CommandLine) -> None:
    error = command_line.refuse(name="a\nb\u202e\udcff" + "x" * 5000).error
    assert error.startswith("no sweep 'a\\nb\\u202e\\udcff") and "... (50" in error and error.isprintable()


@pytest.mark.parametrize("name", ["x" * 5000 + ".py", "/x" * 5000])
def test_a_path_that_is_too_long_does_not_exist(command_line: CommandLine, name: str) -> None:
    error = command_line.refuse(name=name).error
    assert "does not exist" in error and error.isprintable()


@pytest.mark.parametrize("loop", [False, True])
def test_a_store_in_a_folder_that_cannot_be_read(command_line: CommandLine, loop: bool) -> None:
    (command_line.folder / "file").write_text("no folder")
    (command_line.folder / "loop").symlink_to("loop")
    store = command_line.folder / ("loop" if loop else "file") / "store"
    assert command_line.refuse("--store", str(store)).error.startswith(f"store {store}: cannot ")
