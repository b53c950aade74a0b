"""The members of one cohort and their data streams: stacks that are trained one epoch at a time, and evaluated.

Shapes: K members still in the cohort, B examples per step.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from trainables.catalog import method_of, task_of
from trainables.config import stream_key
from trainables.contract import Noises
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers, draw_noise
from trainables.learners.members import StackedMembers
from trainables.learners.phases import part_of_step
from trainables.metrics.evaluator import Floats, KeptResults
from trainables.reports import CheckpointError, Move
from trainables.sections import SCHEDULES, GradientTraining, TrialConfig
from trainables.training.checks import split_into_stacks, stack_width, why_not_stacked
from trainables.training.compiled_steps import StepCompiler
from trainables.training.divergence import LossWatch, described, diverge, is_measured
from trainables.training.model_file import TrainedModel
from trainables.training.stacks import build_models, build_stack

READ_GAMMA = ("step", "exponential")
"""Schedules that depend on `lr_gamma`."""


def set_precision(device: torch.device, precision: str) -> None:
    """Set how this process multiplies float32 numbers on a GPU: exactly, unless `precision` is `tf32`.

    PyTorch by itself would round in convolutions. cuDNN does not try which algorithms are fast, because the choice, and
    with it the numbers, would differ from run to run.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = False


