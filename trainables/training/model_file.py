"""A trained model as bytes: a safetensors file with the weights, and all that the model is rebuilt from beside them.

The file holds no code. Its metadata are those of `model_metadata`.
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
"""Types of tensors that NumPy has, too."""
ARRAYS = "kept/"
"""Prefix, in a file, of the names of arrays that are no weights. No name of a weight has a slash."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A member at the end of its training, or after an earlier epoch."""

    config: TrialConfig
    tensors: Mapping[str, Tensor]
    """Name -> parameter or buffer of its method."""
    shapes: Shapes
    """Shape of one example of each entry of a batch."""
    inputs: Mapping[str, Any]
    """See `LoadedTask.inputs` and `KeptResults.inputs`."""
    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    """See `KeptResults.arrays`."""
    epoch: int | None = None
    """The epoch, counted from 1, after which it was copied; None: the last."""

    @property
    def epochs(self) -> int:
        """Epochs that it has trained."""
        return self.config.training.epochs if self.epoch is None else self.epoch

    @torch.no_grad()
    def build(self) -> Any:
        """The model as its task gives it to users, in evaluation mode; of a function, the tensors by name that it gave
        to `trial.keep`, of files their bytes. Raises ModelError if the tensors are not those
        of the method, which is built without memory first: the metadata can declare any width."""
        if is_function(self.config.method):
            return dict(self.tensors)
        try:
            with _at_most(self.tensors), torch.random.fork_rng(devices=[]):
                with contextlib.suppress(RuntimeError), torch.device("meta"):  # some cannot be built without memory
                    self._check(self._method())
                method = self._method()
            self._check(method)
            for name, tensor in (*method.named_parameters(), *method.named_buffers()):
                tensor.copy_(self.tensors[name])
            return task_of(self.config.method).model(self.config, method.eval(), self.inputs, self.arrays).eval()
        except ModelError:
            raise
        except Exception as error:  # a method may raise anything for shapes and inputs that a file declares
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"{self.config.method} cannot be built of it: {reason}") from error

    def _method(self) -> Method:
        """The method with new weights."""
        networks = task_of(self.config.method).networks(self.config)
        return method_of(self.config.method)(self.config.options, networks, self.shapes)

    def _check(self, method: nn.Module) -> None:
        """Raise ModelError if the tensors are not those of the method."""
        own = dict(method.named_parameters()) | dict(method.named_buffers())
        if own.keys() != self.tensors.keys():
            name = min(own.keys() ^ self.tensors.keys())
            raise ModelError(f"its tensors must be those of {self.config.method}, but they differ in {name}")
        for name, tensor in own.items():
            saved = self.tensors[name]
            if saved.shape != tensor.shape or saved.dtype != tensor.dtype:
                expected = f"{tensor.dtype} of shape {[*tensor.shape]}"
                raise ModelError(f"{name} must be {expected}, but is {saved.dtype} of shape {[*saved.shape]}")


@contextlib.contextmanager
def _at_most(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Context in which a module that this thread builds raises ModelError once it has far more parameters and buffers,
    or far larger ones, than these: before they are initialised, so that the memory of large ones is never used."""
    # A model is built twice, and what is frozen is built as parameters before it becomes buffers.
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
    """Return a safetensors file of the model. `facts` are further keys of its metadata; equal models with equal facts
    have equal files."""
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
    # The same bytes in less than half the time, because it does not compare the storages of all tensors.
    return save_arrays({name: tensor.numpy() for name, tensor in tensors.items()}, metadata)


def unpack_model(data: bytes) -> TrainedModel:
    """Read what `pack_model` returned. Raises ModelError if the file is damaged, of another format, or of a model that
    this version of the code does not know, and NotImportedError for a method of the user that was not imported."""
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
