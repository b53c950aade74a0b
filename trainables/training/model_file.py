"""A trained model as bytes: a safetensors file with the weights and everything else that rebuilds the model.

The file contains no code. Its metadata are those of `model_metadata`.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from trainables.catalog import is_function, method_of, task_of
from trainables.config import defaults, resolve
from trainables.contract import Method, Shapes
from trainables.own_code import NotImportedError
from trainables.reports import ModelError
from trainables.sections import TrialConfig, Value
from trainables.training.model_metadata import ENTRY, FORMAT, digest_of, read_metadata

IN_NUMPY = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool}
"""Tensor types that NumPy also has."""
ARRAYS = "kept/"
"""Prefix, in a file, of the names of arrays that are not weights. Names of weights contain no slash."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A member at the end of its training, or after an earlier epoch."""

    config: TrialConfig
    tensors: Mapping[str, Tensor]
    """Name -> parameter or buffer of the method."""
    shapes: Shapes
    """Shape of one example of each entry of a batch."""
    inputs: Mapping[str, Any]
    """See `LoadedTask.inputs` and `KeptResults.inputs`."""
    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    """See `KeptResults.arrays`."""
    epoch: int | None = None
    """The epoch (counted from 1) of these weights; None for the last epoch."""

    @property
    def epochs(self) -> int:
        """Number of epochs that the model was trained."""
        return self.config.training.epochs if self.epoch is None else self.epoch

    @torch.no_grad()
    def build(self) -> Any:
        """The model in the form in which its task returns it to users, in evaluation mode; for a function, what it
        passed to `trial.keep`: tensors by name, or the bytes of files. Raises ModelError if the tensors are not those
        of the method. The method is first built without memory, because the metadata can declare any width."""
        if is_function(self.config.method):
            return dict(self.tensors)
        try:
            with _at_most(self.tensors), torch.random.fork_rng(devices=[]):
                with contextlib.suppress(RuntimeError), torch.device("meta"):  # some methods need memory
                    self._check(self._method())
                method = self._method()
            self._check(method)
            for name, tensor in (*method.named_parameters(), *method.named_buffers()):
                tensor.copy_(self.tensors[name])
            return task_of(self.config.method).model(self.config, method.eval(), self.inputs, self.arrays).eval()
        except ModelError:
            raise
        except Exception as error:  # a method may raise anything for shapes and inputs from a file
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"{self.config.method} cannot be built from it: {reason}") from error

    def _method(self) -> Method:
        """The method with new weights."""
        networks = task_of(self.config.method).networks(self.config)
        return method_of(self.config.method)(self.config.options, networks, self.shapes)

    def _check(self, method: nn.Module) -> None:
        """Raise ModelError if the tensors are not those of the method."""
        own = dict(method.named_parameters()) | dict(method.named_buffers())
        if own.keys() != self.tensors.keys():
            name = min(own.keys() ^ self.tensors.keys())
            raise ModelError(f"its tensors must match {self.config.method}, but differ in {name}")
        for name, tensor in own.items():
            saved = self.tensors[name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                expected = f"{tensor.dtype} of shape {[*tensor.shape]}"
                raise ModelError(f"{name} must be {expected}, but is {saved.dtype} of shape {[*saved.shape]}")


@contextlib.contextmanager
def _at_most(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which building a module in this thread raises ModelError once it has far more or far larger parameters
    and buffers than these. This happens before they are initialised, so the memory of large tensors is never used."""
    # A model is built twice, and frozen parts are built as parameters before they become buffers.
    counts = [4 * len(tensors) + 100, 4 * sum(tensor.numel() for tensor in tensors.values()) + 2**20]
    thread = threading.get_ident()

    def count(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        if tensor is None or threading.get_ident() != thread:
            return
        counts[0] -= 1
        counts[1] -= tensor.numel()
        if min(counts) < 0:
            raise ModelError(f"its metadata declare far more weights than it has, such as {name} {[*tensor.shape]}")

    hooks = [register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def pack_model(model: TrainedModel, facts: Mapping[str, Value]) -> bytes:
    """Return a safetensors file of the model. `facts` are additional keys of the metadata; equal models with equal
    facts have equal files."""
    tensors = {**model.tensors, **{f"{ARRAYS}{name}": array for name, array in model.arrays.items()}}
    content = {
        "format": FORMAT,
        "config": {**defaults(model.config.method), **model.config.flat()},
        "shapes": {name: list(shape) for name, shape in model.shapes.items()},
        "inputs": dict(model.inputs),
        "digest": _digest(tensors),
        **({} if model.epoch is None else {"epoch": model.epoch}),
    }
    metadata = {ENTRY: json.dumps({**facts, **content}, sort_keys=True)}
    if not {tensor.dtype for tensor in tensors.values()} <= IN_NUMPY:
        return save(tensors, metadata)
    # Gives the same bytes in less than half the time, because it does not compare the storages of all tensors.
    return save_arrays({name: tensor.numpy() for name, tensor in tensors.items()}, metadata)


def unpack_model(data: bytes) -> TrainedModel:
    """Read the result of `pack_model`. Raises ModelError if the file is damaged, of another format, or of a model
    unknown to this version of the code, and NotImportedError if the user's own method was not imported."""
    content = read_metadata(data)
    try:
        tensors = load(data)
        if content["digest"] != _digest(tensors):
            raise ModelError("it is damaged: its digest differs")
        shapes = {name: tuple(shape) for name, shape in content["shapes"].items()}
        arrays = {name.removeprefix(ARRAYS): tensors.pop(name) for name in [*tensors] if name.startswith(ARRAYS)}
        config, epoch = resolve(content["config"]), content.get("epoch")
        return TrainedModel(config, tensors, shapes, content["inputs"], arrays, epoch)
    except NotImportedError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(reason) from error


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return digest_of(
        {name: value.contiguous().view(-1).view(torch.uint8).numpy().data for name, value in tensors.items()}
    )
