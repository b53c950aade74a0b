"""The options of a run, from the command line or from Python, and what they make: a `Request`.

On the command line they may also ask for something that runs no sweep. A wrong argument raises SpecError with one line.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

from sweeper.cli.parser import (
    COMMAND,
    EXIT_OK,
    Parser,
    alarm_rate,
    amount,
    auto,
    class_name,
    data_folder,
    fraction,
    gpu_memory,
    hyperparameters,
    keep,
    named,
    node_price,
    one_of,
    order,
    track,
    warm_start,
    whole,
)
from sweeper.errors import SpecError
from sweeper.printing import print
from sweeper.request import Compile, Request, SearchOptions, Text, memory_text
from sweeper.spec import registry
from sweeper.spec.function_sweep import MODES
from sweeper.spec.metric import Spread
from sweeper.spec.ranges import listed
from sweeper.spec.space import SAMPLERS
from trainables.synonyms import SYNONYMS, letters
from trainables.validation import unknown

MODULE = "python -m sweeper.run"
ABOUT = (
    "Run a sweep: its trials, on this machine or a Ray cluster, into a Parquet store. The same command continues it."
)
EXITS = (
    "Exit status: 0 every trial has a result; 1 some trials failed, or all trials of a search diverged; 2 the request "
    "was wrong; 130 interrupted, or stopped by --hours or --cost before every trial had a result."
)
SWEEP = "one that `sweeper list` shows, a file (path/to/my_sweep.py) or a module (package.module:SWEEP)"
DESCRIBED = (
    "a method and its keys, a data set, a key, a metric or a sweep, or list all `keys`, `methods`, `datasets` or "
    "`metrics`"
)
WAITS = "--wait waits before a run; it cannot be combined with --restore or --plan"
OF_COMMAND_LINE = ("describe", "help", "json", "list", "plan", "restore", "version")
"""Options with which the command line does something else than to run or to plan a sweep, or says it otherwise."""
REPEATED = ("decide", "track")
"""Options that take several values."""
PRUNERS = ("none", "halving", "hyperband")


@dataclass(frozen=True)
class Listing:
    """List the sweeps."""


@dataclass(frozen=True)
class Description:
    """Describe what has this name."""

    name: str


@dataclass(frozen=True)
class Restoration:
    """Bring back what a run with `--fresh` set aside."""

    sweep: str
    store: str
    time: str
    """Name of the folder below `_replaced/`."""


Command = Request | Listing | Description | Restoration


def parse_command(arguments: Sequence[str]) -> Command:
    """Parse the arguments of `python -m sweeper.run`, or of what the user typed instead: `sweeper run`, `plan`, `list`,
    `describe` or `restore`. Raises SpecError for wrong arguments; `--help` prints and exits."""
    _, _, typed = os.environ.get(COMMAND, "").partition(" ")
    if typed == "list":
        Parser(MODULE, description="List the sweeps and their presets.").parse_args(arguments)
        return Listing()
    if typed == "describe":
        parser = Parser(MODULE, description=f"Describe {DESCRIBED}.")
        parser.add_argument("name", metavar="WHAT", help="a name, or keys, methods, datasets, metrics or ours")
        return Description(**vars(parser.parse_args(arguments)))
    if typed == "restore":
        parser = Parser(MODULE, description="Bring back what a run with --fresh set aside. Nothing is trained.")
        parser.add_argument("sweep", metavar="NAME", help=f"the sweep: {SWEEP}")
        parser.add_argument("time", metavar="TIME", help="when it was set aside, as that run has printed")
        store, folder = partial(named, "--store", "a folder"), "folder or URI (s3, gs) of the results"
        parser.add_argument("--store", default=Request.store, type=store, metavar="URI", help=folder)
        return Restoration(**vars(parser.parse_args(arguments)))
    if typed == "plan":
        parser, options = run_parser(description="Print what a run with the same arguments would do, and run nothing.")
        options["debug"].help = options["wait"].help = argparse.SUPPRESS  # of a run alone
        return _typed_request({**vars(parser.parse_args(arguments)), "plan": True})
    parser, _ = run_parser(description=ABOUT, epilog=EXITS)
    add = parser.add_argument_group("instead of running").add_argument
    add("--plan", action="store_true", help="print what would run; --probe and --json belong to it")
    add("--list", action="store_true", help="list the sweeps and their presets")
    add("--describe", metavar="WHAT", help=f"describe {DESCRIBED}")
    add("--restore", metavar="TIME", help="bring back what --fresh set aside at TIME")
    values = vars(parser.parse_args(arguments))
    lists, described, time = (values.pop(mode) for mode in ("list", "describe", "restore"))
    if values["name"] is None and (lists or described is not None):
        values["name"] = ""
    request = _typed_request(values)
    if time is not None and (request.fresh or request.plan):
        raise SpecError("--restore cannot be combined with --fresh or --plan")
    if time is not None and request.wait:
        raise SpecError(WAITS)
    if lists:
        return Listing()
    if time is not None:
        return Restoration(request.name, request.store, time)
    return request if described is None else Description(described)


def parse(arguments: Sequence[str]) -> Request:
    """Parse the arguments of a run or a plan. Raises SpecError for those of anything else."""
    command = parse_command(arguments)
    if not isinstance(command, Request):
        raise SpecError("--list, --describe and --restore run no sweep")
    return command


def _typed_request(values: Mapping[str, Any]) -> Request:
    """The request of values as a parser returns them."""
    if values["name"] is None:
        raise SpecError("the name of a sweep is required; --list shows all sweeps")
    fixed = {key: Text(text) for key, text in pairs("--set", values.get("set", ())).items()}
    axes, replicates = (
        {key: _values(option, key, text) for key, text in pairs(f"--{option}", values.get(option, ())).items()}
        for option in ("axis", "replicates")
    )
    typed = {key: value for key, value in values.items() if key not in ("set", "axis")}
    return request_of({**typed, "fixed": fixed, "axes": axes, "replicates": replicates})


def request_of(values: Mapping[str, Any]) -> Request:
    """Return the request with these values: fields of `Request` and of `SearchOptions`, and `normal_class`. Raises
    SpecError if they cannot be combined."""
    search = {field.name: values[field.name] for field in fields(SearchOptions) if field.name in values}
    own = {key: value for key, value in values.items() if key not in (*search, "normal_class")}
    request = Request(**own, search=SearchOptions(**search))
    if (normal_class := values.get("normal_class")) is not None:
        if "normal_class" in request.fixed:
            known = request.fixed["normal_class"]
            raise _given_twice("--set", "normal_class", known, normal_class)
        request = replace(request, fixed={**request.fixed, "normal_class": normal_class})
    for option, asked in (("--set", request.fixed), ("--axis", request.axes)):
        if both := next((key for key in request.replicates if key in asked), None):
            raise SpecError(f"{both} must be given by {option} or by --replicates, but is given by both")
    for option in ("json", "probe"):
        if getattr(request, option) and not request.plan:
            raise SpecError(f"--{option} requires --plan")
    if request.cost is not None and request.node_price is None:
        raise SpecError(f"--cost {request.cost:g} needs the price of a node per hour; give --node-price P")
    if "most_seeds" in values and request.decide is None:
        raise SpecError("--most-seeds requires --decide")
    if request.wait and request.plan:
        raise SpecError(WAITS)
    if request.gpu_memory is not None and request.fraction is not None:
        given = f"--gpu-memory {memory_text(request.gpu_memory)} --gpu-fraction {request.fraction:g}"
        raise SpecError(f"a cohort's share of a GPU must be given once, but got {given}")
    if request.debug and (request.address or request.plan):
        raise SpecError("--debug trains in this process; it cannot be combined with --address or --plan")
    if request.stack and (request.cohort is None or request.stack > request.cohort):
        given = f"--stack {request.stack} --cohort {request.cohort or 'auto'}"
        raise SpecError(f"--stack must not exceed --cohort, but got {given}")
    return request


def read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that options from Python set, which have their names with underscores. None and
    False leave an option as it is by default. Raises SpecError as the command line does."""
    (_, actions), values = run_parser(), dict[str, Any]()
    for option, value in options.items():
        if option in OF_COMMAND_LINE:
            raise SpecError(f"'{option}' is an option of the command line alone")
        if option not in actions:
            meant = SYNONYMS.get(letters(option), option)
            if " " in meant:
                raise SpecError(f"no option {option!r}; {meant}")
            if meant in hyperparameters():
                raise SpecError(f"no option {option!r}; a hyperparameter is given by set={{{meant!r}: {value!r}}}")
            raise SpecError(unknown("option", option, list(actions)))
        if value is None or value is False:
            continue
        action = actions[option]
        several = isinstance(value, Sequence) and not isinstance(value, str)
        if several and option not in REPEATED:
            raise SpecError(f"{option} must be one value, but got {value!r}")
        if action.nargs == 0 and value is not True:
            raise SpecError(f"{option} must be true or false, but got {value!r}")
        given: Sequence[Any] = value if several else () if action.nargs == "*" and value is True else [value]
        read = [action.type(item) if callable(action.type) else item for item in given]
        values[action.dest] = read if option in REPEATED else read[0]
    return values


