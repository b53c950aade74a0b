"""Parse the command line into a `Request`. A wrong argument ends with one line and exit status 2."""

import argparse
import importlib.util
import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from importlib import metadata
from typing import Any, Never, get_args

from sweeper.errors import SpecError
from sweeper.masking import remember
from sweeper.names import LAW, is_name
from sweeper.spec import registry
from sweeper.spec.node_price import NodePrice
from sweeper.spec.request import Compile, Keep, Request, SearchOptions, TrackRequest
from sweeper.spec.space import SAMPLERS
from sweeper.storage.retry import LONG_RETRIES, STORE_TIMEOUT, RetryPolicy
from sweeper.version import code_version
from trainables.reports import SAVE_EVERY
from trainables.validation import unknown

COMMAND = "SWEEPER_COMMAND"
"""Environment variable by which `sweeper.console` says which command the user typed, such as `sweeper run`."""
EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_INTERRUPTED = 0, 1, 2, 130
ABOUT = (
    "Run a sweep: its trials, on this machine or a Ray cluster, into a Parquet store. The same command continues it."
)
EXITS = (
    "Exit status: 0 every trial has a result; 1 some trials failed, or all trials of a search diverged; 2 the request "
    "was wrong; 130 interrupted."
)
DISTRIBUTION = "sweeper"
"""Name of this project among the installed packages."""
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""Tracker -> the package that it needs."""
PRUNERS = ("none", "halving", "hyperband")

LARGEST_INTEGER = 2**63 - 1
"""Largest integer that an option takes, because the store's columns have 64 bits."""
LARGEST_AMOUNT = 1e9
"""Largest number of seconds or price that an option takes: 30 years, which the clocks of threads can still count."""


