"""What a user asks for, on the command line or in Python: one `Request`, not yet checked against any sweep.

Each option is declared once, on its field: the command line, Python's keywords and the completion of shells are made of
`options`.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

from sweeper.definition import registry
from sweeper.definition.function_sweep import FunctionSweep
from sweeper.definition.metric import Spread
from sweeper.definition.space import SAMPLERS, Sampler, Value
from sweeper.definition.sweep import Sweep
from sweeper.errors import SpecError
from sweeper.masking import is_uri
from sweeper.option_values import (
    DeviceChoice,
    Keep,
    NodePrice,
    Order,
    Reader,
    TrackRequest,
    WarmStartRequest,
    amount,
    class_name,
    command_words,
    data_dir,
    device_share,
    memory,
    named,
    one_of,
    rate,
    whole,
    whole_or_auto,
)
from trainables.reports import SAVE_EVERY
from trainables.validation import field_docs

PrunerName = Literal["none", "halving", "hyperband"]
PRUNERS: tuple[str, ...] = get_args(PrunerName)
COUNT = partial(whole, least=1)


@dataclass(frozen=True)
class Option:
    """How a field of `Request` is given. What is not said here, `options` takes from the field."""

    metavar: str = ""
    """What stands for its value in `--help`; for the values of a Literal these."""
    read: Reader | None = None
    """What makes a value of the field; by default one of a Literal, or text as it is."""
    flag: str = ""
    """By default the field's name: `--gpu-memory` for `gpu_memory`."""
    help: str = ""
    """By default the docstring below the field."""
    default: str = ""
    """How `--help` shows the default; by default that of the field."""
    group: str = ""
    """Heading under which `--help` lists it."""
    many: Literal["", "times", "words"] = ""
    """Whether it takes several values: it is given several times, or several words follow it."""
    switch: bool = False
    """Whether it takes no value, as one whose field is False by default."""

    @property
    def text(self) -> str:
        """What it means, and its default."""
        return f"{self.help} (default: {self.default})" if self.default else self.help


OfSearch = partial(Option, group="searches", default="the preset's")
"""An option that replaces a setting of the preset's searches; None keeps it."""


