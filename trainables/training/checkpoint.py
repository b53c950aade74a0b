"""A cut-off cohort as bytes: all that is needed to go on, bit for bit on the CPU.

Nothing in it is code: it is read with `weights_only`, so bytes from a shared store cannot run anything here. A digest
goes before it, because torch reads a file with flipped bits without complaint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainables.config.trial import TrialConfig
from trainables.contract import CheckpointError
from trainables.training.standing import Standing, read_standing

FORMAT = 4
DIGEST_SIZE = 32


def pack(configs: Sequence[TrialConfig], width: int | None, standing: Standing, state: Any) -> bytes:
    """A checkpoint of these configs."""
    buffer = io.BytesIO()
    content = {"format": FORMAT, "identity": _identity(configs, width), "state": state}
    torch.save(content | {"standing": dataclasses.asdict(standing)}, buffer)
    return sealed(buffer.getvalue())


def sealed(content: bytes) -> bytes:
    """The content after its digest."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content


def unpack(
    data: bytes, configs: Sequence[TrialConfig], width: int | None, say: Callable[[str], None] = lambda line: None
) -> tuple[Standing, Any] | None:
    """Standing and state, or None where the checkpoint is of other configs, another format, or damaged.

    `say` is told in one line why, unless it is of other configs: then it is whole, and simply of no use here.
    """
    try:
        return _content(data, configs, width)
    except CheckpointError as error:
        say(f"its checkpoint cannot be used: {error}")
        return None


def _content(data: bytes, configs: Sequence[TrialConfig], width: int | None) -> tuple[Standing, Any] | None:
    """Standing and state, or None where the checkpoint is of other configs. CheckpointError where it is none."""
    if data != sealed(data[DIGEST_SIZE:]):
        raise CheckpointError("it is not whole")
    try:  # a sealed checkpoint can still hold anything, and torch and comparisons raise many kinds of errors for that
        content = torch.load(io.BytesIO(data[DIGEST_SIZE:]), map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise CheckpointError(f"it must hold a dict, but holds {type(content).__name__}")
        if content["format"] != FORMAT:
            raise CheckpointError(f"it must have format {FORMAT}, but has {content['format']!r:.40}")
        if content["identity"] != _identity(configs, width):
            return None
        standing, state = content["standing"], content["state"]
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"its content is of another kind ({type(error).__name__})") from error
    return read_standing(standing, len(configs), configs[0].training.epochs), state


def _identity(configs: Sequence[TrialConfig], width: int | None) -> list[Any]:
    return [width, *(config.flat() for config in configs)]
