"""The metadata of a model's file, which are read without its weights and without PyTorch.

They consist of one entry, `ENTRY`, a JSON object: safetensors would write several entries in random order, but equal
models must have equal files.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from trainables.json_input import Count, JsonError, PositiveCount, decode, parse_json
from trainables.reports import ModelError

FORMAT = 1
"""Version of the metadata; a file of another version is not read."""
ENTRY = "sweeper"
"""Name of the entry."""
LENGTH_BYTES = 8
"""Bytes at the beginning of a safetensors file that give the length of its header, little-endian."""
LONGEST_HEADER = 100 << 20
"""Maximum header size, in bytes, that safetensors reads."""


@dataclass(frozen=True)
class _Metadata:
    """The required metadata of every model; all other keys are facts about it."""

    config: Mapping[str, bool | int | float | str | None]
    shapes: Mapping[str, Annotated[tuple[PositiveCount, ...], Meta(max_length=8)]]
    inputs: Mapping[str, Any]
    digest: str
    kept: str | None = None
    epoch: PositiveCount | None = None


@dataclass(frozen=True)
class _Tensor:
    """Position of a tensor, in bytes after the header."""

    data_offsets: tuple[Count, Count]


def metadata_bytes(start: bytes) -> int:
    """Number of bytes of a file up to the end of its metadata. `start`: its first `LENGTH_BYTES` bytes, or more."""
    return LENGTH_BYTES + min(int.from_bytes(start[:LENGTH_BYTES], "little"), LONGEST_HEADER)


def read_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a model's file, given its first `metadata_bytes` bytes or more. Raises ModelError if it is
    damaged or of another format."""
    try:
        header = parse_json(data[LENGTH_BYTES : metadata_bytes(data)])
        content: dict[str, Any] = parse_json(header["__metadata__"][ENTRY])
        version = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"it is not a model of a sweep, or is damaged ({type(error).__name__})") from error
    if version != FORMAT:
        raise ModelError(f"it must have format {FORMAT}, but has {version!r:.40}")
    try:
        decode(_Metadata, content)
    except JsonError as error:
        raise ModelError(f"it is damaged: {error}") from error
    return content


def check_model(data: bytes) -> dict[str, Any]:
    """Return the metadata of a whole model's file. Raises ModelError if it is damaged or of another format."""
    metadata, begin = read_metadata(data), metadata_bytes(data)
    header = {name: value for name, value in parse_json(data[LENGTH_BYTES:begin]).items() if name != "__metadata__"}
    try:
        places = {name: decode(_Tensor, value).data_offsets for name, value in header.items()}
    except JsonError as error:
        raise ModelError(f"it is damaged: {error}") from error
    content = memoryview(data)[begin:]
    if max((end for _, end in places.values()), default=0) != len(content):
        raise ModelError("it is damaged: its length does not match its weights")
    if digest_of({name: content[first:end] for name, (first, end) in places.items()}) != metadata["digest"]:
        raise ModelError("it is damaged: its digest differs")
    return metadata


def digest_of(tensors: Mapping[str, bytes | memoryview]) -> str:
    """A hash of the names and bytes of tensors, because safetensors reads a file with flipped bits without
    complaint."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name])
    return digest.hexdigest()