@dataclass(frozen=True)
class Request:
    """The options of a run or a plan. The docstring of a field that has an `Option` is its text in `--help`."""

    name: str
    """The sweep: a name, a file or a module (`registry.find`); that of `sweep` if it is given."""
    sweep: Sweep | None = None
    """The sweep itself, given from Python; None finds it by its name."""
    preset: Annotated[str | None, Option()] = None
    """One of the sweep's presets; by default the paper's."""
    store: Annotated[str, Option("URI", partial(named, noun="a folder"))] = "results"
    """Folder or URI (s3, gs) of the results."""
    data: Annotated[str, Option("DIR", data_dir)] = "data"
    """Folder of the data sets."""
    # `Text` as typed in `fixed`, `axes` and `replicates`, which a plan makes values of the types of their keys
    fixed: Annotated[
        Mapping[str, Value],
        Option("KEY=VALUE", flag="--set", many="times"),
        Option(
            "NAME",
            class_name,
            flag="--normal-class",
            help="train on this class alone: its name for images of your own (--set dataset=folder), else its index",
        ),
    ] = field(default_factory=dict)
    """Fix a hyperparameter."""
    axes: Annotated[Mapping[str, tuple[Value, ...]], Option("KEY=V1,V2", flag="--axis", many="times")] = field(
        default_factory=dict
    )
    """Vary a hyperparameter: seed=0,1,2, or a range, which is the same as listing its numbers: seed=0..9 (whole
    numbers), beta=0..2:0.5 (in steps), 'lr=logspace(1e-4,0.1,4)' or linspace, both ends included."""
    metric: Annotated[str | None, Option("METRIC", partial(named, noun="a metric"))] = None
    """Of a function or a command in place of NAME: the metric that ranks its trials, with --mode."""
    mode: Annotated[Literal["max", "min"] | None, Option()] = None
    """Whether that metric is better high or low."""
    metrics_from: Annotated[Literal["report", "stdout"], Option()] = "report"
    """Of a command in place of NAME: the file $SWEEPER_REPORT, or its standard output."""
    measure: Annotated[bool, Option()] = False
    """In a plan: measure now what the plan depends on."""
    json: Annotated[bool, Option()] = False
    """Print JSON on standard output: of a run one object a line for each event, and all other lines on standard error;
    of a plan one object."""
    plan: bool = False
    """Say what would run, and run nothing."""
    node_price: Annotated[NodePrice | None, Option("P", NodePrice.read)] = None
    """Price of a node (a machine that trains) per hour, or one for each kind of GPU (H100=9,T4=0.6). The rows get the
    cost of each trial's device seconds. In a plan the cost covers the nodes of the devices seen, from the first cohort
    to the last, but neither the head nor idle time."""
    hours: Annotated[float | None, Option("H", partial(amount, positive=True))] = None
    """Stop in order before H hours have passed: no cohort is started that cannot end in time, and the last line says
    what is left. The same command continues."""
    cost: Annotated[float | None, Option("C", partial(amount, positive=True))] = None
    """Stop in order before the nodes have cost C, counted from the first cohort (needs --node-price)."""
    decide: Annotated[Sequence[str] | None, Option("CLAIM", many="words")] = None
    """Add seeds to the trials of claims that the rows leave undecided, until these are decided: the named ones, or all
    that the preset can judge. The significance level is split over the interim analyses."""
    most_seeds: Annotated[int, Option("N", COUNT)] = 10
    """With --decide: most seeds, the preset's included."""
    order: Annotated[Order, Option("coarse|shuffled[:SEED]|given", Order.read, default=Order.kind)] = field(
        default_factory=Order
    )
    """Which cohorts of a grid start first: those with every other value of each numeric axis (coarse), as the grid has
    them (given), or any (shuffled). The cohorts and their rows stay the same."""
    cohort: Annotated[int | None, Option("N|auto", whole_or_auto, default="auto")] = None
    """Number of trials that train together in one process."""
    stack: Annotated[int | None, Option("N", COUNT, default="all N")] = None  # chosen together with `cohort` if that is
    """With --cohort N: number of trials stepped as one."""
    gpu_fraction: Annotated[float | None, Option("F|auto", device_share, default="auto")] = None
    """Share of a GPU (without GPUs: of a core) per cohort."""  # None: a grid measures, a search takes a whole device
    gpu_memory: Annotated[int | None, Option("SIZE", memory)] = None
    """GPU memory per cohort, such as 8GB, instead of --gpu-fraction; as many cohorts as fit share a GPU."""
    address: Annotated[str | None, Option(read=partial(named, noun="a Ray cluster"))] = None
    """Address of a Ray cluster: host:port, ray://host:port, auto, or local (default)."""
    devices: Annotated[DeviceChoice | None, Option()] = None
    """Devices to train on; by default GPUs if the cluster has any or its autoscaler can start any, else CPU cores."""
    debug: Annotated[bool, Option()] = False
    """Train in this process without Ray, one cohort after the other. Breakpoints and prints of your code work in
    training, though not in the checks before it; an exception opens pdb, whose q ends the run. Nothing is tried
    again."""
    retries: Annotated[int, Option("N", partial(whole, least=0))] = 3
    """How often a failed cohort is tried again."""
    save_every: Annotated[float, Option("SECONDS", amount)] = SAVE_EVERY
    """Time between checkpoints of a cohort."""
    step_timeout: Annotated[float, Option("SECONDS", partial(amount, positive=True))] = 600.0
    """Treat a cohort as hung after this many seconds without a training step."""
    keep: Annotated[Keep, Option("best|all|none[,best-epoch]", Keep.read, default=Keep.trials)] = field(
        default_factory=Keep
    )
    """Trained models to keep: the best of each cell of heatmaps and tables and of each study, all, or none. 
    With best-epoch each of these models is that of the best validation epoch instead of the last."""
    spread: Annotated[Spread, Option()] = "interval"
    """What stands beside the means of heatmaps and tables: their 95 % interval over replicates, or the standard
    deviation of the replicates."""
    alarm_rate: Annotated[float | None, Option("RATE", rate)] = None
    """One-class trials: report the anomaly threshold of the best trial at this false-alarm rate, from scores of
    held-out normal images, and flag test images above it on its sample grid."""
    compile: Annotated[Literal["auto", "always", "never"], Option()] = "auto"
    """Compile training steps with the C++ compiler g++: always, never, or (auto) on CPU cores where that saves more
    time than it takes; a continued sweep keeps its steps unless always or never is given."""
    track: Annotated[Sequence[TrackRequest], Option("TRACKER[=TARGET]", TrackRequest.read, many="times")] = ()
    """Send each trial as a run to tensorboard (TARGET: a folder), mlflow (a server's URI) or wandb (a project); may be
    given for several trackers."""
    wait: Annotated[bool, Option()] = False
    """Wait until no other driver runs this sweep on this store; else their work is shared."""
    fresh: Annotated[bool, Option()] = False
    """Archive the rows of these trials and train them again; keep all others."""
    on_end: Annotated[Sequence[str], Option("COMMAND", command_words)] = ()
    """Run this command when the run ends, however it does, with a summary as JSON on its standard input: for mail or
    chat. It is a program and its arguments, without a shell."""
    trials: Annotated[int | None, OfSearch("N", COUNT)] = None
    """Trials of each study; with replicates its proposals."""
    wave: Annotated[int | None, OfSearch("N", COUNT)] = None
    """Trials or proposals made at once."""
    replicates: Annotated[
        Mapping[str, tuple[Value, ...]],
        OfSearch("KEY=V1,V2", many="times"),
    ] = field(default_factory=dict)
    """Train each proposal with each of these values, and search for the best mean: seed=0,1,2. May be given for
    several keys."""
    sampler: Annotated[Sampler | None, OfSearch(read=partial(one_of, choices=SAMPLERS, noun="sampler"))] = None
    """Sampler that proposes the trials."""
    pruner: Annotated[PrunerName | None, OfSearch(read=partial(one_of, choices=PRUNERS, noun="pruner"))] = None
    """Pruner that ends the worse trials at rungs, of grids, too."""
    search_seed: Annotated[int | None, OfSearch("N", partial(whole, least=0))] = None
    """Seed of the sampler."""
    warm_start: Annotated[
        WarmStartRequest | None, Option("SWEEP[,any-epochs]", WarmStartRequest.read, group="searches")
    ] = None
    """Begin with the store's results of another sweep, of trials with the same data and epochs; any-epochs: also of
    trials with other epochs."""

    def find_sweep(self) -> Sweep:
        """Return the sweep. Raises SpecError if there is none of its name."""
        sweep = self.sweep or registry.find(self.name)
        if isinstance(sweep, FunctionSweep):
            if self.metrics_from == "stdout":
                sweep = registry.find_command(self.name, self.metrics_from)
            return sweep.for_request(self.metric, self.mode, self.axes)
        if self.metric or self.mode or self.metrics_from != "report":
            raise SpecError(
                f"--metric, --mode and --metrics-from are for a function or a command, but {self.name} is a sweep"
            )
        return sweep

    @property
    def fixes_share(self) -> bool:
        """Whether the part of a device that a cohort takes is requested, and not chosen by measurement."""
        return self.gpu_fraction is not None or self.gpu_memory is not None

    @property
    def names_shared_store(self) -> bool:
        """Whether all machines of a cluster may reach the store: it is a URI, or a folder by its whole path."""
        return is_uri(self.store) or os.path.isabs(os.path.expanduser(self.store))

    @property
    def data_folder(self) -> Path | None:
        """Folder of the data sets, or None for a plan that measures nothing and therefore needs no data."""
        return None if self.plan and not self.measure else Path(self.data)


