"""A cut-off cohort as bytes: all that is needed to go on, bit for bit on the CPU.

Nothing in it is code: it is read with `weights_only`, so bytes from a shared store cannot run anything here. A digest
goes before it, because torch reads a file with flipped bits without complaint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch

from trainables.config import TrialConfig
from trainables.contract import Member, Report

FORMAT = 4
DIGEST_SIZE = 32


@dataclass(frozen=True)
class Standing:
    """How far a cohort has come, apart from its weights."""

    epoch: int
    """Epochs completed."""
    seconds: float
    """Training seconds so far."""
    shares: tuple[float, ...]
    """Of each member its share of these."""
    ended: tuple[Member | None, ...]
    """Of each member that has diverged or was pruned what is to be reported, else None."""
    schedules: tuple[tuple[Mapping[str, float], ...], ...]
    """Of each member its moves: at which `epoch`, `from` which member, and its hyperparameters from then on."""
    reports: tuple[Report, ...]
    """Every report so far."""
    step: int = 0
    """Steps completed of the epoch that follows those completed."""
    sums: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Each loss of those that run `[K]`, summed over these steps; nothing where there are none."""

    @classmethod
    def at_start(cls, count: int) -> Self:
        """Of so many members."""
        return cls(0, 0.0, (0.0,) * count, (None,) * count, ((),) * count, ())

    @property
    def running(self) -> tuple[int, ...]:
        """Indices of the members that have not ended."""
        return tuple(index for index, member in enumerate(self.ended) if member is None)

    def later(self, seconds: float, epoch: int, step: int = 0, sums: Mapping[str, torch.Tensor] | None = None) -> Self:
        """So many seconds later, which those who run share, at this step of the training."""
        share, shares = seconds / max(1, len(self.running)), list(self.shares)
        for index in self.running:
            shares[index] += share
        seconds += self.seconds
        return replace(self, epoch=epoch, seconds=seconds, shares=tuple(shares), step=step, sums=sums or {})


def pack(configs: Sequence[TrialConfig], width: int | None, standing: Standing, state: Any) -> bytes:
    """A checkpoint of these configs."""
    buffer = io.BytesIO()
    content = {"format": FORMAT, "identity": _identity(configs, width), "state": state}
    torch.save(content | {"standing": dataclasses.asdict(standing)}, buffer)
    return sealed(buffer.getvalue())


def sealed(content: bytes) -> bytes:
    """The content after its digest."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content


def unpack(data: bytes, configs: Sequence[TrialConfig], width: int | None) -> tuple[Standing, Any] | None:
    """Standing and state, or None where the checkpoint is of other configs, another format, or damaged."""
    if data != sealed(data[DIGEST_SIZE:]):
        return None
    try:
        content = torch.load(io.BytesIO(data[DIGEST_SIZE:]), map_location="cpu", weights_only=True)
    except Exception:  # torch raises many kinds for what is no checkpoint, and training anew is right after each
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    if content.get("identity") != _identity(configs, width):
        return None
    standing = content["standing"]
    reports = [
        report | {"members": tuple(Member(**member) for member in report["members"])} for report in standing["reports"]
    ]
    parsed = {
        "ended": tuple(member and Member(**member) for member in standing["ended"]),
        "reports": tuple(Report(**report) for report in reports),
    }
    return Standing(**{**standing, **parsed}), content["state"]


def _identity(configs: Sequence[TrialConfig], width: int | None) -> list[Any]:
    return [width, *(config.flat() for config in configs)]
