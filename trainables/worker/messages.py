"""Messages between the driver and the workers: a cohort's task, and the reports or the failure in reply.

A process that ends itself writes its failure to a file beside the cohort's checkpoint.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from trainables.config import resolve_sent
from trainables.json_input import JsonError, read_json
from trainables.reports import EpochRanking, Heartbeat, Report
from trainables.sections import TrialConfig
from trainables.training.population import PopulationRule

Cause = Literal["error", "machine", "hung", "memory", "device"]
"""Why a cohort failed: `error`: it raised an exception or its process died; `machine`: it lost its machine; `hung`: it
made no step for too long; `memory`: it needs more memory than it may use; `device`: the GPU of its node is unusable."""


@dataclass(frozen=True)
class Failure:
    """The failure of a cohort."""

    cause: Cause
    reason: str
    """One line for the user."""
    node: str = ""
    """Ray's id of the node with the unusable GPU, if known."""


@dataclass(frozen=True)
class CohortSpec:
    """Members that are trained together. Shared config values are sent only once."""

    shared: Mapping[str, Any]
    """Config values shared by all members."""
    own: tuple[Mapping[str, Any], ...]
    """The other config values of each member."""
    width: int
    """Number of members stacked at a time."""
    checkpoint: str
    """Path of the cohort's checkpoint."""
    compiled: bool = False
    """Whether steps are compiled."""

    @classmethod
    def of(cls, configs: Sequence[Mapping[str, Any]], width: int, checkpoint: str, compiled: bool = False) -> Self:
        """The cohort whose members have the flat `configs`."""
        absent = object()
        values = ((key, value, [config.get(key, absent) for config in configs]) for key, value in configs[0].items())
        shared = {key: value for key, value, of_each in values if of_each.count(value) == len(configs)}
        own = tuple({key: value for key, value in config.items() if key not in shared} for config in configs)
        return cls(shared, own, width, checkpoint, compiled)

    def configs(self) -> list[TrialConfig]:
        """The members' configs, resolved."""
        return [self.config(index) for index in range(len(self.own))]

    def config(self, index: int) -> TrialConfig:
        """The config of the member with this index, resolved."""
        return resolve_sent({**self.shared, **self.own[index]})


@dataclass(frozen=True)
class Comparison:
    """How the members of a cohort are compared during training. By default they are not compared."""

    metric: str = ""
    """Name of the metric by which members are compared at rungs."""
    rungs: frozenset[int] = frozenset()
    """Epochs at which members are compared with members of other cohorts."""
    decide: Callable[[int, Mapping[int, float | None]], Mapping[int, str] | None] = lambda epoch, values: {}
    """Maps a rung and the value of each running member (by index) to the pruned members with their reasons; None if
    values of other cohorts are not yet known. The cohort then saves and ends."""
    population: PopulationRule | None = None
    """The rule by which members copy each other."""


Kept = Literal["best", "all"]
"""Which models stay in the store: the best of each cell, or all."""


@dataclass(frozen=True)
class ModelRequest:
    """The models of a cohort's members that a worker keeps."""

    kept: Kept
    """Which trials' models stay in the store; recorded in every file."""
    ranking: EpochRanking | None = None
    """Ranking that determines the epoch of a trial's model: the best epoch. None takes the last epoch."""


@dataclass(frozen=True)
class CohortTask:
    """Everything that a worker needs to train a cohort."""

    cohort: str
    """Id of the cohort."""
    spec: CohortSpec
    comparison: Comparison = field(default_factory=Comparison)
    memory: int | None = None
    """Memory limit of each process in bytes; None for no limit."""
    models: ModelRequest | None = None
    """None keeps none."""
    trials: tuple[str, ...] = ()
    """Ids of the members' trials, in the order of their configs; needed if models or logs are kept."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Label selector of the nodes for several workers."""


@dataclass(frozen=True)
class Environment:
    """Versions of the software with which a process trains."""

    python: str
    torch: str
    cuda: str | None = None
    """Version of CUDA for which PyTorch was built; None on a CPU."""
    driver: str | None = None
    """Version of the GPU's driver; None on a CPU, or if unknown."""


@dataclass(frozen=True)
class DeviceShare:
    """The part of a node's devices that a cohort reserves."""

    devices: float = 1.0
    """Number of GPUs (or CPU cores, without GPUs) that all processes of the cohort reserve together: 0.25 for a
    quarter."""
    node_devices: float = 1.0
    """Number of devices of this kind on the node."""
    kind: str = ""
    """Ray's name of the GPU, e.g. `H100`; empty for cores and for GPUs that Ray does not name."""


ONLY_DEVICE = DeviceShare()
"""The entire single device of a node."""


@dataclass(frozen=True)
class Origin:
    """The process that reports."""

    device: str
    """Name of the GPU, or `cpu`."""
    host: str
    pid: int
    started: datetime
    """When the process began with the cohort."""
    environment: Environment | None = None
    share: DeviceShare = ONLY_DEVICE
    compiled: bool = False
    """Whether the process makes compiled steps."""


@dataclass(frozen=True)
class CohortReport:
    """A report of a cohort.

    The last report may contain pictures: with ten classes about 20 KB per member for `digits`, and up to 1.5 MB for
    colour images of 64 x 64 pixels. Ray sends results above 100 KB through its object store, whose memory is the only
    limit.
    """

    report: Report
    origin: Origin
    waits: bool = False
    """Whether the cohort ends with this report to wait for a verdict, because its epoch is a rung."""
    notice: str | None = None
    """A line for the user on a checkpoint that could not be used."""
    about_steps: str | None = None
    """A line for the user on why steps are not compiled although they should be, or on a damaged compiled step; sent
    once."""
    without_models: tuple[str, ...] = ()
    """Ids of the trials whose models could not be written, in the last report."""


Message = CohortReport | Heartbeat
"""A message that a worker sends while it trains."""


EXIT_SUFFIX = ".why"
"""Suffix that turns the path of the checkpoint into the path of the failure's file."""


def write_failure(write: Callable[[str, bytes], None], checkpoint: str, run: str, failure: Failure) -> None:
    """Write the failure with `write(path, data)`. `run` is the token of the dispatch that started the cohort."""
    write(checkpoint + EXIT_SUFFIX, json.dumps({"run": run, **asdict(failure)}).encode())


def parse_failure(data: bytes, run: str) -> Failure | None:
    """Return the failure in `data`; None if it is from a process of another run, or damaged."""
    try:
        failure: Failure = read_json(Failure, data)
        return failure if read_json(Mapping[str, str], data).get("run") == run else None
    except JsonError:
        return None