SHARED_STORE = (
    "--store must be a URI (s3://, gs://) or an absolute folder that the cluster's machines share, because a job "
    "runs in a temporary copy of the working directory"
)
"""The law of a job's store, see `Request.names_shared_store`."""
RENAMED = {"patience": "step_timeout", "probe": "measure"}
"""Earlier name of an option -> its name now."""


@functools.cache
def options() -> Mapping[str, Option]:
    """Map the name of each option, which has underscores, to all that is known of it, in the order of the fields."""
    hints, docs, found = get_type_hints(Request, include_extras=True), field_docs(Request), dict[str, Option]()
    for each in fields(Request):
        for option in getattr(hints[each.name], "__metadata__", ()):
            flag = option.flag or f"--{each.name.replace('_', '-')}"
            choices = _choices(hints[each.name])
            complete = replace(
                option,
                metavar=option.metavar or "|".join(choices),
                read=option.read or (partial(one_of, choices=choices) if choices else None),
                flag=flag,
                help=option.help or _sentence(docs[each.name]),
                default=option.default or _default(each.default),
                switch=each.default is False,
            )
            found[flag.removeprefix("--").replace("-", "_")] = complete
    return found


def _choices(hint: object) -> tuple[str, ...]:
    """The values of a Literal in a type."""
    inner = get_args(hint)
    if all(isinstance(value, str) for value in inner):
        return inner
    return next(filter(None, map(_choices, inner)), ())


def _sentence(doc: str) -> str:
    """A docstring as it stands among other options."""
    return doc[:1].lower() + doc[1:].removesuffix(".")


def _default(value: object) -> str:
    """The text of a default; empty where it is no value."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
