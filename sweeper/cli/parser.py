"""What all command lines share: a parser whose errors are one line, exit statuses, and the values of options.

Each function that reads a value takes text as typed, or a value from Python.
"""

import argparse
import difflib
import importlib.util
import io
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from functools import partial, wraps
from importlib import metadata
from typing import Any, Never, Protocol, cast, get_args

from sweeper.errors import SpecError, SweeperError, check_working_folder, error_line
from sweeper.execution.signals import debugger_interrupts
from sweeper.masking import remember
from sweeper.names import LAW, is_name
from sweeper.printing import print
from sweeper.request import Keep, KeptTrials, NodePrice, Order, OrderKind, Request, Text, TrackRequest, WarmStartRequest
from sweeper.spec.space import Value
from sweeper.storage.retry import LONG_RETRIES, STORE_TIMEOUT, RetryPolicy
from sweeper.version import code_version
from trainables.synonyms import SYNONYMS, letters
from trainables.validation import unknown

DISTRIBUTION = "sweeper"
"""Name of this project among the installed packages."""
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""Tracker -> the package that it needs."""
COMMAND = "SWEEPER_COMMAND"
"""Environment variable by which `sweeper.console` says which command the user typed, such as `sweeper run`."""
EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
LARGEST_INTEGER = 2**63 - 1
"""Largest integer that an option takes, because the store's columns have 64 bits."""
LARGEST_AMOUNT = 1e9
"""Largest number of seconds or price that an option takes: 30 years, which the clocks of threads can still count."""


class Main(Protocol):
    """A command line: the arguments, by default those of this process, in, and the exit status out."""

    def __call__(self, arguments: Sequence[str] | None = None, /) -> int: ...


def command_line(last_line: str = "interrupted\n") -> Callable[[Callable[[Sequence[str]], int]], Main]:
    """Decorator of a command's `main`: errors for the user are one line on standard error and status 2, Ctrl-C and
    `q` in a debugger are the `last_line` and 130, and a reader of the output who has gone (`| head`) is 1."""

    def decorate(main: Callable[[Sequence[str]], int]) -> Main:
        @wraps(main)
        def run(arguments: Sequence[str] | None = None, /) -> int:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")  # a name may not fit a terminal's encoding
            try:
                check_working_folder()
                with debugger_interrupts():
                    return main(sys.argv[1:] if arguments is None else arguments)
            except SweeperError as error:
                print(error_line(error), file=sys.stderr)
                return EXIT_WRONG
            except KeyboardInterrupt:
                print(last_line, end="", file=sys.stderr)
                return EXIT_INTERRUPTED
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has no reader
                return EXIT_FAILED

        return run

    return decorate


class DefaultsFormatter(argparse.HelpFormatter):
    """Appends an option's default to its help text, unless the text already mentions a default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.help and action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in action.help:
            return f"{action.help} (default: %(default)s)"
        return action.help


class Parser(argparse.ArgumentParser):
    """Argument parser that raises SpecError with one line, where argparse prints its usage and exits."""

    def __init__(self, prog: str, **options: Any) -> None:
        """`prog` is the command, unless the user typed `sweeper COMMAND`."""
        super().__init__(prog=os.environ.pop(COMMAND, prog), **options, allow_abbrev=False)
        self.add_argument("--version", action=_PrintVersion, help="print the version of the code, and exit")

    def error(self, message: str) -> Never:
        law, _, words = message.partition(": ")
        meant = self._meant(*words.split(" ", 2)[:2]) if law == "unrecognized arguments" else ""
        raise SpecError(f"{message}; {meant or '--help shows all options'}")

    def _meant(self, word: str, value: str = "VALUE") -> str:
        """What words that are no argument were probably meant as; empty if that is not clear."""
        options = self._option_string_actions
        name, equals, text = word.partition("=")
        if not name.startswith("-"):
            of_words = "an option takes one word: --set KEY=VALUE, --axis KEY=V1,V2" if "--axis" in options else ""
            return _setting(name, text) if equals and of_words else of_words
        key = name.lstrip("-").replace("-", "_")
        meant = SYNONYMS.get(letters(name), key)
        if "--set" in options and meant in hyperparameters():
            return _setting(meant, text if equals else value)
        if " " in meant:
            return meant
        near = [meant] if meant in options else difflib.get_close_matches(name, options, n=1, cutoff=0.8)
        return f"did you mean {near[0]}?" if near else ""


def _setting(key: str, value: str) -> str:
    option = "--axis" if "," in value or ".." in value else "--set"
    return f"a hyperparameter is given by {option} {key}={value}"


def hyperparameters() -> Collection[str]:
    """All hyperparameters."""
    from trainables import config  # here because torch takes seconds to import
    from trainables.catalog import known_methods

    return {key for method in known_methods() for key in config.keys(method)}


class _PrintVersion(argparse.Action):
    """Prints the version, which is looked for only then, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> Never:
        print(f"sweeper {code_version()}")
        parser.exit()


