"""A trained model as bytes: a safetensors file with the weights, and all that the model is rebuilt from beside them.

The file holds no code. Its metadata has one entry, `sweeper`, a JSON object; safetensors would write several in random
order, and equal models must have equal files.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from trainables.catalog import method_of, task_of
from trainables.config.trial import defaults, resolve
from trainables.config.trial_config import TrialConfig, Value
from trainables.contract import Shapes
from trainables.reports import ModelError

FORMAT = 1
"""Version of the metadata; a file of another version is not read."""
ENTRY = "sweeper"
"""Name of the entry of the metadata."""
LENGTH_BYTES = 8
"""Bytes at the beginning of a safetensors file that give the length of its header, little-endian."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A member at the end of its training."""

    config: TrialConfig
    tensors: Mapping[str, Tensor]
    """Name -> parameter or buffer of its method."""
    shapes: Shapes
    """Shape of one example of each entry of a batch."""
    inputs: Mapping[str, Any]
    """See `LoadedTask.inputs`."""

    @torch.no_grad()
    def build(self) -> nn.Module:
        """The model as its task gives it to users, in evaluation mode. Raises ModelError if the tensors are not those
        of the method."""
        task = task_of(self.config.method)
        with torch.random.fork_rng(devices=[]):
            method = method_of(self.config.method)(self.config.options, task.networks(self.config), self.shapes)
        own = dict(method.named_parameters()) | dict(method.named_buffers())
        if own.keys() != self.tensors.keys():
            name = min(own.keys() ^ self.tensors.keys())
            raise ModelError(f"its tensors must be those of {self.config.method}, but they differ in {name}")
        for name, tensor in own.items():
            saved = self.tensors[name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                expected = f"{tensor.dtype} of shape {[*tensor.shape]}"
                raise ModelError(f"{name} must be {expected}, but is {saved.dtype} of shape {[*saved.shape]}")
            tensor.copy_(saved)
        return task.model(self.config, method.eval(), self.inputs).eval()


def pack_model(model: TrainedModel, facts: Mapping[str, Value]) -> bytes:
    """Return a safetensors file of the model. `facts` are further keys of its metadata; equal models with equal facts
    have equal files."""
    content = {
        "format": FORMAT,
        "config": {**defaults(model.config.method), **model.config.flat()},
        "shapes": {name: list(shape) for name, shape in model.shapes.items()},
        "inputs": dict(model.inputs),
        "digest": _digest(model.tensors),
    }
    return save(dict(model.tensors), {ENTRY: json.dumps({**facts, **content}, sort_keys=True)})


def unpack_model(data: bytes) -> TrainedModel:
    """Read what `pack_model` returned. Raises ModelError if the file is damaged, of another format, or of a model that
    this version of the code does not know."""
    content = read_metadata(data)
    try:
        tensors = load(data)
        if content["digest"] != _digest(tensors):
            raise ModelError("it is damaged: its digest differs")
        shapes = {name: tuple(shape) for name, shape in content["shapes"].items()}
        return TrainedModel(resolve(content["config"]), tensors, shapes, content["inputs"])
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"it cannot be used: {reason}") from error


def read_metadata(data: bytes) -> dict[str, Any]:
    """The metadata of a model's file. Raises ModelError if it is damaged or of another format."""
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    try:
        content = json.loads(json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])["__metadata__"][ENTRY])
        version = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"it is no model of a sweep, or damaged ({type(error).__name__})") from error
    if version != FORMAT:
        raise ModelError(f"it must have format {FORMAT}, but has {version!r:.40}")
    assert isinstance(content, dict)
    return content


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of the names and the content of the tensors: safetensors reads a file with flipped bits without
    complaint."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