class TrainingCohort:
    """K members whose configs differ only in fusible keys."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        data: Path,
        device: torch.device,
        width: int | None,
        peers: Peers = SINGLE_PROCESS,
        raise_if_stopped: Callable[[], None] = lambda: None,
        compiler: StepCompiler | None = None,
    ) -> None:
        """`width`: members stacked at a time; None for all. `peers` train the same cohort, each on its part of every
        batch. `raise_if_stopped` is called between evaluation batches and while a step is compiled. `compiler` compiles
        the steps; None makes them eager. Raises DataError or ValueError if the data cannot be loaded or do not suit the
        configs."""
        training = configs[0].training
        set_precision(device, training.precision if isinstance(training, GradientTraining) else "float32")
        self.method = method_of(configs[0].method)
        self._first, self._peers, self._device = configs[0], peers, device
        loaded = task_of(configs[0].method).load(configs, self.method, data, device, peers, raise_if_stopped)
        self._streams, self._evaluator = list(loaded.streams.values()), loaded.evaluator
        self._configs, self._shapes, self._inputs = tuple(configs), loaded.shapes, loaded.inputs
        if len({stream.steps for stream in self._streams}) > 1:
            raise ValueError("the members of a cohort must have the same number of steps per epoch, but these differ")
        self._stream_of = [loaded.streams[stream_key(config)] for config in configs]
        initial = build_models(configs, loaded.shapes)
        self._width = stack_width(configs, width)
        self.members = tuple(range(len(configs)))
        """Ascending config indices of the members still in the cohort. Results `[K]` are in this order."""
        self._evaluated = self.members
        """Indices of the members of the last evaluation."""
        self._phases = self.method.phases(configs[0].options)
        self._watch, self._epoch = LossWatch({}), 0
        by_gradients = self.method.trains() and not self.method.fitted()
        if not by_gradients or self._phases or (compiler and why_not_stacked(configs[0])):
            compiler = None  # members that cannot be stacked, or have phases, may hold values that are not tensors
        self.compiled = compiler is not None
        """Whether steps should be compiled."""
        find = compiler.finder(configs[0], loaded.shapes, raise_if_stopped) if compiler else None
        self._stacks = [
            build_stack(
                [initial[index] for index in stacked],
                [configs[index] for index in stacked],
                self._stream_indices(stacked),
                device,
                peers,
                find,
            )
            for stacked in self._members_by_stack()
        ]

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self._streams[0].steps

    @property
    def epochs(self) -> int:
        """Epochs of the whole training."""
        return self._first.training.epochs

    def epoch(
        self,
        number: int,
        first: int = 0,
        sums: Mapping[str, torch.Tensor] | None = None,
        after_step: Callable[[int, Mapping[str, torch.Tensor]], None] = lambda step, sums: None,
        stop_at_divergence: bool = False,
    ) -> dict[str, Floats]:
        """Train epoch `number` (counted from 0), beginning at step `first`. Returns each loss `[K]`, averaged over all
        steps.

        `sums` are the losses of the first `first` steps, summed. `after_step` is called with the number of steps done
        and the sums; it may raise to end the epoch there. Raises CheckpointError if `first` exceeds the steps of an
        epoch or, at the first step, if `sums` does not have the losses of this method.

        With `stop_at_divergence`, of a member alone, a step of which a loss is not finite raises Divergence, in a frame
        that has the model before it, and what it was given. That takes a copy of the model for each step.
        """
        orders, steps = self.orders(number), self.steps
        if first > steps:
            raise CheckpointError(f"an epoch has {steps} steps, but the checkpoint is at step {first}")
        self.begin_epoch(number, first)
        sums = {name: sum_K.to(self._device) for name, sum_K in (sums or {}).items()}
        self._watch, self._epoch = LossWatch.of(sums), number
        for step in range(first, steps):
            before = self.state() if stop_at_divergence else None
            losses = self.step(number, step, orders, self._rate(number * steps + step), stop_at_divergence)
            if before and not bool(torch.stack([*losses.values()]).isfinite().all()):
                self.load_state(before)
                self._raise_divergence(losses, number, step, orders)
            if step and set(sums) != set(losses):
                raise CheckpointError(
                    f"its sums must be those of {', '.join(losses)}, but are those of {', '.join(sums)}"
                )
            sums = {name: sums[name] + loss_K if step else loss_K for name, loss_K in losses.items()}
            self._watch.add(step, losses, sums)
            after_step(step + 1, sums)
        self._watch.look(sums)
        self.average_over_peers(sums)
        return {name: (sum_K / steps).double().cpu().numpy() for name, sum_K in sums.items()}

    def sums_to_save(self, sums: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The sums of an epoch that is interrupted, and what is known of divergences: `epoch` continues from them."""
        self._watch.look(sums)
        return {**sums, **self._watch.tensors()}

    def about_divergence(self, row: int) -> str:
        """Where the loss of the member in this row `[K]` left the finite numbers in the last epoch, as the end of a
        line; empty if it is not known."""
        departure = self._watch.departure(row)
        if departure is None:
            return ""
        stack, slot = self._slots()[self.members[row]]
        return described(departure, self._epoch, self.steps, stack.gradient_norm(slot))

    def _raise_divergence(
        self, losses: Mapping[str, torch.Tensor], number: int, step: int, orders: Sequence[torch.Tensor]
    ) -> NoReturn:
        """Raise Divergence of the only member, whose weights are those before the step."""
        stack, (stream,) = self._stacks[0], self._streams
        weights, method = stack.tensors_of(0), stack.method
        with torch.no_grad():
            for name, tensor in (*method.named_parameters(), *method.named_buffers()):
                tensor.copy_(weights[name])
        (noise,) = self._noise("noise", method.noise, number, step)
        values = {name: float(loss_K[0]) for name, loss_K in losses.items()}
        about = f"the loss diverges at step {step + 1} of {self.steps} of epoch {number + 1}"
        norm = stack.gradient_norm(0)
        diverge(method.train(), stream.batch(orders[0][step], number, step), noise, values, about, norm)

    def begin_epoch(self, number: int, first: int = 0) -> None:
        """Set the method's epoch, counted from 0. If the epoch begins a training phase, begin it, unless `first` steps
        of the epoch are already made."""
        for stack in self._stacks:
            stack.method.epoch = number
            if number in self._phases and not first:
                stack.begin_phase([stream.examples for stream in self._streams])

    def average_over_peers(self, sums: Mapping[str, torch.Tensor]) -> None:
        """Average the values that differ between processes (these sums and the buffers) over all peers, in place."""
        self._peers.average(list(sums.values()))
        for stack in self._stacks:
            stack.average_buffers()

    def orders(self, epoch: int) -> list[torch.Tensor]:
        """Indices `[steps, B]` of the training examples in each step of the epoch, one tensor per stream."""
        return [stream.order(epoch) for stream in self._streams]

    def step(
        self,
        epoch: int,
        step: int,
        orders: Sequence[torch.Tensor],
        rate: float | Sequence[float],
        measure: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Step every member at `rate` times its learning rate, or each at a rate of its own. Returns each loss before
        the step, `[K]`. The norms of gradients are measured where it is time to, and with `measure`."""
        batches, method = [], self._stacks[0].method
        with part_of_step("data"):
            for stream, order in zip(self._streams, orders, strict=True):
                batches.append(stream.batch(order[step], epoch, step))
                stream.prefetch(order, epoch, step + 1)
            noise = self._noise("noise", method.noise, epoch, step)
            after_noise = self._noise("after_step", lambda _: method.after_step_noise(), epoch, step)
        losses, first, measure = [], 0, measure or is_measured(epoch * self.steps + step)
        for stack in self._stacks:
            own = rate if isinstance(rate, float) else rate[first : first + stack.size]
            losses.append(stack.step(batches, noise, after_noise, own, measure))
            first += stack.size
        total = {"loss": torch.cat([loss.total for loss in losses])}
        return total | {
            method.metric_of_part(part): torch.cat([loss.parts[part] for loss in losses]) for part in losses[0].parts
        }

    def _noise(
        self, name: str, noises_of: Callable[[int], Noises], epoch: int, step: int
    ) -> list[dict[str, torch.Tensor]]:
        """The noise of a step for each stream, as declared for the size of its batches."""
        return [
            draw_noise(
                noises_of(stream.batch_size), name, stream.key, epoch, step, device=self._device, peers=self._peers
            )
            for stream in self._streams
        ]

    def _rate(self, step: int) -> float | list[float]:
        """The learning rate of a step (counted over all epochs) as a share of its peak, per member if members differ.
        Each phase has its own schedule."""
        if self.method.fitted():
            return 1.0
        training, optimiser = self._first.gradient, self._first.optimiser
        schedule = SCHEDULES[optimiser.lr_schedule]
        bounds = [epoch * self.steps for epoch in (0, *self._phases, training.epochs)]
        start, end = max(at for at in bounds if at <= step), min(at for at in bounds if at > step)
        gammas = [self._configs[index].optimiser.lr_gamma for index in self.members]
        spans = {"warmup": training.warmup_epochs * self.steps, "drop": optimiser.lr_drop_every * self.steps}
        shares = {
            gamma: schedule(step - start, end - start, gamma=gamma, per_epoch=self.steps, **spans)
            for gamma in set(gammas)
        }
        differ = optimiser.lr_schedule in READ_GAMMA and len(shares) > 1  # the same at every step, for compiled steps
        return [shares[gamma] for gamma in gammas] if differ else shares[gammas[0]]

    def evaluate(self, last: bool, members: Sequence[int] | None = None) -> dict[str, Floats]:
        """Metrics `[K]` by name, NaN where undefined, of all members or of those with these ascending indices; `last`
        adds metrics that are reported only at the end of training."""
        self._evaluated = self.members if members is None else tuple(members)
        stacks = self._stacks if self._evaluated == self.members else self._stacks_of(self._evaluated)
        return self._evaluator.metrics(stacks, self._evaluated, last)

    @property
    def pictures(self) -> Sequence[Mapping[str, bytes]]:
        """Name -> PNG file for each member of the last evaluation; empty without pictures."""
        return self._evaluator.pictures

    def keep(self, members: Collection[int]) -> None:
        """Remove all other members. The remaining members are moved into as few stacks as possible, and unused streams
        are dropped."""
        if set(members) == set(self.members):
            return
        slots = self._slots()
        self.members = tuple(index for index in self.members if index in members)
        self._streams = list(dict.fromkeys(self._stream_of[index] for index in self.members))
        self._stacks = self._stacks_of(self.members, slots)

    def move(self, moves: Mapping[int, Move]) -> None:
        """Copy each of these members from its source, in the source's state before any move. Raises ValueError if a
        member or its source has left the cohort, or if a hyperparameter cannot be changed."""
        slots = self._slots()
        for index, move in moves.items():
            if not {index, move.source} <= set(self.members):
                members = ", ".join(map(str, self.members))
                raise ValueError(
                    f"a member can only copy another running member, but got {index} copying {move.source}; running "
                    f"are: {members}"
                )
        sources = {move.source: slots[move.source] for move in moves.values()}
        copies = {source: stack.copy_member(slot) for source, (stack, slot) in sources.items()}
        for index, move in moves.items():
            stack, slot = slots[index]
            stack.load_member(slot, copies[move.source], move.hyperparameters)

    def load_tensors(self, tensors: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
        """Load earlier weights into each of these members, given by index."""
        slots = self._slots()
        for index, of_member in tensors.items():
            stack, slot = slots[index]
            stack.load_tensors(slot, of_member)

    def tensors_of(self, member: int) -> dict[str, torch.Tensor]:
        """A copy of the model weights of the member with this index."""
        stack, slot = self._slots()[member]
        return stack.tensors_of(slot)

    def evaluate_to_keep(self, members: Sequence[int]) -> None:
        """Run a final evaluation of these members, which collects what their models contain besides weights."""
        if self._evaluator.keeps:
            self.evaluate(True, members)

    def trained_models(self, members: Iterable[int]) -> Iterator[tuple[int, TrainedModel]]:
        """Yield a copy of the model of each of these members."""
        slots, kept = self._slots(), dict(zip(self._evaluated, self._evaluator.kept, strict=False))
        for member in members:
            (stack, slot), own = slots[member], kept.get(member, KeptResults())
            inputs = {**self._inputs, **own.inputs}
            yield member, TrainedModel(self._configs[member], stack.tensors_of(slot), self._shapes, inputs, own.arrays)

    def state(self) -> list[dict[str, Any]]:
        """Everything that training changes, on the CPU."""
        return [stack.state() for stack in self._stacks]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Load the result of `state` from a cohort with the same configs, width and members. Raises CheckpointError if
        a name, shape or type differs."""
        if not isinstance(state, list) or len(state) != len(self._stacks):
            raise CheckpointError(f"its state must contain {len(self._stacks)} stacks, but does not")
        for stack, saved in zip(self._stacks, state, strict=True):
            stack.load_state(saved)

    def _stacks_of(
        self, members: Sequence[int], slots: Mapping[int, tuple[StackedMembers, int]] | None = None
    ) -> list[Any]:
        """Copies of these members in as few stacks as possible. `slots` are their current slots."""
        slots = slots or self._slots()
        return [
            type(self._stacks[0]).from_members([slots[index] for index in stacked], self._stream_indices(stacked))
            for stacked in split_into_stacks(members, self._width, self.compiled)
        ]

    def _members_by_stack(self) -> list[tuple[int, ...]]:
        return split_into_stacks(self.members, self._width, self.compiled)

    def _slots(self) -> dict[int, tuple[StackedMembers, int]]:
        """Index of a member -> its stack and slot."""
        return {
            index: (stack, slot)
            for stack, stacked in zip(self._stacks, self._members_by_stack(), strict=True)
            for slot, index in enumerate(stacked)
        }

    def _stream_indices(self, members: Sequence[int]) -> list[int]:
        """Index of the stream that each of these members reads."""
        return [self._streams.index(self._stream_of[index]) for index in members]