def run_parser(**about: str) -> tuple[Parser, dict[str, argparse.Action]]:
    """A parser of the options of a run or a plan, and these by their names with underscores. An option that is not
    given is absent from what the parser returns, so that its default is that of `Request`."""
    parser, options = Parser(MODULE, **about), dict[str, argparse.Action]()

    def add(
        flag: str, text: str, default: object = None, *, to: argparse._ActionsContainer = parser, **how: Any
    ) -> None:
        text = text if default is None else f"{text} (default: {default})"
        action = to.add_argument(flag, help=text, default=argparse.SUPPRESS, **how)
        options[flag.removeprefix("--").replace("-", "_")] = action

    parser.add_argument("name", nargs="?", metavar="NAME", help=f"the sweep: {SWEEP}")
    add("--preset", "one of the sweep's presets; by default the paper's")
    folder = partial(named, "--store", "a folder")
    add("--store", "folder or URI (s3, gs) of the results", Request.store, type=folder, metavar="URI")
    add("--data", "folder of the data sets", Request.data, type=data_folder, metavar="DIR")
    add("--set", "fix a hyperparameter", action="append", metavar="KEY=VALUE")
    add(
        "--axis",
        "vary a hyperparameter: seed=0,1,2, or a range, which stands for its numbers as if typed: seed=0..9 (whole "
        "numbers), beta=0..2:0.5 (in steps), 'lr=logspace(1e-4,0.1,4)' or linspace, both ends included",
        action="append",
        metavar="KEY=V1,V2",
    )
    add(
        "--normal-class",
        "train on this class alone: its name for images of your own (--set dataset=folder), else its index",
        type=class_name,
        metavar="NAME",
    )
    add(
        "--metric",
        "of a function or a command in place of NAME: the metric that ranks its trials, with --mode",
        type=partial(named, "--metric", "a metric"),
        metavar="METRIC",
    )
    add(
        "--mode",
        "whether that metric is better high or low",
        type=partial(one_of, "value of --mode", tuple(MODES)),
        metavar="max|min",
    )
    add(
        "--metrics-from",
        "of a command in place of NAME: the file $SWEEPER_REPORT, or its standard output",
        Request.metrics_from,
        type=partial(one_of, "value of --metrics-from", ("report", "stdout")),
        metavar="report|stdout",
    )
    add("--probe", "in a plan: measure now what the plan depends on", action="store_true")
    add("--json", "in a plan: print JSON", action="store_true")
    add(
        "--node-price",
        "price of a node (a machine that trains) per hour, or one for each kind of GPU (H100=9,T4=0.6). The rows get "
        "the cost of each trial's device seconds. In a plan the cost covers the nodes of the devices seen, from the "
        "first cohort to the last, but neither the head nor idle time",
        type=node_price,
        metavar="P",
    )
    add(
        "--hours",
        "stop in order before so many hours have passed: no cohort is started that cannot end in time, and the last "
        "line says what is left. The same command continues",
        type=partial(amount, "--hours", positive=True),
        metavar="H",
    )
    add(
        "--cost",
        "the same before the nodes have cost so much, at --node-price, since the first cohort began",
        type=partial(amount, "--cost", positive=True),
        metavar="C",
    )
    add(
        "--decide",
        "add seeds to the trials of claims that the rows leave undecided, until these are decided: the named ones, or "
        "all that the preset can judge. Repeated looks are paid for",
        nargs="*",
        metavar="CLAIM",
    )
    most_seeds = partial(whole, "--most-seeds", 1)
    add(
        "--most-seeds",
        "with --decide: most seeds, the preset's included",
        Request.most_seeds,
        type=most_seeds,
        metavar="N",
    )
    add(
        "--order",
        "which cohorts of a grid start first: those with every other value of each numeric axis (coarse), as the grid "
        "has them (given), or any (shuffled). The cohorts and their rows stay the same",
        "given",
        type=order,
        metavar="coarse|shuffled[:SEED]|given",
    )
    add("--cohort", "number of trials that train together in one process", "auto", type=auto, metavar="N|auto")
    stack = partial(whole, "--stack", 1)
    add("--stack", "with --cohort N: number of trials stepped as one", "all N", type=stack, metavar="N")
    share = "share of a GPU (without GPUs: of a core) per cohort"
    add("--gpu-fraction", share, "auto", dest="fraction", type=fraction, metavar="F|auto")
    add(
        "--gpu-memory",
        "memory of a GPU that a cohort may take, in its place: 8GB. As many share a GPU as have room",
        type=gpu_memory,
        metavar="SIZE",
    )
    cluster = partial(named, "--address", "a Ray cluster")
    add("--address", "Ray cluster: host:port, ray://host:port, auto, or local (default)", type=cluster)
    add(
        "--debug",
        "train in this process without Ray, one cohort after the other. Breakpoints and prints of your code work in "
        "training, though not in the checks before it; an exception opens pdb, whose q ends the run. Nothing is tried "
        "again",
        action="store_true",
    )
    retries = partial(whole, "--retries", 0)
    add("--retries", "how often a failed cohort is tried again", Request.retries, type=retries, metavar="N")
    seconds, often = partial(amount, "--save-every"), f"{Request.save_every:g}"
    add("--save-every", "time between checkpoints of a cohort", often, type=seconds, metavar="SECONDS")
    patience, long = partial(amount, "--patience", positive=True), f"{Request.patience:g}"
    add("--patience", "time without a step after which a cohort is given up", long, type=patience, metavar="SECONDS")
    add(
        "--keep",
        "trained models to keep: the best of each cell of heatmaps and tables and of each study, all, or none. After a "
        "comma the epochs: every=N keeps models of every N epochs, too, and best-epoch in place of the last epoch's "
        "model that of the epoch with the best validation metric",
        Request.keep.trials,
        type=keep,
        metavar="best|all|none[,every=N][,best-epoch]",
    )
    add(
        "--spread",
        "beside the means of heatmaps and tables: their 95 %% interval over replicates, or the standard deviation of "
        "these",
        Request.spread,
        type=partial(one_of, "value of --spread", get_args(Spread)),
        metavar="interval|deviation",
    )
    add(
        "--alarm-rate",
        "of trials on one class: false-alarm rate at which the end names the best trial's threshold, from scores of "
        "held-out normal images, and its sheet flags test images",
        type=alarm_rate,
        metavar="RATE",
    )
    add(
        "--compile",
        "compile training steps with the C++ compiler g++: always, never, or (auto) on CPU cores where that saves more "
        "time than it takes; a continued sweep keeps its steps unless always or never is given",
        Request.compile,
        type=partial(one_of, "value of --compile", get_args(Compile)),
        metavar="auto|always|never",
    )
    add(
        "--track",
        "send each trial as a run to tensorboard (TARGET: a folder), mlflow (a server's URI) or wandb (a project); may "
        "be given for several trackers",
        type=partial(track, "--track"),
        action="append",
        metavar="TRACKER[=TARGET]",
    )
    add(
        "--wait",
        "wait until no other driver runs this sweep on this store; else their work is shared",
        action="store_true",
    )
    add("--fresh", "set the rows of these trials aside and train them again; keep all others", action="store_true")
    add_search = partial(add, default="the preset's", to=parser.add_argument_group("searches"))
    add_search(
        "--trials",
        "trials of each study; with replicates its proposals",
        type=partial(whole, "--trials", 1),
        metavar="N",
    )
    add_search("--wave", "trials or proposals made at once", type=partial(whole, "--wave", 1), metavar="N")
    add_search(
        "--replicates",
        "train each proposal with each of these values, and search for the best mean: seed=0,1,2. May be given for "
        "several keys",
        action="append",
        metavar="KEY=V1,V2",
    )
    sampler, pruner = partial(one_of, "sampler", SAMPLERS), partial(one_of, "pruner", PRUNERS)
    add_search("--sampler", f"one of {', '.join(SAMPLERS)}", type=sampler, metavar="NAME")
    pruners = f"one of {', '.join(PRUNERS)}: end the worse trials at rungs, of grids, too"
    add_search("--pruner", pruners, type=pruner, metavar="NAME")
    add_search(
        "--search-seed", "seed of the sampler", dest="seed", type=partial(whole, "--search-seed", 0), metavar="N"
    )
    warm = (
        "begin with the store's results of another sweep, of trials with the same data and epochs; any-epochs: also of "
        "trials with other epochs"
    )
    add("--warm-start", warm, to=add_search.keywords["to"], type=warm_start, metavar="SWEEP[,any-epochs]")
    return parser, options


def list_sweeps() -> int:
    """Print all sweeps and their presets. A sweep that cannot be read gets one line on standard error."""
    for name in registry.names():
        try:
            sweep = registry.find(name)
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        sizes = ", ".join(f"{preset} ({sweep.trial_count(preset)} trials)" for preset in sweep.presets)
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK


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


def _values(option: str, key: str, text: str) -> tuple[Text, ...]:
    values = tuple(map(Text, listed(text)))
    if "" in values:
        raise SpecError(f"{option} {key} must have at least one value and no empty one, but got '{key}={text}'")
    return values


def _given_twice(option: str, key: str, first: object, second: object) -> SpecError:
    return SpecError(f"{option} must be given once per key, but got {key}={first} and {key}={second}")
