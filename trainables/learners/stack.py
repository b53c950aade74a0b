"""Train models of equal shape as one by gradients: stacked weights, vmapped losses, one optimiser step. Steps are
eager, or calls of compiled libraries that `training.compiled_steps` finds.

Shapes: K members; every parameter and buffer of a stack is `[K, ...]`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from trainables.contract import Batch, Losses, Method
from trainables.learners.compiled import CompiledStep, FindLibrary, Part, StepShape
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.members import LATER_KIND, UNMEASURED, StackedMembers, Tensors
from trainables.learners.optimisers import Rates, StackedOptimiser, gradient_norms
from trainables.learners.phases import part_of_step

MakeOptimiser = Callable[[Sequence[Tensor], Sequence[float], Sequence[float]], StackedOptimiser]
"""Makes the optimiser of stacked parameters from each member's learning rate and weight decay."""


class Stack(StackedMembers):
    """K members of one method, trained together by gradients. With several `peers`, each process steps on its part of a
    batch, and gradients are averaged over the processes."""

    def __init__(
        self,
        models: Sequence[Method],
        *,
        streams: Sequence[int],
        rates: Rates,
        make_optimiser: MakeOptimiser,
        accumulate: int = 1,
        autocast: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        peers: Peers = SINGLE_PROCESS,
    ) -> None:
        """`models`: one initialised model per member, all of equal shapes. `streams`: the index of each member's data
        stream. `accumulate`: number of parts of a batch whose gradients are averaged."""
        super().__init__(models, streams, device, peers, autocast)
        self._accumulate = accumulate
        if not self.parameters and models[0].trains():
            raise ValueError("a method that trains must have weights to train, but all of its weights are frozen")
        for parameter in self.parameters.values():
            parameter.requires_grad_()
        self._make_optimiser = make_optimiser
        self.optimiser = make_optimiser(list(self.parameters.values()), rates.lr, rates.weight_decay)
        if rates.clip_grad_norm:
            self.optimiser.set_rates(*rates)
        self._norm_K = torch.full((self.size,), UNMEASURED, device=self.device)

    @classmethod
    def from_members(cls, members: Sequence[tuple[Self, int]], streams: Sequence[int]) -> Self:
        first, _ = members[0]
        optimisers = [(stack.optimiser, slot) for stack, slot in members]
        rates = Rates(*([getattr(own, name)[slot] for own, slot in optimisers] for name in Rates._fields))
        merged = cls(
            [first.method] * len(members),
            streams=streams,
            rates=rates,
            accumulate=first._accumulate,
            make_optimiser=first._make_optimiser,
            autocast=first.autocast,
            device=first.device,
            peers=first._peers,
        )
        for new_slot, (stack, slot) in enumerate(members):
            merged._write(new_slot, stack._read(slot))
        return merged

    def begin_phase(self, examples: Sequence[Callable[[], Iterator[Batch]]]) -> None:
        super().begin_phase(examples)
        self.optimiser.forget()

    def step(
        self,
        batches: Sequence[Batch],
        noise: Sequence[Mapping[str, Tensor]],
        after_noise: Sequence[Mapping[str, Tensor]],
        schedule: float | Sequence[float],
        measure: bool = False,
    ) -> Losses:
        self.method.train()
        inputs = self._gather(batches), self._gather(noise), self._gather(after_noise)
        return self._step(*inputs, schedule, measure)

    def _step(
        self,
        batch: Batch,
        noise: Mapping[str, Tensor],
        after_noise: Mapping[str, Tensor],
        schedule: float | Sequence[float],
        measure: bool,
    ) -> Losses:
        """`step` with the members' inputs gathered."""
        losses, gradients = self.gradients(batch, noise)
        self._peers.average(gradients)
        if measure:
            self._measure(losses, gradients)
        self.update(gradients, after_noise, schedule if isinstance(schedule, float) else self._share(schedule))
        return losses

    @torch.no_grad()
    def _measure(self, losses: Losses, gradients: Sequence[Tensor]) -> None:
        """Keep the norm of the gradient of each member whose loss is finite."""
        norms_K = gradient_norms(gradients).to(self._norm_K.dtype)
        self._norm_K.copy_(torch.where(losses.total.isfinite(), norms_K, self._norm_K))

    def gradient_norm(self, slot: int) -> float:
        return float(self._norm_K[slot])

    def _share(self, schedule: float | Sequence[float]) -> Tensor:
        """The learning rate as a share of its peak, for all members or `[K]`."""
        return torch.tensor(schedule, dtype=torch.float64, device=self.device)

    def gradients(self, batch: Batch, noise: Mapping[str, Tensor]) -> tuple[Losses, list[Tensor]]:
        """Return the losses of a batch, `[K]` each, and their gradients; with several parts, the means over all
        examples. Updates buffers as the method does."""
        if self._accumulate == 1:
            return self._gradients(batch, noise)
        batch_dim = 0 if self._shared else 1
        count = tree_leaves(batch)[0].shape[batch_dim]
        dims = {name: declared.batch_dim for name, declared in self.method.noise(count).items()}

        def part_of(tensor: Tensor, dim: int, part: Peers) -> Tensor:
            rows = part.slice_of(tensor.shape[dim])
            return tensor.narrow(dim, rows.start, rows.stop - rows.start)

        totals, parts, sums = list[Tensor](), dict[str, list[Tensor]](), list[Tensor]()
        for part in (Peers(index, self._accumulate) for index in range(self._accumulate)):
            own_batch = tree_map(lambda tensor, part=part: part_of(tensor, batch_dim, part), batch)
            own_noise = {
                name: tensor if (dim := dims[name]) is None else part_of(tensor, batch_dim + dim, part)
                for name, tensor in noise.items()
            }
            losses, gradients = self._gradients(own_batch, own_noise)
            rows = part.slice_of(count)
            share = (rows.stop - rows.start) / count
            totals.append(losses.total * share)
            for name, value in losses.parts.items():
                parts.setdefault(name, []).append(value * share)
            gradients = list(torch._foreach_mul(gradients, share))
            sums = list(torch._foreach_add(sums, gradients)) if sums else gradients
        return Losses(sum(totals[1:], totals[0]), {name: sum(of[1:], of[0]) for name, of in parts.items()}), sums

    def _gradients(self, batch: Batch, noise: Mapping[str, Tensor]) -> tuple[Losses, list[Tensor]]:
        """`gradients` of an undivided batch."""
        with part_of_step("forward"), self._precision():
            losses: Losses = self._each("losses", batch, noise, shared=self._shared)
        parameters = list(self.parameters.values())  # a phase's loss may not use all weights: their gradient is 0
        with part_of_step("backward"):
            gradients = torch.autograd.grad(losses.total.sum(), parameters, materialize_grads=True)
        parts = {name: part.detach() for name, part in losses.parts.items()}
        return Losses(losses.total.detach(), parts), list(gradients)

    def update(self, gradients: Sequence[Tensor], after_noise: Mapping[str, Tensor], schedule: float | Tensor) -> None:
        """Step the optimiser at `schedule` times each learning rate, then call the method's `after_step`."""
        with part_of_step("optimiser"), torch.no_grad():
            self.optimiser.step(gradients, schedule)
            self._each("after_step", after_noise, shared=self._shared)

    def with_tensors(self, tensors: Tensors) -> Self:
        """The same stack with these tensors, which have the names of `step_tensors`. Steps change them in place."""
        other = copy.copy(self)
        moments = {kind: list(tensors[kind].values()) for kind in self.optimiser.moments()}
        parameters = tensors["parameters"]
        other.optimiser = self.optimiser.with_tensors(list(parameters.values()), moments, tensors["rates"])
        other.parameters = {name: tensor.detach().requires_grad_() for name, tensor in parameters.items()}
        other.buffers = tensors["buffers"]
        return other

    def step_tensors(self) -> Tensors:
        """All tensors that a step reads or changes, but for its inputs."""
        return {**self._trained(), "rates": self.optimiser.rates()}

    def _tensors(self) -> Tensors:
        return {**self._trained(), LATER_KIND: {"norm": self._norm_K}}

    def _trained(self) -> Tensors:
        """The tensors that steps change."""
        moments = {
            kind: dict(zip(self.parameters, tensors, strict=True)) for kind, tensors in self.optimiser.moments().items()
        }
        return {**super()._tensors(), **moments}

    def _rates(self) -> dict[str, tuple[float, ...]]:
        optimiser = self.optimiser
        rates = {"lr": optimiser.lr, "weight_decay": optimiser.weight_decay, "clip_grad_norm": optimiser.clip_grad_norm}
        return rates

    def _set_rates(self, rates: Mapping[str, Sequence[float]]) -> None:
        self.optimiser.set_rates(**rates)


