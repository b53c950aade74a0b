"""A trained model as bytes: a safetensors file with the weights, and all that the model is rebuilt from beside them.

The file holds no code. Its metadata are those of `model_metadata`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save
from torch import Tensor, nn

from trainables.catalog import NotImportedError, method_of, task_of
from trainables.config.trial import defaults, resolve
from trainables.config.trial_config import TrialConfig, Value
from trainables.contract import Shapes
from trainables.reports import ModelError
from trainables.training.model_metadata import ENTRY, FORMAT, read_metadata

IN_NUMPY = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool}
"""Types of tensors that NumPy has, too."""


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
        self._check_size()
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

    def _check_size(self) -> None:
        """Raise ModelError if the method would have other tensors than the file, before any memory is allocated for
        them: the metadata can declare any width. A method that cannot be built without memory is not checked."""
        task = task_of(self.config.method)
        try:
            with torch.device("meta"):
                method = method_of(self.config.method)(self.config.options, task.networks(self.config), self.shapes)
        except (RuntimeError, NotImplementedError):
            return
        for name, tensor in (*method.named_parameters(), *method.named_buffers()):
            if name in self.tensors and self.tensors[name].shape != tensor.shape:
                saved = [*self.tensors[name].shape]
                raise ModelError(f"{name} must have the shape {[*tensor.shape]}, but has {saved}")


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
    metadata = {ENTRY: json.dumps({**facts, **content}, sort_keys=True)}
    if not {tensor.dtype for tensor in model.tensors.values()} <= IN_NUMPY:
        return save(dict(model.tensors), metadata)
    # The same bytes in less than half the time, because it does not compare the storages of all tensors.
    return save_arrays({name: tensor.numpy() for name, tensor in model.tensors.items()}, metadata)


def unpack_model(data: bytes) -> TrainedModel:
    """Read what `pack_model` returned. Raises ModelError if the file is damaged, of another format, or of a model that
    this version of the code does not know, and NotImportedError for a method of the user that was not imported."""
    content = read_metadata(data)
    try:
        tensors = load(data)
        if content["digest"] != _digest(tensors):
            raise ModelError("it is damaged: its digest differs")
        shapes = {name: tuple(shape) for name, shape in content["shapes"].items()}
        return TrainedModel(resolve(content["config"]), tensors, shapes, content["inputs"])
    except NotImportedError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"it cannot be used: {reason}") from error


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of the names and the content of the tensors: safetensors reads a file with flipped bits without
    complaint."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