def parse(arguments: Sequence[str]) -> Request:
    """Parse command-line arguments. Raises SpecError for wrong arguments; `--help` prints and exits."""
    parser = Parser(prog="python -m sweeper.run", description=ABOUT, epilog=EXITS, formatter_class=DefaultsFormatter)
    add = parser.add_argument
    sweep_help = "the sweep to run: a name of --list, a file (path/to/my_sweep.py) or a module (package.module:SWEEP)"
    add("name", nargs="?", metavar="NAME", help=sweep_help)
    add("--list", action="store_true", help="list the sweeps and their presets")
    add(
        "--describe",
        metavar="WHAT",
        help="describe a method and its keys, a data set, a key, a metric or a sweep, or list all `keys`, `methods`, "
        "`datasets` or `metrics`",
    )
    add("--preset", help="one of the sweep's presets; by default the paper's")
    store, data = (partial(named, option, "a folder") for option in ("--store", "--data"))
    add("--store", type=store, default="results", metavar="URI", help="folder or URI (s3, gs) of the results")
    add("--data", type=data, default="data", metavar="DIR", help="folder of the data sets")
    add("--set", dest="fixed", action="append", default=[], metavar="KEY=VALUE", help="fix a hyperparameter")
    add("--axis", dest="axes", action="append", default=[], metavar="KEY=V1,V2", help="vary a hyperparameter")
    class_help = "train on this class alone: its name for images of your own (--set dataset=folder), else its index"
    add("--normal-class", type=partial(named, "--normal-class", "a class"), metavar="NAME", help=class_help)
    add("--plan", action="store_true", help="print what would run, and run nothing")
    add("--probe", action="store_true", help="with --plan: measure now what the plan depends on")
    price_help = (
        "price of a node (a machine that trains) per hour, or one for each kind of GPU (H100=9,T4=0.6). The rows get "
        "the cost of each trial's device seconds. With --plan the cost covers the nodes of the devices seen, from the "
        "first cohort to the last, but neither the head nor idle time"
    )
    add("--node-price", type=node_price, metavar="P", help=price_help)
    add("--json", action="store_true", help="with --plan: print JSON")
    cohort_help = "number of trials that train together in one process"
    add("--cohort", type=auto, default="auto", metavar="N|auto", help=cohort_help)
    stack_help = "with --cohort N: number of trials stepped as one (default: all N)"
    add("--stack", type=partial(whole, "--stack", 1), metavar="N", help=stack_help)
    fraction_help = "share of a GPU (without GPUs: of a core) per cohort"
    add("--gpu-fraction", dest="fraction", type=fraction, default="auto", metavar="F|auto", help=fraction_help)
    address_help = "Ray cluster: host:port, ray://host:port, auto, or local (default)"
    add("--address", type=partial(named, "--address", "a Ray cluster"), help=address_help)
    debug_help = (
        "train in this process without Ray, one cohort after the other: breakpoints and prints work, and an exception "
        "opens pdb. Nothing is tried again"
    )
    add("--debug", action="store_true", help=debug_help)
    retries, seconds = partial(whole, "--retries", 0), partial(amount, "--save-every")
    add("--retries", type=retries, default="3", metavar="N", help="how often a failed cohort is tried again")
    add(
        "--save-every",
        type=seconds,
        default=f"{SAVE_EVERY:g}",
        metavar="SECONDS",
        help="time between checkpoints of a cohort",
    )
    keep_help = "trained models to keep: the best of each cell of heatmaps and tables and of each study, all, or none"
    add(
        "--keep",
        type=partial(_one_of, "value of --keep", get_args(Keep)),
        default="best",
        metavar="best|all|none",
        help=keep_help,
    )
    compile_help = (
        "compile training steps with the C++ compiler g++: always, never, or (auto) on CPU cores where that saves more "
        "time than it takes; a continued sweep keeps its steps unless always or never is given"
    )
    compiled = partial(_one_of, "value of --compile", get_args(Compile))
    add("--compile", type=compiled, default="auto", metavar="auto|always|never", help=compile_help)
    patience = partial(amount, "--patience", positive=True)
    patience_help = "time without a step after which a cohort is given up"
    add("--patience", type=patience, default="600", metavar="SECONDS", help=patience_help)
    track_help = (
        "send each trial as a run to tensorboard (TARGET: a folder), mlflow (a server's URI) or wandb (a project); may "
        "be given for several trackers"
    )
    add("--track", type=_track, action="append", default=[], metavar="TRACKER[=TARGET]", help=track_help)
    add_search = parser.add_argument_group("searches").add_argument
    sampler, pruner = partial(_one_of, "sampler", SAMPLERS), partial(_one_of, "pruner", PRUNERS)
    default = "(default: the preset's)"
    trials, wave, seed = partial(whole, "--trials", 1), partial(whole, "--wave", 1), partial(whole, "--search-seed", 0)
    add_search("--trials", type=trials, metavar="N", help=f"trials of each study {default}")
    add_search("--wave", type=wave, metavar="N", help=f"trials proposed at once {default}")
    add_search("--sampler", type=sampler, metavar="NAME", help=f"one of {', '.join(SAMPLERS)} {default}")
    add_search("--pruner", type=pruner, metavar="NAME", help=f"one of {', '.join(PRUNERS)} {default}")
    add_search("--search-seed", dest="seed", type=seed, metavar="N", help=f"seed of the sampler {default}")
    add_search("--warm-start", type=_sweep, metavar="SWEEP", help="begin with the store's results of another sweep")
    wait_help = "wait until no other driver runs this sweep on this store; else their work is shared"
    add("--wait", action="store_true", help=wait_help)
    fresh_help = "set the rows of these trials aside and train them again; keep all others"
    add("--fresh", action="store_true", help=fresh_help)
    add("--restore", metavar="TIME", help="bring back what --fresh set aside at TIME, and run nothing")
    values = vars(parser.parse_args(arguments))
    if values["name"] is None and not values["list"] and values["describe"] is None:
        raise SpecError("the name of a sweep is required; --list shows all sweeps")
    for option in ("json", "probe"):
        if values[option] not in (None, False) and not values["plan"]:
            raise SpecError(f"--{option.replace('_', '-')} requires --plan")
    if values["restore"] is not None and (values["fresh"] or values["plan"]):
        raise SpecError("--restore cannot be combined with --fresh or --plan")
    if values["wait"] and (values["restore"] is not None or values["plan"]):
        raise SpecError("--wait waits before a run; it cannot be combined with --restore or --plan")
    if values["debug"] and (values["address"] or values["plan"]):
        raise SpecError("--debug trains in this process; it cannot be combined with --address or --plan")
    cohort, stack = values["cohort"], values["stack"]
    if stack and (cohort is None or stack > cohort):
        raise SpecError(f"--stack must not exceed --cohort, but got --stack {stack} --cohort {cohort or 'auto'}")
    normal_class = values.pop("normal_class")
    fixed = [*values["fixed"], *([f"normal_class={normal_class}"] if normal_class else [])]
    values["fixed"] = _pairs("--set", fixed)
    values["axes"] = {key: _values(key, text) for key, text in _pairs("--axis", values["axes"]).items()}
    options = {field.name: values.pop(field.name) for field in fields(SearchOptions)}
    return Request(**values, search=SearchOptions(**options))


def list_sweeps() -> int:
    """Print all sweeps and their presets. A sweep that cannot be read gets one line on standard error."""
    for name in registry.names():
        try:
            sweep = registry.find(name)
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        sizes = ", ".join(f"{preset} ({space.count} trials)" for preset, space in sweep.presets.items())
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK


