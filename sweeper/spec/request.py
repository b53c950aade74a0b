"""What a user asked for on the command line, as typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """What the user asked for, not yet checked against any sweep."""

    name: str | None
    preset: str | None
    store: str
    data: str
    fixed: Mapping[str, str]
    """Key -> value as typed."""
    axes: Mapping[str, tuple[str, ...]]
    """Key -> values as typed."""
    cohort: int | None
    """Members of a cohort; None chooses by measurement."""
    stack: int | None
    """Members stepped as one; None stacks the whole cohort, or chooses with it."""
    fraction: float | None
    """Share of a GPU, or of a CPU core, that a cohort takes; None is a whole one."""
    address: str | None
    retries: int
    save_every: float
    patience: float
    list: bool
    describe: str | None
    """A method, data set or metric that is to be explained, and nothing run."""
    plan: bool
    probe: bool
    node_price: float | None
    json: bool
    fresh: bool
    restore: str | None
    """Which of the folders below `_replaced/` is brought back; nothing is run."""
    search: SearchWords
    warm_start: str | None
    """A sweep whose rows in the store a search begins with."""

    @property
    def data_read(self) -> Path | None:
        """The folder of the data sets; None for a plan that measures nothing, which needs no data."""
        return None if self.plan and not self.probe else Path(self.data)


@dataclass(frozen=True)
class SearchWords:
    """What is to be other than the preset's search says; None leaves it."""

    trials: int | None = None
    wave: int | None = None
    sampler: str | None = None
    pruner: str | None = None
    seed: int | None = None
