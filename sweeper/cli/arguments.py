"""Parse the command line into a `Request`. A wrong argument ends with one line and exit status 2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Never

from sweeper.cli.option_values import amount, auto, fraction, whole, whole_or_none
from sweeper.errors import SpecError
from sweeper.spec.grid import unknown
from sweeper.spec.request import Request, SearchOptions
from sweeper.spec.search import SAMPLERS

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
ABOUT = (
    "Run a sweep: its trials, on this machine or a Ray cluster, into a Parquet store. The same command continues it."
)
LONGEST_WORD = 1000
"""Longest word, in characters, that an error message shows in full."""
EXITS = (
    "Exit status: 0 every trial has a result; 1 some trials failed, or all trials of a search diverged; 2 the request "
    "was wrong; 130 interrupted."
)


PRUNERS = ("none", "halving", "hyperband")


def parse(arguments: Sequence[str]) -> Request:
    """Parse command-line arguments. Raises SpecError for wrong arguments; `--help` prints and exits."""
    parser = Parser(prog="python -m sweeper.run", description=ABOUT, epilog=EXITS, formatter_class=DefaultsFormatter)
    parser.add_argument("name", nargs="?", metavar="NAME", help="the sweep to run; see --list")
    parser.add_argument("--list", action="store_true", help="list the sweeps and their presets")
    parser.add_argument("--describe", metavar="WHAT", help="describe a method and its keys, a data set or a metric")
    parser.add_argument("--preset", help="one of the sweep's presets; by default the paper's")
    parser.add_argument("--store", default="results", metavar="URI", help="folder or URI (s3, gs) of the results")
    parser.add_argument("--data", default="data", metavar="DIR", help="folder of the data sets")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a hyperparameter")
    parser.add_argument("--axis", action="append", default=[], metavar="KEY=V1,V2", help="vary a hyperparameter")
    parser.add_argument("--plan", action="store_true", help="print what would run, and run nothing")
    parser.add_argument("--probe", action="store_true", help="with --plan: measure now what the plan depends on")
    parser.add_argument(
        "--node-price",
        metavar="P",
        help="with --plan: price of a node (a machine that trains) per hour; the cost covers the nodes of the devices "
        "seen, from the first cohort to the last, but neither the head nor idle time",
    )
    parser.add_argument("--json", action="store_true", help="with --plan: print JSON")
    parser.add_argument(
        "--cohort", default="auto", metavar="N|auto", help="number of trials that train together in one process"
    )
    parser.add_argument(
        "--stack", metavar="N", help="with --cohort N: number of trials stepped as one (default: all N)"
    )
    parser.add_argument(
        "--gpu-fraction", default="auto", metavar="F|auto", help="share of a GPU (without GPUs: of a core) per cohort"
    )
    parser.add_argument("--address", help="Ray cluster: host:port, ray://host:port, auto, or local (default)")
    parser.add_argument("--retries", default="3", metavar="N", help="how often a failed cohort is tried again")
    parser.add_argument("--save-every", default="30", metavar="SECONDS", help="time between checkpoints of a cohort")
    parser.add_argument(
        "--patience", default="600", metavar="SECONDS", help="time without a step after which a cohort is given up"
    )
    search = parser.add_argument_group("searches")
    search.add_argument("--trials", metavar="N", help="trials of each study (default: the preset's)")
    search.add_argument("--wave", metavar="N", help="trials proposed at once (default: the preset's)")
    search.add_argument("--sampler", metavar="NAME", help=f"one of {', '.join(SAMPLERS)} (default: the preset's)")
    search.add_argument("--pruner", metavar="NAME", help=f"one of {', '.join(PRUNERS)} (default: the preset's)")
    search.add_argument("--search-seed", metavar="N", help="seed of the sampler (default: the preset's)")
    search.add_argument("--warm-start", metavar="SWEEP", help="begin with the store's results of another sweep")
    parser.add_argument(
        "--fresh", action="store_true", help="set the rows of these trials aside and train them again; keep all others"
    )
    parser.add_argument("--restore", metavar="TIME", help="bring back what --fresh set aside at TIME, and run nothing")
    words = parser.parse_args(arguments)
    if words.name is None and not words.list and words.describe is None:
        raise SpecError("the name of a sweep is required; --list shows all sweeps")
    for option, value in {"--json": words.json, "--probe": words.probe, "--node-price": words.node_price}.items():
        if value and not words.plan:
            raise SpecError(f"{option} requires --plan")
    if words.restore is not None and (words.fresh or words.plan):
        raise SpecError("--restore cannot be combined with --fresh or --plan")
    cohort, stack = auto("--cohort", words.cohort), whole_or_none("--stack", words.stack, 1)
    if stack and (cohort is None or stack > cohort):
        raise SpecError(f"--stack must not exceed --cohort, but got --stack {stack} --cohort {words.cohort}")
    return Request(
        name=words.name,
        preset=words.preset,
        store=_named("--store", words.store),
        data=_named("--data", words.data),
        fixed=_pairs("--set", words.set),
        axes={key: _values(key, text) for key, text in _pairs("--axis", words.axis).items()},
        cohort=cohort,
        stack=stack,
        fraction=fraction(words.gpu_fraction),
        address=None if words.address is None else _named("--address", words.address, "a Ray cluster"),
        retries=whole("--retries", words.retries, 0),
        save_every=amount("--save-every", words.save_every),
        patience=amount("--patience", words.patience, positive=True),
        list=words.list,
        describe=words.describe,
        plan=words.plan,
        probe=words.probe,
        node_price=None if words.node_price is None else amount("--node-price", words.node_price),
        json=words.json,
        fresh=words.fresh,
        restore=words.restore,
        search=SearchOptions(
            trials=whole_or_none("--trials", words.trials, 1),
            wave=whole_or_none("--wave", words.wave, 1),
            sampler=_one_of("sampler", words.sampler, SAMPLERS),
            pruner=_one_of("pruner", words.pruner, PRUNERS),
            seed=whole_or_none("--search-seed", words.search_seed, 0),
        ),
        warm_start=None if words.warm_start is None else _sweep("--warm-start", words.warm_start),
    )


class DefaultsFormatter(argparse.HelpFormatter):
    """Appends an option's default to its help text, unless the text already mentions a default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.help and action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in action.help:
            return f"{action.help} (default: %(default)s)"
        return action.help


