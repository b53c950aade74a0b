"""What the devices of a world did, by its clock, and what reports and rows must say of that."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.sweeps import PRICES
from trainables.worker.messages import CohortReport, CohortTask, DeviceShare

Amounts = tuple[float, float | None, float | None]
"""Seconds, device seconds and cost."""
CLOSE = 1e-6
"""Seconds that sums in another order may differ by."""


@dataclass
class Accounts:
    """Counts the seconds for which workers train, beside those that the product counts."""

    note: Callable[[str], None]
    occupied: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Cohort -> seconds for which workers of all drivers had it."""
    _reported: dict[str, list[Amounts]] = field(default_factory=lambda: defaultdict(list))
    """Trial -> its amounts in each report from which its row may be."""

    def sent(self, task: CohortTask, message: CohortReport, steps: float, by_member: Mapping[int, float]) -> None:
        """Judge a report as a worker sends it. `steps`: seconds of the steps that this worker has made; `by_member`:
        those of each member since it began, also on workers before; empty if these are not known, as of functions."""
        report = message.report
        for trial, member in zip(task.trials, report.members, strict=True):
            if message.waits or member.status != "running":  # one that waits at a rung may be pruned there
                self._reported[trial].append(_amounts(member.seconds, message.origin.share))
        if not report.done:
            return
        for index, seconds in by_member.items():
            said = report.members[index].seconds
            if abs(said - seconds) > CLOSE:
                trial = task.trials[index]
                self.note(f"{trial} says that it trained for {said:.6f} s, but its steps took {seconds:.6f} s")
        if (whole := sum(member.seconds for member in report.members)) < steps - CLOSE:
            self.note(f"cohort {task.cohort} says that it trained for {whole:.6f} s, but its steps took {steps:.6f} s")

    def wrote(self, row: Mapping[str, Any]) -> None:
        """Judge a row that has come to the store."""
        said, known = _amounts_in(row), [*self._reported[row["trial_id"]]]
        if row["status"] == "failed":
            known.append((0.0, None, None))
        if said[0] < 0 or not any(map(_alike, known, [said] * len(known))):
            self.note(f"the row of {row['trial_id']} has seconds, device seconds and cost {said}, not one of {known}")

    def merge(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add what another store has spent."""
        for row in rows:
            self._reported[row["trial_id"]].append(_amounts_in(row))
            self.occupied[row["cohort"]] += row["seconds"]

    def judge(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Judge the rows at the end of all: no cohort has more seconds than its workers had it for."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for row in rows:
            seconds[row["cohort"]] += row["seconds"]
        for cohort, said in seconds.items():
            if said > (most := self.occupied[cohort]) + CLOSE:
                self.note(f"cohort {cohort} has {said:.6f} s in rows, but workers had it for {most:.6f} s")


def _amounts_in(row: Mapping[str, Any]) -> Amounts:
    return row["seconds"], row.get("device_seconds"), row.get("cost")


def _amounts(seconds: float, share: DeviceShare) -> Amounts:
    devices = seconds * share.devices
    return seconds, devices, PRICES[share.kind] / 3600 * devices / share.node_devices


def _alike(first: Amounts, second: Amounts) -> bool:
    pairs = zip(first, second, strict=True)
    return all(one == other if one is None or other is None else math.isclose(one, other) for one, other in pairs)
