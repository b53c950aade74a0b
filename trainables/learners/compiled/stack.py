"""A stack whose steps are compiled. It calls libraries; it neither traces nor compiles (see `training.compilation`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainables.contract import Batch, Losses, Method
from trainables.learners.compiled.layout import Part, StepShape
from trainables.learners.compiled.library import CompiledStep, FindLibrary
from trainables.learners.members import Tensors
from trainables.learners.stack import Stack


class CompiledStack(Stack):
    """A stack whose steps are compiled, where a library can be had of them; else they are those of `Stack`. The results
    are the same up to rounding."""

    def __init__(self, models: Sequence[Method], *, find_library: FindLibrary | None = None, **options: Any) -> None:
        """`find_library` is asked before the first step. The `options` are those of `Stack`."""
        super().__init__(models, **options)
        self._find_library = find_library
        self._compiled: dict[Part, CompiledStep] = {}

    @classmethod
    def from_members(cls, members: Sequence[tuple[Self, int]], streams: Sequence[int]) -> Self:
        merged = super().from_members(members, streams)
        merged._find_library = members[0][0]._find_library
        return merged

    def _step(
        self, batch: Batch, noise: Mapping[str, Tensor], after_noise: Mapping[str, Tensor], schedule: float
    ) -> Losses:
        rate = torch.tensor(schedule, dtype=torch.float64, device=self.device)
        if self._peers.size == 1:
            inputs = (batch, noise, after_noise, rate)
            step = self._find("step", inputs)
            return _losses(step.parts, step(*inputs)) if step else super()._step(*inputs[:3], schedule)
        first = self._find("gradients", (batch, noise))
        if first:
            outputs = first(batch, noise)
            losses, gradients = _losses(first.parts, outputs), outputs[1 + len(first.parts) :]
        else:
            losses, gradients = self.gradients(batch, noise)
        self._peers.average(gradients)
        second = self._find("update", (gradients, after_noise, rate))
        if second:
            second(gradients, after_noise, rate)
        else:
            self.update(gradients, after_noise, schedule)
        return losses

    def _find(self, part: Part, inputs: Any) -> CompiledStep | None:
        """The compiled part of a step, if it can be had. A part that cannot is not asked for again."""
        if part not in self._compiled and self._find_library:
            shape = StepShape.of(part, self.size, self._shared, inputs, self.device)
            library = self._find_library(shape)
            if library is None:
                self._find_library = None
            else:
                self._compiled[part] = CompiledStep(library, tree_leaves(self.step_tensors()), shape)
        return self._compiled.get(part)

    def _set_rates(self, rates: Mapping[str, Sequence[float]]) -> None:
        super()._set_rates(rates)
        self._compiled = {}  # its rates are tensors of their own


def step_function(stack: Stack, part: Part, names: list[str]) -> Callable[..., list[Tensor]]:
    """Return a part of a step as a function of tensors: of `stack.step_tensors()`, then the inputs, as `CompiledStack`
    calls it. Where the part has losses, the names of their parts are put into `names`."""

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
