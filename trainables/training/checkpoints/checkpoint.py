"""A cohort's checkpoint as bytes: everything needed to resume training, bit for bit on the CPU.

A checkpoint contains no code: it is read with `weights_only`, so bytes from a shared store cannot run anything. It
begins with a digest, because torch reads a file with flipped bits without complaint.

None is made after the last report, so none contains pictures: after a resume the last evaluation makes them again.
"""

import dataclasses
import hashlib
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch

from trainables.config.trial_config import TrialConfig
from trainables.reports import CheckpointError
from trainables.training.progress import Progress, read_progress

FORMAT = 5
"""Version of the content; a checkpoint of another version is not used."""
DIGEST_SIZE = 32
"""Bytes of the BLAKE2b digest."""


def pack(
    configs: Sequence[TrialConfig], width: int | None, progress: Progress, state: Any, compiled: bool = False
) -> bytes:
    """Return a checkpoint of the cohort of these configs; `state` is that of its stacks, whose steps are `compiled` or
    not."""
    buffer = io.BytesIO()
    content = {"format": FORMAT, "identity": _identity(configs, width, compiled), "state": state}
    torch.save(content | {"standing": dataclasses.asdict(progress)}, buffer)
    return with_digest(buffer.getvalue())


def with_digest(content: bytes) -> bytes:
    """Return the content with its digest in front."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content


def unpack(
    data: bytes,
    configs: Sequence[TrialConfig],
    width: int | None,
    notify: Callable[[str], None] = lambda line: None,
    compiled: bool = False,
) -> tuple[Progress, Any] | None:
    """Return the progress and the state, or None if the checkpoint is damaged, of another format, or of other configs.
    `notify` is called with one line that says why, except for other configs: such a checkpoint is sound, only of no use
    here."""
    try:
        return _content(data, configs, _identity(configs, width, compiled))
    except CheckpointError as error:
        notify(f"its checkpoint cannot be used: {error}")
        return None


def _content(data: bytes, configs: Sequence[TrialConfig], identity: Sequence[Any]) -> tuple[Progress, Any] | None:
    """Like `unpack`, but raises CheckpointError if the checkpoint is damaged or of another format."""
    if data != with_digest(data[DIGEST_SIZE:]):
        raise CheckpointError("it is not whole")
    try:  # a checkpoint with a valid digest can still hold anything, for which torch raises many kinds of errors
        content = torch.load(io.BytesIO(data[DIGEST_SIZE:]), map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise CheckpointError(f"it must hold a dict, but holds {type(content).__name__}")
        if content["format"] != FORMAT:
            raise CheckpointError(f"it must have format {FORMAT}, but has {content['format']!r:.40}")
        if content["identity"] != identity:
            return None
        standing, state = content["standing"], content["state"]
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"its content is of another kind ({type(error).__name__})") from error
    return read_progress(standing, len(configs), configs[0].training.epochs), state


def _identity(configs: Sequence[TrialConfig], width: int | None, compiled: bool) -> list[Any]:
    """What a checkpoint must agree in to be resumed from."""
    return [width, *(["compiled"] if compiled else []), *(config.flat() for config in configs)]
