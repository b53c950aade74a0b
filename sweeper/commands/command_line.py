"""What all commands share: errors that are one line, exit statuses, and a parser."""

import argparse
import difflib
import io
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from typing import Any, Never

from sweeper.errors import SpecError, SweeperError, error_line
from sweeper.execution.signals import debugger_interrupts
from sweeper.option_values import LARGEST_AMOUNT
from sweeper.printing import print
from sweeper.request import RENAMED, Option, Request, options
from sweeper.storage.retry import LONG_RETRIES, STORE_TIMEOUT, RetryPolicy
from sweeper.version import code_version
from trainables.synonyms import SYNONYMS, letters

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_UNCONFIRMED, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


Main = Callable[[Sequence[str]], int]
"""A command: its arguments in, and the exit status out."""


def command_line(last_line: str = "interrupted\n") -> Callable[[Main], Main]:
    """Decorator of a command's `main`: errors for the user are one line on standard error and status 2, Ctrl-C and
    `q` in a debugger are the `last_line` and 130, and a reader of the output who has gone (`| head`) is 1."""

    def decorate(main: Main) -> Main:
        @wraps(main)
        def run(arguments: Sequence[str]) -> int:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")  # a name may not fit a terminal's encoding
            try:
                with debugger_interrupts():
                    return main(arguments)
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


class _DefaultsFormatter(argparse.HelpFormatter):
    """Appends an option's default to its help text, unless the text already mentions a default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if (
            action.help
            and action.default not in (None, False, "", [], argparse.SUPPRESS)
            and "default" not in action.help
        ):
            return f"{action.help} (default: %(default)s)"
        return action.help


class Parser(argparse.ArgumentParser):
    """Argument parser that raises SpecError with one line, where argparse prints its usage and exits."""

    def __init__(self, command: str, about: str, exits: str = "", usage: str | None = None) -> None:
        """`command` is the name of the command, and `exits` says its exit statuses."""
        super().__init__(
            prog=f"sweeper {command}",
            usage=usage,
            description=about,
            epilog=exits,
            formatter_class=_DefaultsFormatter,
            allow_abbrev=False,
        )
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
        if (now := f"--{RENAMED.get(key, '').replace('_', '-')}") in options:
            return f"{name} is now {now}"
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


def add_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options of a run, such as `store`, that another command has as well."""
    for name in names:
        option = options()[name]
        add_option(parser, option, option.text, getattr(Request, name))


def add_option(to: argparse._ActionsContainer, option: Option, text: str, default: object = argparse.SUPPRESS) -> None:
    """Add an option to a parser, or to a group of one. Without a default it is absent where it is not given."""
    how: dict[str, Any] = {"action": "store_true"} if option.switch else {"metavar": option.metavar or None}
    if option.read:
        how["type"] = partial(option.read, option.flag)
    if option.many:
        how |= {"action": "append"} if option.many == "times" else {"nargs": "*"}
    to.add_argument(option.flag, default=default, help=text.replace("%", "%%"), **how)


def add_request(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request in a store: NAME, `--preset`, `--changes` and `--store`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the sweep: its name in the store, or its file or module")
    add("--preset", help="of this preset (default: of the request with the latest result)")
    add("--changes", metavar="TEXT", help="of the request that changes the preset so, e.g. epochs=5, as it is named")
    add_options(parser, "store")


def store_retries() -> RetryPolicy:
    """Policy for a store that has stopped working, from `STORE_TIMEOUT`."""
    if "SWEEPER_PATIENCE" in os.environ:
        raise SpecError(f"SWEEPER_PATIENCE is now {STORE_TIMEOUT}")
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
