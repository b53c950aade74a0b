"""Members of one method with stacked weights: their state, and calls of all members at once. Also members that are
fitted without gradients, such as mixtures fitted by EM: plain models, one after the other.

Shapes: K members, B examples; every parameter and buffer is `[K, ...]`. Members with equal data and seed share one of S
data streams, so a batch contains each stream once, and `stream_K` is the index of each member's stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from trainables.contract import Batch, Losses, Method
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.phases import part_of_step
from trainables.reports import CheckpointError

LATER_KIND = "gradient"
"""What states of an earlier version lack: the norms of the gradients, which are measured anew."""
UNMEASURED = -1.0
LATER_RATE = "clip_grad_norm"
"""A rate that is missing from states of earlier versions, whose members keep the rate with which they are built."""
Tensors = dict[str, dict[str, Tensor]]
"""Kind (parameters, buffers, ...) -> name -> tensor."""


class StackedMembers(ABC):
    """K members of one method. A stack of one calls the plain model, without vmap."""

    def __init__(
        self,
        models: Sequence[Method],
        streams: Sequence[int],
        device: torch.device | str,
        peers: Peers,
        autocast: torch.dtype | None = None,
    ) -> None:
        """`models`: one initialised model per member, all of equal shapes. `streams`: the index of each member's data
        stream."""
        self.size = len(models)
        self.device = torch.device(device)
        self.autocast = autocast
        self._peers = peers
        self.parameters = _stacked([dict(model.named_parameters()) for model in models], self.device)
        self.buffers = _stacked([dict(model.named_buffers()) for model in models], self.device)
        self.method = models[0].to(self.device)
        self._call = _Call(self.method)
        self._streams = sorted(set(streams))
        self._shared = len(self._streams) == 1
        self._stream_K = torch.tensor([self._streams.index(stream) for stream in streams], device=self.device)

    @classmethod
    @abstractmethod
    def from_members(cls, members: Sequence[tuple[Self, int]], streams: Sequence[int]) -> Self:
        """A new stack with copies of these members, each given by its stack and slot. Training continues as in the old
        stacks. `streams`: each member's index among the streams of the new stack."""

    @abstractmethod
    def step(
        self,
        batches: Sequence[Batch],
        noise: Sequence[Mapping[str, Tensor]],
        after_noise: Sequence[Mapping[str, Tensor]],
        schedule: float | Sequence[float],
        measure: bool = False,
    ) -> Losses:
        """Make one step. `batches[s]` is the batch of stream s, `noise[s]` its noise, and `after_noise[s]` that of
        `after_step`. `schedule` is the share of its peak that the learning rate has, or that of each member. Returns
        the losses before the step, `[K]` each. A member whose loss is not finite affects no other member. `measure`:
        whether to measure the norm of the gradients, which only eager steps have."""

    def gradient_norm(self, slot: int) -> float:
        """The norm of the gradient of the member in this slot, where it was last measured and the loss was finite;
        negative if that was never."""
        return UNMEASURED

    def copy_member(self, slot: int) -> Tensors:
        """A copy of the state of the member in this slot, without its hyperparameters: weights, buffers, momentum."""
        hyperparameters = {f"method.{name}" for name in self.method.fusible}
        return {
            kind: {name: tensor.clone() for name, tensor in tensors.items() if name not in hyperparameters}
            for kind, tensors in self._read(slot).items()
        }

    def load_member(
        self, slot: int, state: Mapping[str, Mapping[str, Tensor]], hyperparameters: Mapping[str, float]
    ) -> None:
        """Load another member's state from `copy_member`, and these hyperparameters, into the member in this slot.
        Raises ValueError for a hyperparameter that is neither a rate of the optimiser nor fusible in the method."""
        self._write(slot, state)
        rates = {name: list(values) for name, values in self._rates().items()}
        for name, value in hyperparameters.items():
            if name in rates:
                rates[name][slot] = value
            elif name in self.method.fusible:
                self.buffers[f"method.{name}"][slot] = value
            else:
                changeable = ", ".join([*rates, *sorted(self.method.fusible)])
                raise ValueError(f"a member can only change its {changeable}, but got {name}={value}")
        self._set_rates(rates)

    def set_hyperparameter(self, name: str, values: Sequence[float]) -> None:
        """Set a fusible hyperparameter of the method to these values, one per member."""
        buffer_K = self.buffers[f"method.{name}"]
        buffer_K.copy_(torch.tensor(values, dtype=buffer_K.dtype))

    @torch.no_grad()
    def begin_phase(self, examples: Sequence[Callable[[], Iterator[Batch]]]) -> None:
        """Begin a training phase (see `Method.phases`). `examples[s]()` yields all examples of stream s. Members
        observe them one after the other, because their numbers of examples may differ."""
        self.method.eval()
        for slot, stream in enumerate(self._stream_K.tolist()):
            state = tree_map(lambda stacked, slot=slot: stacked[slot], (self.parameters, self.buffers))
            for batch in examples[self._streams[stream]]():
                with self._precision():
                    functional_call(self._call, state, ("observe", batch))

    @torch.no_grad()
    def evaluate(self, verb: str, *inputs: Any) -> Any:
        """Call the method `verb`, such as `embed`, of every member in evaluation mode, with the same inputs for all
        members. Returns outputs `[K, ...]`."""
        self.method.eval()
        with self._precision():
            return self._each(verb, *inputs)

    @torch.no_grad()
    def evaluate_each(self, verb: str, *inputs: Any) -> Any:
        """As `evaluate`, with separate inputs per member, `[K, ...]`."""
        self.method.eval()
        with self._precision():
            return self._each(verb, *inputs, shared=False)

    def tensors_of(self, slot: int) -> dict[str, Tensor]:
        """A copy of the parameters and buffers of the member in this slot, on the CPU, by their names in the method."""
        tensors = (self.parameters | self.buffers).items()
        return {
            name.removeprefix("method."): tensor.detach()[slot].cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in tensors
        }

    @torch.no_grad()
    def load_tensors(self, slot: int, tensors: Mapping[str, Tensor]) -> None:
        """Load parameters and buffers from `tensors_of` into the member in this slot."""
        for name, tensor in (self.parameters | self.buffers).items():
            tensor.detach()[slot].copy_(tensors[name.removeprefix("method.")])

    def average_buffers(self) -> None:
        """Average the floating-point buffers over all peers, because BatchNorm's statistics differ between processes.
        In float64 the mean of equal numbers is exact, so frozen weights do not change."""
        if self._peers.size == 1:
            return
        buffers = [buffer for buffer in self.buffers.values() if buffer.is_floating_point()]
        means = [buffer.double() for buffer in buffers]
        self._peers.average(means)
        for buffer, mean in zip(buffers, means, strict=True):
            buffer.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Everything that `load_state` needs to continue training, bit for bit on the CPU."""
        rates = {name: torch.tensor(values, dtype=torch.float64) for name, values in self._rates().items()}
        tensors = tree_map(lambda tensor: tensor.detach().cpu().clone(), self._tensors())
        return {**tensors, "rates": rates}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load the result of `state` from an equal stack. Raises CheckpointError, before any change, if a name, shape
        or type differs."""
        own = self.state()
        if isinstance(state, dict) and isinstance(state.get("rates"), dict) and LATER_RATE in own["rates"]:
            state = {**state, "rates": {LATER_RATE: own["rates"][LATER_RATE], **state["rates"]}}
        if isinstance(state, dict) and LATER_KIND in own:
            state = {LATER_KIND: own[LATER_KIND], **state}
        _check_alike(own, state)
        for kind, tensors in self._tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(state[kind][name])
        self._set_rates({name: values.tolist() for name, values in state["rates"].items()})

    def _tensors(self) -> Tensors:
        """All tensors `[K, ...]` that training changes."""
        return {"parameters": self.parameters, "buffers": self.buffers}

    def _rates(self) -> dict[str, tuple[float, ...]]:
        """The members' hyperparameters that are stored in the optimiser, by name."""
        return {}

    def _set_rates(self, rates: Mapping[str, Sequence[float]]) -> None:
        """Set what `_rates` returns."""
        return

    def _read(self, slot: int) -> Tensors:
        """One member's slices of the tensors."""
        return tree_map(lambda tensor: tensor.detach()[slot], self._tensors())

    @torch.no_grad()
    def _write(self, slot: int, slices: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Overwrite one member's slices of the tensors."""
        for kind, tensors in self._tensors().items():
            for name, tensor in slices[kind].items():
                tensors[name][slot].copy_(tensor)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)

    def _gather(self, by_stream: Sequence[Any]) -> Any:
        """The members' inputs: the stream's inputs if all members share a stream, otherwise every tensor as `[K,
        ...]`."""
        first, *others = (by_stream[stream] for stream in self._streams)
        if self._shared:
            return first
        return tree_map(lambda *tensors: torch.stack(tensors)[self._stream_K], first, *others)

    def _each(self, verb: str, *inputs: Any, shared: bool = True) -> Any:
        """Call the method `verb` of every member. With `shared` the inputs are the same for all members; otherwise
        every tensor in them is `[K, ...]`."""
        state = (self.parameters, self.buffers)
        if self.size == 1:
            member_state = tree_map(lambda stacked: stacked.squeeze(0), state)
            inputs = inputs if shared else tree_map(lambda stacked: stacked.squeeze(0), inputs)
            return tree_map(lambda out: out.unsqueeze(0), functional_call(self._call, member_state, (verb, *inputs)))

        def call_member(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *inputs: Any) -> Any:
            return functional_call(self._call, (parameters, buffers), (verb, *inputs))

        in_dims = (0, 0, *[None if shared else 0] * len(inputs))
        return torch.vmap(call_member, in_dims=in_dims, randomness="error")(*state, *inputs)


