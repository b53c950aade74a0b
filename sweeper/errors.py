"""Every error that a sweep reports to its user. Each message is one line, fit for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

DAMAGED = "_damaged"
"""The folder of the store where a run moves files that are damaged. Readers of Parquet ignore it."""


class ClusterError(Exception):
    """There is no cluster to run on: one line that says why."""


class SpecError(Exception):
    """A request that no sweep can serve: one line that states the law, the offender and the choices."""


class StoreError(Exception):
    """The store cannot do what was asked; the message is one line for the person at the terminal."""


class SchemaError(StoreError):
    """Two sets of columns that cannot live in one sweep; the message names the first column that differs."""


class DamagedError(StoreError):
    """Bytes that are not what was written; the message says how that shows, and not in which file."""


class DamagedFiles(StoreError):
    """Files that cannot be read. The message names the first of them, the reason, and the way out."""

    def __init__(self, shown: str, reasons: Mapping[str, str]) -> None:
        """`shown` is the store; `reasons`: by each file's path in it why it cannot be read, of at least one file."""
        path, reason = next(iter(reasons.items()))
        others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        super().__init__(
            f"store {shown}: '{path}' is damaged: {reason}{others}; run the sweep again, which moves damaged files to "
            f"'{DAMAGED}' and trains their trials again"
        )
        self.reasons = dict(reasons)


class NodeLost(ClusterError):
    """A Ray process that this driver depends on has died."""


class JobLost(ClusterError):
    """The cluster does not answer: what becomes of its jobs is not known."""
