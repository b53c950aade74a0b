"""The command line as typed, converted to types but not yet checked against any sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sweeper.spec.node_price import NodePrice
from sweeper.spec.sweep import Sweep

Keep = Literal["best", "all", "none"]
"""Which trained models stay in the store: the best trial of each cell, all, or none."""
Compile = Literal["auto", "always", "never"]
"""Whether steps are compiled. With `auto` a sweep that is continued goes on as it was begun, and the steps of a new one
on CPU cores are compiled where that saves more time than it takes."""


@dataclass(frozen=True)
class Request:
    """The options of `python -m sweeper.run`. Each field is the option of the same name unless it says otherwise."""

    name: str | None
    """The sweep: a name, a file or a module (`registry.find`); None with `--list` or `--describe`."""
    preset: str | None
    """None is the sweep's first preset."""
    store: str
    data: str
    """Folder of the data sets."""
    fixed: Mapping[str, str]
    """`--set`: key -> value, as typed."""
    axes: Mapping[str, tuple[str, ...]]
    """`--axis`: key -> values, as typed."""
    cohort: int | None
    """Number of members of a cohort; None chooses it by measurement."""
    stack: int | None
    """Number of members stepped together; None is the whole cohort, or is chosen together with `cohort`."""
    fraction: float | None
    """`--gpu-fraction`: share of a GPU, or of a CPU core, for each cohort. With None a grid chooses it by measurement,
    and a search takes a whole device."""
    address: str | None
    retries: int
    save_every: float
    """Seconds between the checkpoints of a cohort."""
    patience: float
    """Seconds without a training step after which a cohort is given up."""
    list: bool
    describe: str | None
    """The method, data set or metric to explain; nothing is run."""
    plan: bool
    probe: bool
    node_price: NodePrice | None
    """Price of a node per hour, for the cost of the plan or of each trial."""
    json: bool
    wait: bool
    """Wait until no other driver runs the sweep."""
    fresh: bool
    restore: str | None
    """Name of the folder below `_replaced/` to bring back; nothing is run."""
    track: Sequence[TrackRequest]
    search: SearchOptions
    warm_start: str | None
    """The sweep whose rows in the store a search begins with."""
    debug: bool = False
    """Train in this process, one cohort after the other, and open a debugger at an exception."""
    keep: Keep = "best"
    compile: Compile = "auto"
    sweep: Sweep | None = None
    """The sweep itself, given from Python; None finds it by its name."""

    @property
    def data_folder(self) -> Path | None:
        """Folder of the data sets, or None for a plan that measures nothing and therefore needs no data."""
        return None if self.plan and not self.probe else Path(self.data)


@dataclass(frozen=True)
class TrackRequest:
    """`--track TRACKER[=TARGET]`."""

    tracker: str
    target: str | None = field(default=None, repr=False)  # it may hold a password
    """TensorBoard: a folder. MLflow: the URI of a server. W&B: a project. None takes the default."""


@dataclass(frozen=True)
class SearchOptions:
    """Settings of a search that replace those of the preset; None keeps the preset's."""

    trials: int | None = None
    wave: int | None = None
    sampler: str | None = None
    pruner: str | None = None
    seed: int | None = None
