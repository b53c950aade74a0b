"""A cut-off cohort as bytes: all that is needed to go on, bit for bit on the CPU.

Nothing in it is code: it is read with `weights_only`, so bytes from a shared store cannot run anything here.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainables.config import TrialConfig
from trainables.contract import Member, Report

FORMAT = 1


@dataclass(frozen=True)
class Progress:
    """How far a cohort has come, apart from its weights."""

    epoch: int
    """Epochs completed."""
    seconds: float
    """Training seconds so far."""
    diverged: tuple[Member | None, ...]
    """Of each member that has diverged what is to be reported, else None."""
    reports: tuple[Report, ...]
    """Every report so far."""


def pack(configs: Sequence[TrialConfig], width: int | None, progress: Progress, state: Any) -> bytes:
    """A checkpoint of these configs."""
    buffer = io.BytesIO()
    content = {"format": FORMAT, "identity": _identity(configs, width), "state": state}
    torch.save(content | {"progress": dataclasses.asdict(progress)}, buffer)
    return buffer.getvalue()


def unpack(data: bytes, configs: Sequence[TrialConfig], width: int | None) -> tuple[Progress, Any] | None:
    """Progress and state, or None where the checkpoint is of other configs, another format, or damaged."""
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception:  # torch raises many kinds for damaged bytes, and training anew is right after each
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    if content["identity"] != _identity(configs, width):
        return None
    progress = content["progress"]
    reports = [
        report | {"members": tuple(Member(**member) for member in report["members"])} for report in progress["reports"]
    ]
    diverged = tuple(member and Member(**member) for member in progress["diverged"])
    return (
        Progress(progress["epoch"], progress["seconds"], diverged, tuple(Report(**report) for report in reports)),
        content["state"],
    )


def _identity(configs: Sequence[TrialConfig], width: int | None) -> list[Any]:
    return [width, *(config.flat() for config in configs)]