def named(option: str, noun: str, text: object) -> str:
    """Refuse a blank name: it is an unset shell variable, not the working folder."""
    if not isinstance(text, str) or not text.strip():
        raise SpecError(f"{option} must name {noun}, but got {str(text).strip()!r}")
    return text


def data_folder(text: object) -> str:
    """The folder of the data sets. A `~` is the home folder, also where the shell leaves it: `--data=~/data`."""
    return os.path.expanduser(named("--data", "a folder", text))


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request in a store: NAME, `--preset`, `--changes` and `--store`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the sweep: its name in the store, or its file or module")
    add("--preset", help="of this preset (default: of the request with the latest result)")
    add("--changes", metavar="TEXT", help="of the request that changes the preset so, e.g. epochs=5, as it is named")
    store = partial(named, "--store", "a folder")
    add("--store", type=store, default=Request.store, metavar="URI", help="folder or URI (s3, gs) of the results")


def alarm_rate(value: object) -> float:
    """A false-alarm rate in (0, 1), such as `0.01` or `1%`."""
    rate = _share("--alarm-rate", value)
    if not 0 < rate < 1:
        raise SpecError(f"`0 < alarm-rate < 1` must hold, but got --alarm-rate {value}")
    return rate


def auto(value: object) -> int | None:
    """Size of a cohort, or None for `auto`."""
    return None if value == "auto" else whole("--cohort", 1, value)


def whole(option: str, least: int, value: object) -> int:
    """Whole number from `least` to `LARGEST_INTEGER`."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        try:
            number = int(value)
        except ValueError:  # Python refuses to read a number of several thousand digits
            number = LARGEST_INTEGER + 1
    if number is None or number < least:
        raise SpecError(f"{option} must be a whole number of at least {least}, but got {_shown(value)}")
    if number > LARGEST_INTEGER:
        raise SpecError(f"{option} must be at most {LARGEST_INTEGER}, but got {value}")
    return number


def fraction(value: object) -> float | None:
    """Share of a device, from 0.0001 to 1, or None for `auto`."""
    if value == "auto":
        return None
    share = _share("--gpu-fraction", value)
    if not 0.0001 <= share <= 1:  # Ray's finest resolution
        raise SpecError(f"`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction {value}")
    return share


UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
"""Units of memory -> bytes."""


def gpu_memory(value: object) -> int:
    """A size of memory with its unit, such as `8GB` or `512 MiB`, in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MG]i?B?)", str(value).strip(), re.IGNORECASE)
    units = {text.lower(): count for unit, count in UNITS.items() for text in (unit, unit.rstrip("B"))}
    size = int(float(match[1]) * units[match[2].lower()]) if match and len(match[1]) < 16 else 0
    if size < UNITS["MB"]:
        law = f"a size of at least 1MB with its unit ({', '.join(UNITS)}), such as 8GB"
        raise SpecError(f"--gpu-memory must be {law}, but got {_shown(value)}")
    return size