class DefaultsFormatter(argparse.HelpFormatter):
    """Appends an option's default to its help text, unless the text already mentions a default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.help and action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in action.help:
            return f"{action.help} (default: %(default)s)"
        return action.help


class Parser(argparse.ArgumentParser):
    """Argument parser that raises SpecError with one line, where argparse prints its usage and exits."""

    def __init__(self, *, prog: str, **options: Any) -> None:
        """`prog` is the command, unless the user typed `sweeper COMMAND`."""
        super().__init__(prog=os.environ.pop(COMMAND, prog), **options, allow_abbrev=False)
        self.add_argument("--version", action=_PrintVersion, help="print the version of the code, and exit")

    def error(self, message: str) -> Never:
        raise SpecError(f"{message}; --help shows all options")


class _PrintVersion(argparse.Action):
    """Prints the version, which is looked for only then, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> Never:
        print(f"sweeper {code_version()}")
        parser.exit()


def named(option: str, noun: str, text: str) -> str:
    """Refuse a blank name: it is an unset shell variable, not the working folder."""
    if not text.strip():
        raise SpecError(f"{option} must name {noun}, but got ''")
    return text


def _track(text: str) -> TrackRequest:
    """Parse an argument of `--track`. Raises SpecError for an unknown tracker or one whose package is missing."""
    tracker, equals, target = text.partition("=")
    if tracker not in PACKAGES:
        raise SpecError(unknown("tracker", tracker, list(PACKAGES)))
    if equals and not target.strip():
        raise SpecError(f"--track {tracker}= must name a target, but got ''")
    if importlib.util.find_spec(PACKAGES[tracker]) is None:
        install = f"the extra track-{tracker} has it: pip install {' '.join(_requirements(tracker))}"
        raise SpecError(f"--track {tracker} needs the package {PACKAGES[tracker]}, which is not installed; {install}")
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


def _sweep(text: str) -> str:
    """The name of a sweep, which becomes a folder of the store and must not lead out of it."""
    if not is_name(named("--warm-start", "a sweep", text)):
        raise SpecError(f"--warm-start must name a sweep, whose name {LAW}, but got '{text}'")
    return text


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
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
    values = tuple(value.strip() for value in text.split(",")) if text else ()
    if not values or "" in values:
        raise SpecError(f"axis {key} must have at least one value and no empty one, but got '{key}={text}'")
    return values


def _one_of(noun: str, choices: Sequence[str], text: str) -> str:
    if text not in choices:
        raise SpecError(unknown(noun, text, list(choices)))
    return text


def auto(text: str) -> int | None:
    """Size of a cohort, or None for `auto`."""
    return None if text == "auto" else whole("--cohort", 1, text)


def _shown(text: str) -> str:
    """Text as it was typed, in quotes if it is blank."""
    return text if text.strip() else repr(text)


def whole(option: str, least: int, text: str) -> int:
    """Whole number from `least` to `LARGEST_INTEGER`."""
    try:
        value = int(text) if text.removeprefix("-").isdecimal() else None
    except ValueError:  # Python refuses to read a number of several thousand digits
        value = LARGEST_INTEGER + 1
    if value is None or value < least:
        raise SpecError(f"{option} must be a whole number of at least {least}, but got {_shown(text)}")
    if value > LARGEST_INTEGER:
        raise SpecError(f"{option} must be at most {LARGEST_INTEGER}, but got {text}")
    return value


def fraction(text: str) -> float | None:
    """Share of a device, from 0.0001 to 1, or None for `auto`."""
    if text == "auto":
        return None
    value = _number("--gpu-fraction", text)
    if not 0.0001 <= value <= 1:  # Ray's finest resolution
        raise SpecError(f"`0.0001 <= gpu-fraction <= 1` must hold, but got --gpu-fraction {text}")
    return value


def amount(option: str, text: str, positive: bool = False) -> float:
    """Number from 0 to `LARGEST_AMOUNT`; 0 itself is refused if `positive`."""
    value = _number(option, text)
    if not (value > 0 if positive else value >= 0):
        raise SpecError(f"`{option} {'>' if positive else '>='} 0` must hold, but got {text}")
    if value > LARGEST_AMOUNT:
        raise SpecError(f"`{option} <= {LARGEST_AMOUNT:g}` must hold, but got {text}")
    return value


def node_price(text: str) -> NodePrice:
    """Prices of nodes per hour, such as `2.5`, or `H100=9,T4=0.6` for kinds of GPUs."""
    prices: dict[str, float] = {}
    for part in text.split(","):
        kind, equals, price = (word.strip() for word in part.rpartition("="))
        if equals and not kind:
            raise SpecError(f"--node-price takes P or KIND=P, with commas between several, but got '{text}'")
        if kind in prices:
            raise SpecError(f"--node-price must have one price per kind of GPU, but got '{text}'")
        prices[kind] = amount("--node-price", price)
    return NodePrice(prices)


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


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{option} must be a number, but got {_shown(text)}") from None
