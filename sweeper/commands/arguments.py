"""The options of a run, from the command line or from Python, and what they make: a `Request`.

On the command line they may also ask for something that runs no sweep. A wrong argument raises SpecError with one line.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.commands.command_line import Parser, add_option, hyperparameters
from sweeper.definition.ranges import listed
from sweeper.errors import SpecError
from sweeper.option_values import Text, memory_text
from sweeper.request import RENAMED, Request, options
from trainables.synonyms import SYNONYMS, letters
from trainables.validation import unknown

ABOUT = (
    "Run a sweep: its trials, on this machine or a Ray cluster, into a Parquet store. The same command continues it."
)
EXITS = (
    "Exit status: 0 every trial has a result; 1 some trials failed, or all trials of a search diverged; 2 the request "
    "was wrong; 130 interrupted, or stopped by --hours or --cost before every trial had a result."
)
SWEEP = "one that `sweeper list` shows, a file (path/to/my_sweep.py) or a module (package.module:SWEEP)"
DESCRIBED = (
    "a method and its keys, a data set, a key, a metric, a score, a column or a sweep, or list all `keys`, `methods`, "
    "`datasets`, `metrics`, `scores` or `columns`"
)
WAITS = "--wait waits before a run; it cannot be combined with --restore or --plan"
OF_COMMAND_LINE = ("describe", "help", "json", "list", "plan", "restore", "version")
"""Options with which the command line does something else than to run or to plan a sweep, or says it otherwise."""


@dataclass(frozen=True)
class Listing:
    """List the sweeps."""

    json: bool = False


@dataclass(frozen=True)
class Description:
    """Describe what has this name."""

    name: str


@dataclass(frozen=True)
class Restoration:
    """Bring back what a run with `--fresh` archived."""

    sweep: str
    store: str
    time: str
    """Name of the folder below `_replaced/`."""


Command = Request | Listing | Description | Restoration


def parse_command(arguments: Sequence[str]) -> Command:
    """Parse the arguments of `sweeper run`. Raises SpecError for wrong ones; `--help` prints and exits."""
    parser = run_parser("run", ABOUT, EXITS)
    add = parser.add_argument_group("instead of running").add_argument
    add("--plan", action="store_true", help="print what would run; --measure belongs to it")
    add("--list", action="store_true", help="list the sweeps and their presets")
    add("--describe", metavar="WHAT", help=f"describe {DESCRIBED}")
    add("--restore", metavar="TIME", help="bring back what --fresh archived at TIME")
    values = vars(parser.parse_args(arguments))
    lists, described, time = (values.pop(mode) for mode in ("list", "describe", "restore"))
    if values["name"] is None and (lists or described is not None):
        values["name"] = ""
    request = typed_request(values)
    if time is not None and (request.fresh or request.plan):
        raise SpecError("--restore cannot be combined with --fresh or --plan")
    if time is not None and request.wait:
        raise SpecError(WAITS)
    if request.json and (time is not None or described is not None):
        raise SpecError("--json is for a run, --plan and --list; it cannot be combined with --restore or --describe")
    if lists:
        return Listing(request.json)
    if time is not None:
        return Restoration(request.name, request.store, time)
    return request if described is None else Description(described)


def parse(arguments: Sequence[str]) -> Request:
    """Parse the arguments of a run or a plan. Raises SpecError for those of anything else."""
    command = parse_command(arguments)
    if not isinstance(command, Request):
        raise SpecError("--list, --describe and --restore run no sweep")
    return command


def typed_request(values: Mapping[str, Any]) -> Request:
    """The request of values as a parser returns them."""
    if values["name"] is None:
        raise SpecError("the name of a sweep is required; --list shows all sweeps")
    fixed = {key: Text(text) for key, text in pairs("--set", values.get("set", ())).items()}
    axes, replicates = (
        {key: values_of_axis(option, key, text) for key, text in pairs(f"--{option}", values.get(option, ())).items()}
        for option in ("axis", "replicates")
    )
    typed = {key: value for key, value in values.items() if key not in ("set", "axis")}
    return request_of({**typed, "fixed": fixed, "axes": axes, "replicates": replicates})


def request_of(values: Mapping[str, Any]) -> Request:
    """Return the request with these values: fields of `Request`, and `normal_class`. Raises SpecError if they cannot be
    combined."""
    request = Request(**{key: value for key, value in values.items() if key != "normal_class"})
    if (normal_class := values.get("normal_class")) is not None:
        if "normal_class" in request.fixed:
            known = request.fixed["normal_class"]
            raise _given_twice("--set", "normal_class", known, normal_class)
        request = replace(request, fixed={**request.fixed, "normal_class": normal_class})
    for option, asked in (("--set", request.fixed), ("--axis", request.axes)):
        if both := next((key for key in request.replicates if key in asked), None):
            raise SpecError(f"{both} must be given by {option} or by --replicates, but is given by both")
    if request.measure and not request.plan:
        raise SpecError("--measure requires --plan")
    if request.cost is not None and request.node_price is None:
        raise SpecError(f"--cost {request.cost:g} needs the price of a node per hour; give --node-price P")
    if "most_seeds" in values and request.decide is None:
        raise SpecError("--most-seeds requires --decide")
    if request.wait and request.plan:
        raise SpecError(WAITS)
    if request.gpu_memory is not None and request.gpu_fraction is not None:
        given = f"--gpu-memory {memory_text(request.gpu_memory)} --gpu-fraction {request.gpu_fraction:g}"
        raise SpecError(f"a cohort's share of a GPU must be given once, but got {given}")
    if request.debug and (request.address or request.plan):
        raise SpecError("--debug trains in this process; it cannot be combined with --address or --plan")
    if request.stack and (request.cohort is None or request.stack > request.cohort):
        given = f"--stack {request.stack} --cohort {request.cohort or 'auto'}"
        raise SpecError(f"--stack must not exceed --cohort, but got {given}")
    return request


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that options from Python set, which have their names with underscores. None and
    False leave an option as it is by default. Raises SpecError as the command line does."""
    known, values = options(), dict[str, Any]()
    for name, value in given.items():
        if name in OF_COMMAND_LINE:
            raise SpecError(f"'{name}' is an option of the command line alone")
        if name not in known:
            if name in RENAMED:
                raise SpecError(f"no option {name!r}; it is now {RENAMED[name]!r}")
            meant = SYNONYMS.get(letters(name), name)
            if " " in meant:
                raise SpecError(f"no option {name!r}; {meant}")
            if meant in hyperparameters():
                raise SpecError(f"no option {name!r}; a hyperparameter is given by set={{{meant!r}: {value!r}}}")
            raise SpecError(unknown("option", name, list(known)))
        if value is None or value is False:
            continue
        option = known[name]
        several = isinstance(value, Sequence) and not isinstance(value, str)
        if several and not option.many:
            raise SpecError(f"{name} must be one value, but got {value!r}")
        if option.switch and value is not True:
            raise SpecError(f"{name} must be true or false, but got {value!r}")
        words: Sequence[Any] = value if several else () if option.many == "words" and value is True else [value]
        read = [option.read(option.flag, word) if option.read else word for word in words]
        values[name] = read if option.many else read[0]
    return values


