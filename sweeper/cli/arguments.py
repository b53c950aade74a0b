"""The command line's words -> a Request. Bad words end with one line and exit status 2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Never

from sweeper.cli.option_values import amount, auto, fraction, whole, whole_or_none
from sweeper.errors import SpecError
from sweeper.spec.grid import unknown
from sweeper.spec.request import Request, SearchWords
from sweeper.spec.search import SAMPLERS

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
ABOUT = (
    "Run a sweep: its trials, on this machine or a Ray cluster, into a Parquet store. The same command continues it."
)
LONGEST_WORD = 1000
"""Characters of an error's word that are shown."""
EXITS = (
    "Exit status: 0 every trial has a result; 1 some failed, or all of a search diverged; 2 the request was wrong; 130 "
    "interrupted."
)


PRUNERS = ("none", "halving", "hyperband")


def parse(arguments: Sequence[str]) -> Request:
    """The request. SpecError for words that make none; `--help` prints and leaves."""
    parser = Parser(prog="python -m sweeper.run", description=ABOUT, epilog=EXITS, formatter_class=DefaultsFormatter)
    parser.add_argument("name", nargs="?", metavar="NAME", help="the sweep; --list says which there are")
    parser.add_argument("--list", action="store_true", help="list the sweeps and their presets")
    parser.add_argument("--describe", metavar="WHAT", help="say what a method (and its keys), data set or metric is")
    parser.add_argument("--preset", help="which of the sweep's presets; by default the paper's")
    parser.add_argument("--store", default="results", metavar="URI", help="folder or URI (s3, gs) of the results")
    parser.add_argument("--data", default="data", metavar="DIR", help="folder of the data sets")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a hyperparameter")
    parser.add_argument("--axis", action="append", default=[], metavar="KEY=V1,V2", help="vary a hyperparameter")
    parser.add_argument("--plan", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--probe", action="store_true", help="with --plan: measure now what the plan follows from")
    parser.add_argument(
        "--node-price",
        metavar="P",
        help="with --plan: of a node (a machine that trains) an hour; the cost counts those that the devices seen are "
        "on, from the first cohort to the last, and neither the head nor idle time",
    )
    parser.add_argument("--json", action="store_true", help="with --plan: as JSON")
    parser.add_argument("--cohort", default="auto", metavar="N|auto", help="trials that train together in one process")
    parser.add_argument("--stack", metavar="N", help="with --cohort N: trials stepped as one (default: all N)")
    parser.add_argument(
        "--gpu-fraction", default="auto", metavar="F|auto", help="share of a GPU (without GPUs: of a core) for a cohort"
    )
    parser.add_argument("--address", help="a Ray cluster: host:port, ray://host:port, auto, or local (default)")
    parser.add_argument("--retries", default="3", metavar="N", help="how often a failed cohort is tried again")
    parser.add_argument("--save-every", default="30", metavar="SECONDS", help="between a cohort's checkpoints")
    parser.add_argument(
        "--patience", default="600", metavar="SECONDS", help="without a step, until a cohort is given up"
    )
    search = parser.add_argument_group("searches")
    search.add_argument("--trials", metavar="N", help="trials of each study (default: the preset's)")
    search.add_argument("--wave", metavar="N", help="trials that are proposed at once (default: the preset's)")
    search.add_argument("--sampler", metavar="NAME", help=f"one of {', '.join(SAMPLERS)} (default: the preset's)")
    search.add_argument("--pruner", metavar="NAME", help=f"one of {', '.join(PRUNERS)} (default: the preset's)")
    search.add_argument("--search-seed", metavar="N", help="of the sampler (default: the preset's)")
    search.add_argument("--warm-start", metavar="SWEEP", help="begin with what the store has of another sweep")
    parser.add_argument(
        "--fresh", action="store_true", help="set the rows of these trials aside and train them again; others stay"
    )
    parser.add_argument("--restore", metavar="TIME", help="bring back what --fresh set aside then, and run nothing")
    words = parser.parse_args(arguments)
    if words.name is None and not words.list and words.describe is None:
        raise SpecError("a sweep's name is needed; --list says which there are")
    for option, given in {"--json": words.json, "--probe": words.probe, "--node-price": words.node_price}.items():
        if given and not words.plan:
            raise SpecError(f"{option} goes with --plan")
    if words.restore is not None and (words.fresh or words.plan):
        raise SpecError("--restore runs nothing, so neither --fresh nor --plan goes with it")
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
        search=SearchWords(
            trials=whole_or_none("--trials", words.trials, 1),
            wave=whole_or_none("--wave", words.wave, 1),
            sampler=_one_of("sampler", words.sampler, SAMPLERS),
            pruner=_one_of("pruner", words.pruner, PRUNERS),
            seed=whole_or_none("--search-seed", words.search_seed, 0),
        ),
        warm_start=None if words.warm_start is None else _sweep("--warm-start", words.warm_start),
    )


class DefaultsFormatter(argparse.HelpFormatter):
    """Adds its default to what an option is, where there is one and the text does not say it."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.help and action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in action.help:
            return f"{action.help} (default: %(default)s)"
        return action.help


def error_line(error: Exception) -> str:
    """What went wrong, in one line that any terminal prints: signs that are not to be seen are escaped, and words of
    more than `LONGEST_WORD` characters are cut."""
    text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(error))

    def cut(word: re.Match[str]) -> str:
        return f"{word[0][:50]}... ({len(word[0])} characters)"

    return f"error: {re.sub(rf'[^ ]{{{LONGEST_WORD + 1},}}', cut, text)}"


class Parser(argparse.ArgumentParser):
    """argparse prints its usage and leaves; a wrong word deserves one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> Never:
        raise SpecError(f"{message}; --help says what there is")


def _named(option: str, text: str, noun: str = "a folder") -> str:
    """An empty name is a shell variable that was not set, never the working folder."""
    if not text.strip():
        raise SpecError(f"{option} must name {noun}, but got ''")
    return text


def _sweep(option: str, text: str) -> str:
    """The name of a sweep is a folder's name in the store, too, and cannot leave it."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", _named(option, text, "a sweep")):
        raise SpecError(f"{option} must name a sweep (letters, digits, '_', '-', '+' or '.'), but got '{text}'")
    return text


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise SpecError(f"{option} takes KEY=VALUE, but got '{text}'")
        if key in pairs:
            raise SpecError(f"{option} must be given once a key, but got {key}={pairs[key]} and {key}={value}")
        pairs[key] = value
    return pairs


def _values(key: str, text: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(",")) if text else ()
    if not values or "" in values:
        raise SpecError(f"axis {key} must have at least one value and no empty one, but got '{key}={text}'")
    return values


def _one_of(noun: str, text: str | None, choices: Sequence[str]) -> str | None:
    if text is not None and text not in choices:
        raise SpecError(unknown(noun, text, list(choices)))
    return text