def device(text: str) -> str:
    """A device of PyTorch: `cpu`, `cuda` or `cuda:1`."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise SpecError(f"--device must be cpu, cuda or cuda:INDEX, but got {text!r}")
    return text


def amount(option: str, value: object, positive: bool = False) -> float:
    """Number from 0 to `LARGEST_AMOUNT`; 0 itself is refused if `positive`."""
    number = _number(option, value)
    if not (number > 0 if positive else number >= 0):
        raise SpecError(f"`{option} {'>' if positive else '>='} 0` must hold, but got {value}")
    if number > LARGEST_AMOUNT:
        raise SpecError(f"`{option} <= {LARGEST_AMOUNT:g}` must hold, but got {value}")
    return number


def node_price(value: object) -> NodePrice:
    """Prices of nodes per hour, such as `2.5`, or `H100=9,T4=0.6` for kinds of GPUs."""
    if not isinstance(value, str):
        return NodePrice({"": amount("--node-price", value)})
    prices: dict[str, float] = {}
    for part in value.split(","):
        kind, equals, price = (word.strip() for word in part.rpartition("="))
        if equals and not kind:
            raise SpecError(f"--node-price takes P or KIND=P, with commas between several, but got '{value}'")
        if kind in prices:
            raise SpecError(f"--node-price must have one price per kind of GPU, but got '{value}'")
        prices[kind] = amount("--node-price", price)
    return NodePrice(prices)


def track(option: str, text: object) -> TrackRequest:
    """Parse an argument of `--track`, or of another `option` that names a tracker: `mlflow=http://127.0.0.1:5000`.

    Raises SpecError for an unknown tracker or one whose package is missing.
    """
    tracker, equals, target = str(text).partition("=")
    if tracker not in PACKAGES:
        raise SpecError(unknown("tracker", tracker, list(PACKAGES)))
    if equals and not target.strip():
        raise SpecError(f"{option} {tracker}= must name a target, but got ''")
    if importlib.util.find_spec(PACKAGES[tracker]) is None:
        install = f"the extra track-{tracker} has it: pip install {' '.join(_requirements(tracker))}"
        raise SpecError(f"{option} {tracker} needs the package {PACKAGES[tracker]}, which is not installed; {install}")
    remember(target)
    return TrackRequest(tracker, target or None)


def _requirements(tracker: str) -> list[str]:
    """What the extra of a tracker requires, as a shell takes it: no index of packages has this project by its name."""
    try:
        declared = [text.partition(";") for text in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        declared = []
    extra = f'extra == "track-{tracker}"'
    found = [shlex.quote(requirement.strip()) for requirement, _, marker in declared if extra in marker]
    return found or [PACKAGES[tracker]]


def warm_start(text: object) -> WarmStartRequest:
    """The sweep whose rows a search begins with, and which of them count: `anomaly_grid,any-epochs`. The name becomes a
    folder of the store and must not lead out of it."""
    name, comma, which = (part.strip() for part in named("--warm-start", "a sweep", text).partition(","))
    if not is_name(name):
        raise SpecError(f"--warm-start must name a sweep, whose name {LAW}, but got '{name}'")
    if comma:
        one_of("word after the sweep of --warm-start", ["any-epochs"], which)
    return WarmStartRequest(name, any_epochs=bool(comma))


def class_name(value: object) -> Value:
    """A class of `--normal-class`: an index, or a name as typed."""
    return value if isinstance(value, int) else Text(named("--normal-class", "a class", value))


def order(value: object) -> Order:
    """An order of cohorts: `given`, `coarse` or `shuffled`, the last with a seed after a colon."""
    kind, colon, seed = value.partition(":") if isinstance(value, str) else (value, "", "")
    one_of("value of --order", get_args(OrderKind), kind)
    if not colon:
        return Order(cast(OrderKind, kind))
    if kind != "shuffled":
        raise SpecError(f"only --order shuffled has a seed, but got {value}")
    return Order("shuffled", whole("the seed of --order shuffled:SEED", 0, seed))


def keep(value: object) -> Keep:
    """Which models are kept: those of which trials, and of which epochs of these, in any order: `all,every=50`."""
    found = dict[str, Any]()
    for word in value.split(",") if isinstance(value, str) else [value]:
        word = str(word).strip()
        name, _, number = word.partition("=")
        kind = {"every": "every", "best-epoch": "best_epoch"}.get(name if name == "every" else word, "trials")
        own: Any = True
        if kind == "every":
            own = whole("the N of --keep every=N", 1, number)
        elif kind == "trials":
            own = one_of("value of --keep", (*get_args(KeptTrials), "every=N", "best-epoch"), word)
        if kind in found:
            raise SpecError(
                f"--keep takes best, all or none, every=N and best-epoch, each at most once, but got {value}"
            )
        found[kind] = own
    if found.get("trials") == "none" and len(found) > 1:
        raise SpecError(f"--keep none keeps the models of no trials, so it takes no epochs, but got {value}")
    return Keep(**found)


def one_of(noun: str, choices: Sequence[str], value: object) -> str:
    if value not in choices:
        raise SpecError(unknown(noun, str(value), list(choices)))
    return str(value)


def _share(option: str, value: object) -> float:
    """A number, or a percentage as text."""
    if isinstance(value, str) and value.endswith("%"):
        return float(Decimal(str(_number(option, value[:-1]))) / 100)  # 7% is 0.07
    return _number(option, value)


def _number(option: str, value: object) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise SpecError(f"{option} must be a number, but got {_shown(value)}")


def _shown(value: object) -> str:
    """A value as it was typed, in quotes if it is blank."""
    return value if isinstance(value, str) and value.strip() else repr(value)


def store_retries() -> RetryPolicy:
    """Policy for a store that has stopped working, from `STORE_TIMEOUT`."""
    text = os.environ.get(STORE_TIMEOUT)
    try:
        seconds = LONG_RETRIES.seconds if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LARGEST_AMOUNT:
        raise SpecError(
            f"{STORE_TIMEOUT} must be a number of seconds from 0 to {LARGEST_AMOUNT:g}, but got {STORE_TIMEOUT}={text}"
        )
    return RetryPolicy(seconds)