def run_parser(command: str, about: str, exits: str = "", hidden: Collection[str] = ()) -> Parser:
    """A parser of the options of a run or a plan; `--help` leaves out those that are `hidden`. An option that is not
    given is absent from what the parser returns, so that its default is that of `Request`."""
    parser = Parser(command, about, exits)
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"the sweep: {SWEEP}")
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for name, option in options().items():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        add_option(groups[option.group], option, argparse.SUPPRESS if name in hidden else option.text)
    return parser


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Key -> value of texts such as `lr=0.1`. Raises SpecError for another text, and for a key that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise SpecError(f"{option} takes KEY=VALUE, but got '{text}'")
        if key in found:
            raise _given_twice(option, key, found[key], value)
        found[key] = value
    return found


def values_of_axis(option: str, key: str, text: str) -> tuple[Text, ...]:
    """The values of a text such as `0,1` or `0..9`, of a key of an option without its dashes. Raises SpecError."""
    values = tuple(map(Text, listed(text)))
    if "" in values:
        raise SpecError(f"{option} {key} must have at least one value and no empty one, but got '{key}={text}'")
    return values


def _given_twice(option: str, key: str, first: object, second: object) -> SpecError:
    return SpecError(f"{option} must be given once per key, but got {key}={first} and {key}={second}")
