"""What is typed becomes a request: its defaults, its values, and what is refused.

Hostile arguments on the command line end with exit status 2 and one line, without a traceback.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.commands.arguments import parse
from sweeper.commands.command_line import store_retries
from sweeper.commands.list import list_sweeps
from sweeper.definition import registry
from sweeper.errors import SpecError
from sweeper.option_values import LARGEST_INTEGER, amount, device_share, memory, whole, whole_or_auto
from sweeper.request import Request, options
from sweeper.storage.retry import LONG_RETRIES, RetryPolicy
from tests.cases import for_each
from tests.sweeper.commands.refusals import CommandLine, command_line_of


def test_a_name_alone_asks_for_the_defaults() -> None:
    request = parse(["anomaly_grid"])
    assert request == Request("anomaly_grid")
    assert (request.name, request.preset, request.store, request.data) == ("anomaly_grid", None, "results", "data")
    assert (request.cohort, request.stack, request.gpu_fraction, request.address) == (None, None, None, None)
    assert (request.retries, request.save_every) == (3, 30.0)
    assert not (request.fixed or request.axes or request.plan or request.json or request.fresh)


def test_arguments_are_taken_as_typed() -> None:
    text = "grid --set nu=inf --set terms=dir+rad --axis beta=0,0.5 --cohort 8 --stack 4 --gpu-fraction 0.25"
    request = parse([*text.split(), "--axis", " normal_class = 1 , 2", "--address", "auto", "--save-every", "0.5"])
    assert request.fixed == {"nu": "inf", "terms": "dir+rad"}
    assert request.axes == {"beta": ("0", "0.5"), "normal_class": ("1", "2")}
    assert (request.cohort, request.stack, request.gpu_fraction) == (8, 4, 0.25)
    assert (request.address, request.save_every) == ("auto", 0.5)


def test_help_shows_every_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        parse(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exited.value.code == 0
    for default in ("results", "data", "auto", "3", "30", "600", "the preset's", "all N"):
        assert f"default: {default})" in text, default
    assert "default: None" not in text and "default: False" not in text and "default: [])" not in text


def test_an_option_is_all_that_its_field_says() -> None:
    known = options()
    assert {option.flag for option in known.values()} == {f"--{name.replace('_', '-')}" for name in known}
    assert all(option.help for option in known.values())
    assert known["compile"].metavar == "auto|always|never" and known["compile"].default == "auto"
    assert known["save_every"].default == "30" and known["fresh"].switch and not known["gpu_memory"].default
    assert known["retries"].help == "how often a failed cohort is tried again"
    with pytest.raises(SpecError, match="no value of --mode 'up'; there are: max, min"):
        parse(["grid", "--mode", "up"])


def test_a_value_may_contain_an_equals_sign() -> None:
    assert parse(["grid", "--set", "terms=a=b"]).fixed == {"terms": "a=b"}


def test_auto_is_no_number() -> None:
    request = parse(["grid", "--cohort", "auto", "--gpu-fraction", "auto"])
    assert request.cohort is None and request.gpu_fraction is None


@for_each(
    ("arguments", "law"),
    [
        ([], "the name of a sweep is required"),
        (["grid", "more"], "unrecognized arguments: more"),
        (["grid", "--patience", "60"], "unrecognized arguments: --patience 60; --patience is now --step-timeout"),
        (["grid", "--probe"], "unrecognized arguments: --probe; --probe is now --measure"),
        (["grid", "--pre", "digits"], "unrecognized arguments: --pre"),
        (["grid", "--set", "nu"], "--set takes KEY=VALUE, but got 'nu'"),
        (["grid", "--set", "=3"], "--set takes KEY=VALUE, but got '=3'"),
        (["grid", "--set"], "expected one argument"),
        (["grid", "--set", "nu=1", "--set", "nu=2"], "--set must be given once per key, but got nu=1 and nu=2"),
        (["grid", "--axis", "nu=1", "--axis", "nu=2"], "--axis must be given once per key, but got nu=1 and nu=2"),
        (["grid", "--axis", "nu=1,,2"], "axis nu must have at least one value and no empty one"),
        (["grid", "--axis", "nu="], "axis nu must have at least one value and no empty one, but got 'nu='"),
        (["grid", "--cohort", "0"], "--cohort must be a whole number of at least 1, but got 0"),
        (["grid", "--cohort", "1.5"], "--cohort must be a whole number"),
        (["grid", "--retries=--1"], "--retries must be a whole number of at least 0, but got --1"),
        (["grid", "--stack", "4"], "--stack must not exceed --cohort, but got --stack 4 --cohort auto"),
        (["grid", "--stack", "4", "--cohort", "2"], "--stack must not exceed --cohort"),
        (["grid", "--stack", "0", "--cohort", "2"], "--stack must be a whole number of at least 1"),
        (["grid", "--gpu-fraction", "1.5"], "`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction 1.5"),
        (["grid", "--gpu-fraction", "nan"], "`0.0001 <= gpu-fraction <= 1` must hold"),
        (
            ["grid", "--gpu-memory", "8"],
            r"must be a size of at least 1MB with its unit \(MB, GB, MiB, GiB\)",
        ),
        (["grid", "--gpu-memory", "0GB"], "such as 8GB, but got 0GB"),
        (["grid", "--gpu-memory", "8gb", "--gpu-fraction", "0.5"], "once, but got --gpu-memory 8GB --gpu-fraction 0.5"),
        (["grid", "--save-every", "-1"], "`--save-every >= 0` must hold"),
        (["grid", "--json", "--describe", "vje"], "--json is for a run, --plan and --list"),
        (["grid", "--on-end", " "], "--on-end must name a command, but got ''"),
        (["grid", "--on-end", "mail 'me"], "--on-end must be a command and its arguments"),
        (["grid", "--measure"], "--measure requires --plan"),
        (["grid", "--plan", "--node-price", "cheap"], "--node-price must be a number, but got cheap"),
        (["grid", "--plan", "--node-price", "-1"], "`--node-price >= 0` must hold, but got -1"),
        (["grid", "--node-price", "H100=9,H100=8"], "--node-price must have one price per kind of GPU"),
        (["grid", "--node-price", "=9"], "--node-price takes P or KIND=P"),
        (["grid", "--node-price", "H100="], "--node-price must be a number, but got ''"),
        (["grid", "--hours", "0"], "`--hours > 0` must hold, but got 0"),
        (["grid", "--cost", "much", "--node-price", "1"], "--cost must be a number, but got much"),
        (["grid", "--cost", "20"], "--cost 20 needs the price of a node per hour; give --node-price P"),
        (["grid", "--store", ""], "--store must name a folder"),
        (["grid", "--data", " "], "--data must name a folder"),
    ],
)
def test_arguments_that_make_no_request_are_refused(arguments: list[str], law: str) -> None:
    with pytest.raises(SpecError, match=law) as refused:
        parse(arguments)
    assert "\n" not in str(refused.value)


def test_a_sweep_that_cannot_be_read_is_one_line_and_the_others_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = registry.find

    def find_unless_broken(name: str) -> object:
        if name == "broken":
            raise SpecError("sweep 'broken' has no SWEEP")
        return find(name)

    monkeypatch.setattr(registry, "names", lambda: ["broken", "anomaly_grid"])
    monkeypatch.setattr(registry, "find", find_unless_broken)
    list_sweeps()
    printed = capsys.readouterr()
    assert printed.err == "error: sweep 'broken' has no SWEEP\n"
    assert printed.out.startswith("anomaly_grid: ") and "digits (560 trials)" in printed.out


def test_the_list_counts_the_trials_of_every_preset_however_many_parts_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_sweeps()
    listed = capsys.readouterr().out
    for sweep in map(registry.find, registry.names()):
        counts = (f"{preset} ({sweep.trial_count(preset)} trials)" for preset in sweep.presets)
        assert f"{sweep.name}: {sweep.about}\n  presets: {', '.join(counts)}\n" in listed
    assert "memory_bank" in listed and "<" not in listed.replace("->", "")


@pytest.mark.parametrize(
    ("options", "folder"),
    [([], Path("images")), (["--plan"], None), (["--plan", "--measure"], Path("images"))],
)
def test_only_a_plan_that_measures_nothing_needs_no_data(options: list[str], folder: Path | None) -> None:
    assert parse(["anomaly_grid", "--data", "images", *options]).data_folder == folder


def test_numbers_within_their_range() -> None:
    assert whole("--n", "3", 3) == 3 and whole("--n", str(LARGEST_INTEGER), 0) == LARGEST_INTEGER
    assert whole_or_auto("--n", "auto") is None and whole_or_auto("--n", "8") == 8
    assert device_share("--s", "auto") is None and device_share("--s", "0.25") == 0.25
    assert memory("--m", "8GB") == memory("--m", "8000 mb") == 8 * 10**9 and memory("--m", "0.5GiB") == 2**29
    assert amount("--s", "0") == 0.0 and amount("--s", "1e9", positive=True) == 1e9


@for_each("text", ["2", "-1", "1.5", "x", "", "9" * 5000, str(LARGEST_INTEGER + 1)])
def test_a_whole_number_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--n must be "):
        whole("--n", text, 3)


@for_each("text", ["0", "-1", "nan", "inf", "2e9", "x"])
def test_an_amount_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--s"):
        amount("--s", text, positive=True)


@pytest.mark.parametrize("text", ["0", "0.00001", "1.5", "nan", "x"])
def test_a_fraction_of_a_gpu_outside_its_range_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="gpu-fraction"):
        device_share("--gpu-fraction", text)


def test_the_wait_for_a_store_is_a_minute_unless_the_environment_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPER_STORE_TIMEOUT", raising=False)
    assert store_retries() == LONG_RETRIES
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "7.5")
    assert store_retries() == RetryPolicy(7.5)
    monkeypatch.setenv("SWEEPER_PATIENCE", "7.5")
    with pytest.raises(SpecError, match="SWEEPER_PATIENCE is now SWEEPER_STORE_TIMEOUT"):
        store_retries()


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


@for_each(
    ("arguments", "law"),
    [
        (f"--cohort {'9' * 5000}", "--cohort must be at most 9223372036854775807, but got 9999999"),
        (f"--retries {2**63}", "--retries must be at most 9223372036854775807, but got 9223372036854775808"),
        (f"--search-seed {'9' * 5000}", "--search-seed must be at most 9223372036854775807, but got 999"),
        ("--step-timeout inf", "`--step-timeout <= 1e+09` must hold, but got inf"),
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
        ("--set method=\x1b[31m", "no method '\\x1b[31m'; --describe methods lists all"),
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


@for_each("option", ["--trials", "--wave", "--stack", "--address", "--warm-start", "--search-seed"])
def test_an_empty_value_of_an_option_is_refused(command_line: CommandLine, option: str) -> None:
    """An empty argument is what an unset shell variable leaves."""
    assert command_line.refuse(option, "").error.endswith("but got ''")


@pytest.mark.parametrize("seconds", ["nan", "-1", "inf", "soon", "9" * 400])
def test_an_invalid_patience(command_line: CommandLine, seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", seconds)
    law = "SWEEPER_STORE_TIMEOUT must be a number of seconds from 0 to 1e+09, but got SWEEPER_STORE_TIMEOUT="
    assert command_line.refuse("--set", "nu=3").error.startswith(law)


def test_an_error_is_one_line_whatever_the_arguments(command_line: CommandLine) -> None:
    error = command_line.refuse(name="a\nb\u202e\udcff" + "x" * 5000).error
    assert error.startswith("no sweep 'a\\nb\\u202e\\udcff") and "... (50" in error and error.isprintable()


@pytest.mark.parametrize("name", ["x" * 5000 + ".py", "/x" * 5000])
def test_a_path_that_is_too_long_does_not_exist(command_line: CommandLine, name: str) -> None:
    error = command_line.refuse(name=name).error
    assert "does not exist" in error and error.isprintable()


@for_each(
    ("make", "law"),
    [
        (Path.touch, "store {store}: cannot write '.write-check-.*': Not a directory: {store}"),
        (
            lambda path: path.symlink_to(path.name),
            "store {store} cannot be opened: '{store.parent}' is a link to 'loop', which does not exist",
        ),
    ],
)
def test_a_store_in_a_folder_that_cannot_be_read(
    command_line: CommandLine, make: Callable[[Path], None], law: str
) -> None:
    store = command_line.folder / "loop/store"
    store.parent.unlink(missing_ok=True)
    make(store.parent)
    assert re.fullmatch(law.format(store=store), command_line.refuse("--store", str(store)).error)
