"""Where the loss of a member left the finite numbers: the step, the part of the loss, the gradient before.

No step waits for an answer: the losses of the last steps are kept as they are, and looked at once their sum is not
finite. The norm of the gradient is measured at every `MEASURED_EVERY`-th step.

Shapes: K members, P losses (their total first).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from trainables.contract import Batch, Method

MEASURED_EVERY = 32
"""Steps, counted over all epochs, from one measurement of the gradients' norms to the next. One takes up to 3 % of a
small step on a core, so all of them take less than 0.1 % of a training. Compiled steps do not measure them: a library
would return the norms of every step, which made a step of 16 small members of VJE 10 % slower (7.53 and 8.35 ms on a
thread, medians of 200 interleaved measurements; the middle half of their ratios is from 1.06 to 1.16)."""
LOOKED_EVERY = 256
"""Steps after which the losses are looked at."""
STEP, PARTS = "first step not finite", "parts not finite"
"""Names of what a checkpoint has of divergences, beside the sums of the losses."""


def is_measured(step: int) -> bool:
    """Whether the gradients' norms are measured at a step, counted over all epochs from 0."""
    return step % MEASURED_EVERY == 0


def last_measured(step: int) -> int | None:
    """The last step before this one at which they were; None if there is none."""
    return (step - 1) // MEASURED_EVERY * MEASURED_EVERY if step else None


@dataclass(frozen=True)
class Departure:
    """The first step of an epoch at which a loss of a member was not finite."""

    step: int
    """Counted from 0."""
    parts: tuple[str, ...]
    """The losses that were not finite there, without the total if a part of it was not."""


class LossWatch:
    """Notes the losses of each step of an epoch, and finds the departures."""

    def __init__(self, saved: Mapping[str, Tensor]) -> None:
        """`saved` is what `tensors` returned before the epoch was interrupted."""
        self._names: tuple[str, ...] = ()
        self._kept: list[tuple[int, Mapping[str, Tensor]]] = []
        self._step_K, self._parts_K = (
            [int(of) for of in saved[name]] if name in saved else [] for name in (STEP, PARTS)
        )

    @classmethod
    def of(cls, sums: dict[str, Tensor]) -> Self:
        """The watch that a checkpoint has among its sums, from which it is taken away."""
        watch = cls({name: sums.pop(name) for name in (STEP, PARTS) if name in sums})
        watch._names = tuple(sums)
        return watch

    def add(self, step: int, losses: Mapping[str, Tensor], sums: Mapping[str, Tensor]) -> None:
        """Note the losses `[K]` of a step, and look if it is time to. `sums` are those of all steps so far."""
        self._names = tuple(losses)
        self._kept.append((step, losses))
        if len(self._kept) == LOOKED_EVERY:
            self.look(sums)

    def look(self, sums: Mapping[str, Tensor]) -> None:
        """Find the departures among the steps since the last look, and forget these."""
        if self._kept and not bool(torch.stack([*sums.values()]).isfinite().all()):
            self._find()
        self._kept.clear()

    def _find(self) -> None:
        losses = [torch.stack([losses[name] for name in self._names]) for _, losses in self._kept]
        odd_SPK = (~torch.stack(losses).isfinite()).cpu().numpy()
        members = range(odd_SPK.shape[2])
        self._step_K, self._parts_K = self._step_K or [-1] * len(members), self._parts_K or [0] * len(members)
        for row in members:
            found = np.flatnonzero(odd_SPK[:, :, row].any(axis=1))
            if self._step_K[row] < 0 and found.size:
                self._step_K[row] = self._kept[found[0]][0]
                self._parts_K[row] = sum(1 << part for part, odd in enumerate(odd_SPK[found[0], :, row]) if odd)

    def departure(self, row: int) -> Departure | None:
        """The departure of the member in this row that was found; None if there is none."""
        if not self._step_K or self._step_K[row] < 0:
            return None
        total, *parts = self._names
        odd = tuple(part for place, part in enumerate(parts, 1) if self._parts_K[row] >> place & 1)
        return Departure(self._step_K[row], odd or (total,))

    def tensors(self) -> dict[str, Tensor]:
        """What was found, for a checkpoint; empty if nothing was."""
        found = {STEP: self._step_K, PARTS: self._parts_K}
        return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items() if values}


class Divergence(FloatingPointError):
    """A loss is not finite, in a training that stops there."""


def diverge(
    method: Method, batch: Batch, noise: Mapping[str, Tensor], losses: Mapping[str, float], about: str, norm: float
) -> NoReturn:
    """Raise Divergence. In a debugger this frame has the model before the step, the batch and the noise:
    `method.losses(batch, noise)` computes the losses again, and `debug method.losses(batch, noise)` walks through it.

    `norm` is that of the gradient at the step before; negative if there was none.
    """
    values = ", ".join(f"{name} {value:.4g}" for name, value in losses.items())
    before = "" if norm < 0 else f"; the norm of the gradient was {_norm_text(norm)} at the step before"
    verb = "fit" if method.fitted() else "losses"
    raise Divergence(
        f"{about}: {values}{before}. In pdb, `method.{verb}(batch, noise)` computes it again, with the weights from "
        "before the step"
    )


def described(departure: Departure, number: int, steps: int, norm: float) -> str:
    """A departure in epoch `number`, counted from 0, of `steps` steps, as the end of a line. `norm` is that of the
    gradient at the last measured step before; negative if it was not measured, as in compiled steps."""
    text = f", first at step {departure.step + 1} of {steps} ({', '.join(departure.parts)})"
    measured = last_measured(number * steps + departure.step)
    if measured is None or norm < 0:
        return text
    epoch, step = divmod(measured, steps)
    return f"{text}; the norm of its gradient was {_norm_text(norm)} at step {step + 1} of epoch {epoch + 1}"


def _norm_text(norm: float) -> str:
    return f"{norm:.3g}" if math.isfinite(norm) else "not finite"