class _Call(nn.Module):
    """Lets `functional_call`, which only calls `forward`, call the other methods of a `Method`."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, verb: str, *inputs: Any) -> Any:
        output = getattr(self.method, verb)(*inputs)
        return {} if output is None else output


def _stacked(tensors: Sequence[Mapping[str, Tensor]], device: torch.device) -> dict[str, Tensor]:
    """Stack the members' tensors of equal name to `[K, ...]`, under their names in `_Call`."""
    return {
        f"method.{name}": torch.stack([member[name].detach() for member in tensors]).to(device) for name in tensors[0]
    }


def _check_alike(own: Mapping[str, Mapping[str, Tensor]], state: object) -> None:
    """Raise CheckpointError unless `state` has the names, shapes and types of `own`; `copy_` would broadcast and
    cast."""
    if not isinstance(state, dict) or set(state) != set(own):
        raise CheckpointError(f"the state of a stack must contain {', '.join(own)}, but contains something else")
    for kind, tensors in own.items():
        saved = state[kind]
        if not isinstance(saved, dict) or set(saved) != set(tensors):
            raise CheckpointError(f"the names of its {kind} must be those of this code, but they differ")
        for name, tensor in tensors.items():
            value = saved[name]
            if not isinstance(value, Tensor) or value.shape != tensor.shape or value.dtype != tensor.dtype:
                raise CheckpointError(f"{kind} {name} must be {tensor.dtype} of shape {[*tensor.shape]}, but is not")


