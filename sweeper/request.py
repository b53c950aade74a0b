"""What a user asks for, on the command line or in Python: one `Request`, not yet checked against any sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweeper.errors import SpecError
from sweeper.spec import registry
from sweeper.spec.function_sweep import FunctionSweep
from sweeper.spec.metric import Spread
from sweeper.spec.space import Value
from sweeper.spec.sweep import Sweep
from trainables.reports import SAVE_EVERY

KeptTrials = Literal["best", "all", "none"]


@dataclass(frozen=True)
class Keep:
    """`--keep`: which trained models stay in the store."""

    trials: KeptTrials = "best"
    """Of which trials: the best of each cell, all, or none."""
    every: int | None = None
    """Epochs between two models of each of these trials that are kept beside its model; None keeps no others."""
    best_epoch: bool = False
    """Whether a trial's model is that of its best epoch, and not of its last one."""


Compile = Literal["auto", "always", "never"]
"""Whether steps are compiled. With `auto` a sweep that is continued goes on as it was begun, and the steps of a new one
on CPU cores are compiled where that saves more time than it takes."""


OrderKind = Literal["given", "coarse", "shuffled"]


@dataclass(frozen=True)
class Order:
    """`--order`: which cohorts of a grid start first."""

    kind: OrderKind = "given"
    """`given`: as the grid has them. `coarse`: every other value of each numeric axis first. `shuffled`: at random."""
    seed: int = 0
    """Of `shuffled`: what determines the order."""


class Text(str):
    """The value of a hyperparameter as it was typed. A plan makes it a value of its key's type; values from Python have
    one already, which is only checked."""


def memory_text(size: int) -> str:
    """Return a size of memory in bytes as `--gpu-memory` takes it, such as `8GB`."""
    return f"{size / 1e9:.4g}GB"


OTHERS = ""
"""Key of the price of all nodes that have no price of their own."""


@dataclass(frozen=True)
class NodePrice:
    """Prices of nodes per hour, in any currency: one for all nodes, or one for each kind of GPU."""

    prices: Mapping[str, float]
    """Ray's name of a node's GPUs, e.g. `H100`, or `OTHERS` -> price."""

    def of(self, kind: str) -> float | None:
        """Return the price of a node with GPUs of this kind (empty: without GPUs); None if it has none."""
        return self.prices.get(kind, self.prices.get(OTHERS))

    @property
    def plain(self) -> float | dict[str, float]:
        """The prices as JSON: a number if all nodes have the same, else kind -> price, with `OTHERS` as a kind."""
        return self.prices[OTHERS] if self.prices.keys() == {OTHERS} else dict(self.prices)

    @property
    def text(self) -> str:
        """The prices as the command line takes them, e.g. `2.5` or `2.5,H100=9`."""
        return ",".join(f"{kind}={price:g}" if kind else f"{price:g}" for kind, price in self.prices.items())


@dataclass(frozen=True)
class TrackRequest:
    """`--track TRACKER[=TARGET]`."""

    tracker: str
    target: str | None = field(default=None, repr=False)  # it may hold a password
    """TensorBoard: a folder. MLflow: the URI of a server. W&B: a project. None takes the default."""


@dataclass(frozen=True)
class WarmStartRequest:
    """`--warm-start`: whose results in the store a search begins with."""

    sweep: str
    any_epochs: bool = False
    """Whether rows of other epochs count, whose objective is another."""

    def __str__(self) -> str:
        return f"{self.sweep},any-epochs" if self.any_epochs else self.sweep


@dataclass(frozen=True)
class SearchOptions:
    """Settings of a search that replace those of the preset; None keeps the preset's."""

    trials: int | None = None
    wave: int | None = None
    sampler: str | None = None
    pruner: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Request:
    """The options of a run or a plan. Each field is the option of the same name unless it says otherwise."""

    name: str
    """The sweep: a name, a file or a module (`registry.find`); that of `sweep` if it is given."""
    sweep: Sweep | None = None
    """The sweep itself, given from Python; None finds it by its name."""
    preset: str | None = None
    """None is the sweep's first preset."""
    store: str = "results"
    data: str = "data"
    """Folder of the data sets."""
    fixed: Mapping[str, Value] = field(default_factory=dict)
    """`--set`: key -> value; a `Text` if it was typed."""
    axes: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """`--axis`: key -> values, each a `Text` if they were typed."""
    replicates: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """`--replicates`: key -> values over which a search takes the mean, each a `Text` if they were typed."""
    metric: str | None = None
    """Of a function that is run without a sweep's file: the metric that ranks its trials; None ranks by the time."""
    mode: Literal["max", "min"] | None = None
    """Whether that metric is to be high or low."""
    metrics_from: Literal["report", "stdout"] = "report"
    """Where a command that is run without a sweep's file says its metrics."""
    order: Order = Order()
    cohort: int | None = None
    """Number of members of a cohort; None chooses it by measurement."""
    stack: int | None = None
    """Number of members stepped together; None is the whole cohort, or is chosen together with `cohort`."""
    fraction: float | None = None
    """`--gpu-fraction`: share of a GPU, or of a CPU core, for each cohort. With None a grid chooses it by measurement,
    and a search takes a whole device."""
    gpu_memory: int | None = None
    """Bytes of a GPU that a cohort may take, in place of `fraction`."""
    address: str | None = None
    debug: bool = False
    """Train in this process, one cohort after the other, and open a debugger at an exception."""
    retries: int = 3
    save_every: float = SAVE_EVERY
    """Seconds between the checkpoints of a cohort."""
    patience: float = 600.0
    """Seconds without a training step after which a cohort is given up."""
    keep: Keep = Keep()
    spread: Spread = "interval"
    """What stands beside the means of heatmaps and tables."""
    alarm_rate: float | None = None
    """False-alarm rate of the threshold that the best trial on one class is shown with; None shows none."""
    compile: Compile = "auto"
    track: Sequence[TrackRequest] = ()
    node_price: NodePrice | None = None
    """Price of a node per hour, for the cost of the plan or of each trial."""
    hours: float | None = None
    """Hours after which the run stops in order; None is no limit."""
    cost: float | None = None
    """Cost of the nodes, from the first cohort on, at which the run stops in order; None is no limit."""
    decide: Sequence[str] | None = None
    """Claims, or rows of the ledger, for which seeds are added until they are decided; all without a name. None adds
    none."""
    most_seeds: int = 10
    """Most seeds of a trial that `decide` makes, those of the request included."""
    plan: bool = False
    """Say what would run, and run nothing."""
    probe: bool = False
    """With `plan`: measure what it depends on."""
    json: bool = False
    """With `plan`: say it as JSON."""
    wait: bool = False
    """Wait until no other driver runs the sweep."""
    fresh: bool = False
    search: SearchOptions = SearchOptions()
    warm_start: WarmStartRequest | None = None

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
        return self.fraction is not None or self.gpu_memory is not None

    @property
    def data_folder(self) -> Path | None:
        """Folder of the data sets, or None for a plan that measures nothing and therefore needs no data."""
        return None if self.plan and not self.probe else Path(self.data)
