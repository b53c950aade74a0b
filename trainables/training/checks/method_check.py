"""Try a method of the user on a tiny random batch, before anything trains: does it keep the contract?

The methods that ship are held to the contract by tests instead.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from trainables.catalog import method_of, task_of
from trainables.config.trial_config import TrialConfig
from trainables.contract import ImageMethod, Losses, Method
from trainables.learners.fitted import FittedMembers
from trainables.learners.members import StackedMembers
from trainables.learners.noise import draw_noise
from trainables.learners.optimisers import StackedSGD
from trainables.learners.stack import Stack
from trainables.method_loading import ContractError, reason
from trainables.training.checks.capability_check import call_all, check_capabilities, shown
from trainables.training.models import build_models

EXAMPLES = 8
"""Examples of the tiny batch."""
TOLERANCE = 1e-3
"""Largest difference between a member's loss in a stack and alone, relative to the loss, that rounding explains."""
R = TypeVar("R")


def check_method(config: TrialConfig) -> str:
    """Why members of this method cannot be stacked, in one line; empty if they can. Raises ContractError if the method
    breaks the contract."""
    method = method_of(config.method)
    tried = task_of(config.method).random_batch(config, method, EXAMPLES)
    if tried is None:
        return ""
    config, shapes, batch = tried
    seeds = (replace(config, training=replace(config.training, seed=seed)) for seed in (0, 1))
    with torch.random.fork_rng(devices=[]):
        models = _tried(config.method, "building it", lambda: build_models([*seeds], shapes))
        trial = _Trial(config.method, models, batch)
        if method.trains():
            trial.check_learning()
        inputs = torch.rand((EXAMPLES, *shapes["views"])) if "views" in shapes else batch["x"]
        trial.check_capabilities(inputs)
        return "" if method.fitted() else trial.why_not_stacked(inputs)


class _Trial:
    """Two members of a method, and a batch."""

    def __init__(self, name: str, models: Sequence[Method], batch: Mapping[str, Any]) -> None:
        self._name, self._models, self._batch = name, models, batch
        self._fitted = models[0].fitted()
        self._noise, self._after_noise, self._score_noise = (
            draw_noise(noises, "tried", device="cpu")
            for noises in (
                _tried(name, "noise", lambda: models[0].noise(EXAMPLES)),
                _tried(name, "after_step_noise", models[0].after_step_noise),
                _tried(name, "score_noise", lambda: _score_noise(models[0])),
            )
        )

    def check_learning(self) -> None:
        """Raise ContractError unless the losses of a batch are as the contract says."""
        verb, method = "fit" if self._fitted else "losses", self._models[0]
        used = copy.deepcopy(method)  # losses may update its buffers
        losses = self._losses(verb, used)
        if not isinstance(losses, Losses):
            self._refuse(f"{verb} must return trainables.contract.Losses(total, parts)", shown(losses))
        for name, value in {"total": losses.total, **losses.parts}.items():
            if not isinstance(value, Tensor) or value.shape != ():
                self._refuse(f"{verb} must return scalar tensors", f"{name} is {shown(value)}")
        if not losses.total.isfinite():
            self._refuse("the loss of random examples must be finite", f"total={losses.total.item()}")
        if not set(losses.parts) <= set(method.loss_parts):
            parts = ", ".join(losses.parts) or "none"
            self._refuse(f"loss_parts must name all parts of {verb}", f"{method.loss_parts!r} and the parts {parts}")
        if not torch.equal(self._losses(verb, copy.deepcopy(method)).total, losses.total):
            law = f"{verb} must draw no random numbers (declare them in noise(batch) and take them as an argument)"
            self._refuse(law, "two calls with the same batch and noise differ")
        if not self._fitted:
            self._check_gradients(dict(used.named_parameters()), losses.total)

    def _check_gradients(self, parameters: Mapping[str, Tensor], total: Tensor) -> None:
        gradients: Sequence[Tensor | None] = [None] * len(parameters)
        if total.requires_grad:
            gradients = torch.autograd.grad(total, [*parameters.values()], allow_unused=True)
        if unused := [name for name, gradient in zip(parameters, gradients, strict=True) if gradient is None]:
            law = "every parameter must take part in the loss (averaged weights and the like are buffers)"
            self._refuse(law, f"{', '.join(unused[:3])} without a gradient")

    def check_capabilities(self, inputs: Tensor) -> None:
        """Raise ContractError unless the method gives what it declares, of the right shapes."""
        model = self._models[0]
        if self._fitted:  # a method may give nothing before it is fitted
            model = copy.deepcopy(model)
            self._losses("fit", model)
        check_capabilities(model, functools.partial(self._evaluate, model), self._refuse, inputs, self._score_noise)

    def why_not_stacked(self, inputs: Tensor) -> str:
        """Why the two members cannot be stacked; empty if they can."""
        method = self._models[0]
        try:
            if method.trains():
                alone = torch.cat([self._step([model]) for model in self._models])
                if not torch.allclose(self._step(self._models), alone, rtol=TOLERANCE, atol=TOLERANCE):
                    return "stacked members have other losses than members alone"
            stack = self._stack(self._models)
            first = functools.partial(_of_first, stack)
            call_all(method, first, inputs, self._score_noise)
        except Exception as error:
            return reason(error, type(method).__module__)
        return ""

    def _losses(self, verb: str, model: Method) -> Any:
        return _tried(self._name, verb, lambda: getattr(model.train(), verb)(self._batch, self._noise))

    def _step(self, models: Sequence[Method]) -> Tensor:
        """The losses `[K]` of a second step, to which what the first one leaves behind contributes."""
        stack = self._stack(models)
        for _ in range(2):
            losses = stack.step([self._batch], [self._noise], [self._after_noise], 1.0)
        return losses.total

    def _evaluate(self, model: Method, verb: str, *inputs: Any) -> Any:
        """What a member returns in evaluation mode."""
        return _tried(self._name, verb, lambda: _of_first(self._stack([model]), verb, *inputs))

    def _stack(self, models: Sequence[Method]) -> StackedMembers:
        if self._fitted:
            return FittedMembers(models, streams=[0] * len(models))
        make = functools.partial(StackedSGD, momentum=0.0)
        rates, decays = [1e-3] * len(models), [0.0] * len(models)
        return Stack(models, streams=[0] * len(models), lr=rates, weight_decay=decays, make_optimiser=make)

    def _refuse(self, law: str, got: str) -> NoReturn:
        raise ContractError(self._name, law, got)


def _score_noise(model: Method) -> Any:
    return model.score_noise(EXAMPLES) if isinstance(model, ImageMethod) else {}


def _tried(name: str, verb: str, call: Callable[[], R]) -> R:
    """Call the user's code. Raises ContractError, with the line of the user's file, if it raises an exception."""
    try:
        return call()
    except Exception as error:
        law = f"{verb} must work on a batch of {EXAMPLES} random examples"
        raise ContractError(name, law, reason(error, method_of(name).__module__)) from error


def _of_first(stack: StackedMembers, verb: str, *inputs: Any) -> Any:
    """What the first member of a stack returns in evaluation mode."""
    return tree_map(lambda output: output[0], stack.evaluate(verb, *inputs))