class FittedMembers(StackedMembers):
    """K members of a method with `fit`. Fitting only changes buffers of fixed shapes. Members are called one after the
    other, so `fit` may run any code."""

    def __init__(
        self,
        models: Sequence[Method],
        *,
        streams: Sequence[int],
        device: torch.device | str = "cpu",
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        """`models`: one initialised model per member, all of equal shapes. `streams`: the index of each member's data
        stream."""
        super().__init__(models, streams, device, peers)

    @classmethod
    def from_members(cls, members: Sequence[tuple[FittedMembers, int]], streams: Sequence[int]) -> FittedMembers:
        first, _ = members[0]
        merged = cls([first.method] * len(members), streams=streams, device=first.device, peers=first._peers)
        for new_slot, (stack, slot) in enumerate(members):
            merged._write(new_slot, stack._read(slot))
        return merged

    @torch.no_grad()
    def step(
        self,
        batches: Sequence[Batch],
        noise: Sequence[Mapping[str, Tensor]],
        after_noise: Sequence[Mapping[str, Tensor]],
        schedule: float | Sequence[float],
        measure: bool = False,
    ) -> Losses:
        self.method.train()
        streams = [self._streams[index] for index in self._stream_K.tolist()]
        with part_of_step("forward"):
            return self._one_by_one("fit", [(batches[stream], noise[stream]) for stream in streams])

    def _each(self, verb: str, *inputs: Any, shared: bool = True) -> Any:
        by_member = [
            inputs if shared else tree_map(lambda stacked, slot=slot: stacked[slot], inputs)
            for slot in range(self.size)
        ]
        return self._one_by_one(verb, by_member)

    def _one_by_one(self, verb: str, by_member: Sequence[Sequence[Any]]) -> Any:
        """Call the method `verb` of each member with its own inputs, whose shapes may differ."""
        outputs = []
        for slot, inputs in enumerate(by_member):
            state = tree_map(lambda stacked, slot=slot: stacked[slot], (self.parameters, self.buffers))
            outputs.append(functional_call(self._call, state, (verb, *inputs)))
        return tree_map(lambda *members: torch.stack(members), *outputs)