class CompiledStack(Stack):
    """A stack with compiled steps if a library is available, otherwise with the steps of `Stack`. The results are equal
    up to rounding."""

    def __init__(self, models: Sequence[Method], *, find_library: FindLibrary | None = None, **options: Any) -> None:
        """`find_library` is called before the first step. The `options` are those of `Stack`."""
        super().__init__(models, **options)
        self._find_library = find_library
        self._compiled: dict[Part, CompiledStep] = {}

    @classmethod
    def from_members(cls, members: Sequence[tuple[Self, int]], streams: Sequence[int]) -> Self:
        merged = super().from_members(members, streams)
        merged._find_library = members[0][0]._find_library
        return merged

    def _step(
        self,
        batch: Batch,
        noise: Mapping[str, Tensor],
        after_noise: Mapping[str, Tensor],
        schedule: float | Sequence[float],
        measure: bool,
    ) -> Losses:
        rate = self._share(schedule)
        if self._peers.size == 1:
            inputs = (batch, noise, after_noise, rate)
            step = self._find("step", inputs)
            return _losses(step.parts, step(*inputs)) if step else super()._step(*inputs[:3], schedule, measure)
        first = self._find("gradients", (batch, noise))
        if first:
            outputs = first(batch, noise)
            losses, gradients = _losses(first.parts, outputs), outputs[1 + len(first.parts) :]
        else:
            losses, gradients = self.gradients(batch, noise)
        self._peers.average(gradients)
        if measure:
            self._measure(losses, gradients)
        second = self._find("update", (gradients, after_noise, rate))
        if second:
            second(gradients, after_noise, rate)
        else:
            self.update(gradients, after_noise, schedule if isinstance(schedule, float) else rate)
        return losses

    def _find(self, part: Part, inputs: Any) -> CompiledStep | None:
        """The compiled part of a step, if available. An unavailable part is not requested again."""
        if part not in self._compiled and self._find_library:
            shape = StepShape.of(part, self.size, self._shared, inputs, self.device, self.optimiser.clips)
            library = self._find_library(shape)
            if library is None:
                self._find_library = None
            else:
                self._compiled[part] = CompiledStep(library, tree_leaves(self.step_tensors()), shape)
        return self._compiled.get(part)

    def _set_rates(self, rates: Mapping[str, Sequence[float]]) -> None:
        super()._set_rates(rates)
        self._compiled = {}  # the compiled step has its own rate tensors


def step_function(stack: Stack, part: Part, names: list[str]) -> Callable[..., list[Tensor]]:
    """Return a part of a step as a function of tensors (`stack.step_tensors()`, then the inputs), as `CompiledStack`
    calls it. If the part has losses, the names of their parts are written to `names`."""

    def step(tensors: Tensors, *inputs: Any) -> list[Tensor]:
        own = stack.with_tensors(tensors)
        own.method.train()
        if part == "update":
            own.update(*inputs)
            return []
        batch, noise = inputs[:2]
        losses, gradients = own.gradients(batch, noise)
        names[:] = losses.parts
        outputs = [losses.total, *losses.parts.values()]
        if part == "gradients":
            return outputs + gradients
        own.update(gradients, *inputs[2:])
        return outputs

    return step


def _losses(parts: Sequence[str], outputs: Sequence[Tensor]) -> Losses:
    return Losses(outputs[0], dict(zip(parts, outputs[1:], strict=False)))