def error_line(error: Exception) -> str:
    """Error message as one line that is safe to print.

    Unprintable characters are escaped, and words longer than `LONGEST_WORD` characters are cut.
    """
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(error))

    def cut(word: re.Match[str]) -> str:
        return f"{word[0][:50]}... ({len(word[0])} characters)"

    return f"error: {re.sub(rf'[^ ]{{{LONGEST_WORD + 1},}}', cut, text)}"


class Parser(argparse.ArgumentParser):
    """Argument parser that raises SpecError with one line, where argparse prints its usage and exits."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> Never:
        raise SpecError(f"{message}; --help shows all options")


def _named(option: str, text: str, noun: str = "a folder") -> str:
    """Return `text` unless it is blank: a blank name is an unset shell variable, not the working folder."""
    if not text.strip():
        raise SpecError(f"{option} must name {noun}, but got ''")
    return text


def _sweep(option: str, text: str) -> str:
    """Return `text` if it is a sweep's name. The name becomes a folder of the store and must not lead out of it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", _named(option, text, "a sweep")):
        raise SpecError(f"{option} must name a sweep (letters, digits, '_', '-', '+' or '.'), but got '{text}'")
    return text


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Key -> value of texts like `KEY=VALUE`."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise SpecError(f"{option} takes KEY=VALUE, but got '{text}'")
        if key in pairs:
            raise SpecError(f"{option} must be given once per key, but got {key}={pairs[key]} and {key}={value}")
        pairs[key] = value
    return pairs


def _values(key: str, text: str) -> tuple[str, ...]:
    """Comma-separated values of an axis."""
    values = tuple(value.strip() for value in text.split(",")) if text else ()
    if not values or "" in values:
        raise SpecError(f"axis {key} must have at least one value and no empty one, but got '{key}={text}'")
    return values


def _one_of(noun: str, text: str | None, choices: Sequence[str]) -> str | None:
    if text is not None and text not in choices:
        raise SpecError(unknown(noun, text, list(choices)))
    return text
