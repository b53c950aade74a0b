"""Checks before anything trains: each trial against its data, and the user's own method against the contract, on a tiny
random batch. Tests check the contract of the methods that ship.

Shapes: B examples, X inputs, D dimensions of a representation, P of a projection, M components.
"""

import copy
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from trainables.catalog import TASKS, ContractError, is_function, method_of, ships, task_of
from trainables.contract import ConditionalDensity, ImageMethod, Losses, Method
from trainables.learners.data_parallel import draw_noise
from trainables.learners.members import FittedMembers, StackedMembers
from trainables.learners.optimisers import Rates, StackedSGD
from trainables.learners.stack import Stack
from trainables.metrics.meanings import VALIDATION
from trainables.networks.module_checks import called_twice, gradient_fault
from trainables.own_code import reason, trial_call
from trainables.sections import Training, TrialConfig
from trainables.tasks.task import TrialSize
from trainables.training.metric_names import metric_names, ranking_of
from trainables.training.stacks import build_models

EXAMPLES = 8
"""Number of examples in the tiny batch."""
TOLERANCE = 1e-3
"""Maximum difference between a member's loss in a stack and alone, relative to the loss, that is attributed to
rounding."""
WEIGHT_TOLERANCE = 1e-3
"""Maximum difference between 1 and the sum of a mixture's weights."""


Evaluate = Callable[..., Any]
"""Calls a method of the model by its name, in evaluation mode."""


Refuse = Callable[[str, str], NoReturn]
"""Raises ContractError with a law and the offender."""


R = TypeVar("R")


@dataclass(frozen=True)
class PreflightResult:
    """Properties of a trial that are known before it trains."""

    steps: int
    """Steps per epoch; 0 if `size_known` is False."""
    metrics: tuple[str, ...]
    """All metrics that the trial's reports can contain."""
    metrics_during_training: tuple[str, ...]
    """The metrics that reports before the last one also contain."""
    size_known: bool = True
    """Whether the number of examples is known. For image folders it is known only from the files."""
    why_not_stacked: str = ""
    """One line on why the trial cannot be stacked with others; empty if it can."""
    held_out: int | None = None
    """See `TrialSize.held_out`."""
    note: str = ""
    """See `TrialSize.note`."""
    any_metric: bool = False
    """Whether metrics are known only from the trial's reports, as for functions."""

    def lacks(self, metric: str, *, before_the_end: bool = False) -> bool:
        """Whether no report can contain a metric; `before_the_end` ignores the last report."""
        known = self.metrics_during_training if before_the_end else self.metrics
        return not self.any_metric and metric not in known


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """Check each trial against its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that does not fit its data set or whose own
    method breaks the contract.
    """
    sizes: dict[int, TrialSize] = {}
    for name, task in TASKS.items():
        indices = [index for index, config in enumerate(configs) if method_of(config.method).task == name]
        sizes |= dict(zip(indices, task.preflight([configs[index] for index in indices], data), strict=True))
    return [_result(config, sizes[index]) for index, config in enumerate(configs)]


def stacking_notes(configs: Sequence[TrialConfig], results: Sequence[PreflightResult]) -> tuple[str, ...]:
    """One line for each of the user's own methods or networks that cannot be stacked, and for anything else unusual."""
    reasons: dict[str, str] = {}
    for config, result in zip(configs, results, strict=True):
        if result.why_not_stacked:
            network = task_of(config.method).own_network(config)
            name = f"{config.method} with {network}" if network else config.method
            reasons.setdefault(name, result.why_not_stacked)
    notes = (*(task_of(config.method).note(config) for config in configs), *(result.note for result in results))
    others = dict.fromkeys(filter(None, notes))
    return (
        *(f"{name} cannot be stacked, so its trials train one by one: {why}" for name, why in reasons.items()),
        *others,
    )


def _result(config: TrialConfig, size: TrialSize) -> PreflightResult:
    if is_function(config.method):
        return PreflightResult(size.steps, (), (), any_metric=True)
    if ships(config.method) and method_of(config.method).fitted():
        _check_built(_of_any_seed(config))
    names, names_before = (metric_names(config, size.classes, last) for last in (True, False))
    training = config.training
    if training.patience and training.epochs > 1:
        _check_patience(training, config.method, names_before)
    return PreflightResult(
        size.steps, names, names_before, size.known, why_not_stacked(config), size.held_out, size.note
    )


def _check_patience(training: Training, method: str, reported: Sequence[str]) -> None:
    """Raise ValueError, with one line, if trials do not report the `patience_metric` during training."""
    if not training.patience_metric.startswith(VALIDATION):
        raise ValueError(
            f"patience needs a patience_metric on validation images, such as {VALIDATION}knn_z, but got "
            f"patience={training.patience}, patience_metric={training.patience_metric!r}"
        )
    ranking_of(training.patience_metric)
    if training.patience_metric not in reported:
        on_validation = [name for name in reported if name.startswith(VALIDATION)]
        known = f"there are: {', '.join(on_validation)}" if on_validation else "add validation=0.2 to hold out images"
        raise ValueError(
            f"patience_metric must be reported while trials of {method} train, but {training.patience_metric} is not; "
            f"{known}"
        )


# Which members of a cohort are stacked. The user's own methods that cannot be stacked train one by one.


def stack_width(configs: Sequence[TrialConfig], width: int | None) -> int:
    """Number of members stacked at a time, given the requested `width` (None: all)."""
    width = width or max(1, len(configs))
    return 1 if width > 1 and why_not_stacked(configs[0]) else width


def split_into_stacks(members: Sequence[int], width: int, compiled: bool) -> list[tuple[int, ...]]:
    """The members of each stack, in order: `width` members per stack, and the rest in a narrower stack. With compiled
    steps the rest are stepped one at a time, so that a cohort has at most two step shapes, however many of its members
    are pruned."""
    whole = len(members) - len(members) % width if compiled else len(members)
    stacks = [tuple(members[start : start + width]) for start in range(0, whole, width)]
    return [*stacks, *((member,) for member in members[whole:])]


def why_not_stacked(config: TrialConfig) -> str:
    """One line on why members of a trial's method cannot be stacked; empty if they can. The user's own methods and
    networks are tried. Raises ContractError (a ValueError), with one line, if they break the contract."""
    if ships(config.method) and not task_of(config.method).own_network(config):
        return ""
    return _checked(_of_any_seed(config))


def _of_any_seed(config: TrialConfig) -> TrialConfig:
    """The config of the first seed and of at most one epoch, for checks that are made once for all of them."""
    return replace(config, training=replace(config.training, seed=0, epochs=min(1, config.training.epochs)))


@functools.lru_cache(maxsize=64)
def _check_built(config: TrialConfig) -> None:
    """Raise ValueError if a fitted method of images cannot be built, because its encoder lacks what it reads."""
    method, task = method_of(config.method), task_of(config.method)
    if issubclass(method, ImageMethod):
        tried = task.random_batch(config, method, EXAMPLES)
        assert tried
        with torch.device("meta"):  # without memory
            method(config.options, task.networks(config), tried.shapes)


# Check whether the user's own method keeps the contract.


@trial_call()
def check_method(config: TrialConfig) -> str:
    """One line on why members of this method cannot be stacked; empty if they can. Raises ContractError if the method
    breaks the contract."""
    method = method_of(config.method)
    tried = task_of(config.method).random_batch(config, method, EXAMPLES)
    if tried is None:
        return ""
    config, shapes, batch = tried
    seeds = (replace(config, training=replace(config.training, seed=seed)) for seed in (0, 1))
    network = task_of(config.method).own_network(config)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):  # vmap's warnings about speed
        if network:
            task_of(config.method).check_own_network(config, EXAMPLES)
        models = _tried(config.method, "building it", lambda: build_models([*seeds], shapes))
        trial = _MemberPair(config.method, models, batch)
        if method.trains():
            trial.check_learning()
        inputs = torch.rand((EXAMPLES, *shapes["views"])) if "views" in shapes else batch["x"]
        trial.check_capabilities(inputs)
        of_user = network if network and ships(config.method) else method.__module__
        return "" if method.fitted() else trial.why_not_stacked(inputs, of_user.partition(":")[0])


class _MemberPair:
    """Two members of a method, and a batch."""

    def __init__(self, name: str, models: Sequence[Method], batch: Mapping[str, Any]) -> None:
        self._name, self._models = name, models
        self._fitted = models[0].fitted()
        self._noise, self._after_noise, self._score_noise = (
            draw_noise(noises, "tried", device="cpu")
            for noises in (
                _tried(name, "noise", lambda: models[0].noise(EXAMPLES)),
                _tried(name, "after_step_noise", models[0].after_step_noise),
                _tried(name, "score_noise", lambda: _score_noise(models[0])),
            )
        )
        self._inputs = batch, self._noise

    def check_learning(self) -> None:
        """Raise ContractError unless the losses of a batch satisfy the contract."""
        verb, method = "fit" if self._fitted else "losses", self._models[0]
        call = functools.partial(_call, self._name, verb)
        draws = "declare them in noise(batch) and take them as an argument"
        losses, fault = called_twice(method, call, self._inputs, draws)
        if fault:
            self._refuse(f"{verb} {fault.law}", fault.got)
        if not isinstance(losses, Losses):
            self._refuse(f"{verb} must return sweeper.Losses(total, parts)", shown(losses))
        for name, value in {"total": losses.total, **losses.parts}.items():
            if not isinstance(value, Tensor) or value.shape != ():
                self._refuse(f"{verb} must return scalar tensors", f"{name} is {shown(value)}")
        if not losses.total.isfinite():
            self._refuse("the loss of random examples must be finite", f"total={losses.total.item()}")
        if not set(losses.parts) <= set(method.loss_parts):
            parts = ", ".join(losses.parts) or "none"
            self._refuse(f"loss_parts must list all parts of {verb}", f"{method.loss_parts!r} and the parts {parts}")
        if not self._fitted:
            used = copy.deepcopy(method)  # losses may update buffers
            if not [*used.parameters()]:
                self._refuse("a method that trains must have weights to train", "none, or all of them frozen")
            if fault := gradient_fault(used, lambda: call(used, self._inputs).total):
                self._refuse(f"{verb} {fault.law}", fault.got)

    def check_capabilities(self, inputs: Tensor) -> None:
        """Raise ContractError unless the method's capabilities return the declared shapes."""
        model = self._models[0]
        if self._fitted:  # a method may return nothing before it is fitted
            model = copy.deepcopy(model)
            _call(self._name, "fit", model, self._inputs)
        check_capabilities(model, functools.partial(self._evaluate, model), self._refuse, inputs, self._score_noise)

    def why_not_stacked(self, inputs: Tensor, module: str) -> str:
        """The reason why the two members cannot be stacked; empty if they can. `module`: the user's module, whose line
        the reason names."""
        method = self._models[0]
        try:
            if method.trains():
                alone = torch.cat([self._step([model]) for model in self._models])
                if not torch.allclose(self._step(self._models), alone, rtol=TOLERANCE, atol=TOLERANCE):
                    return "stacked members have different losses from members alone"
            stack = self._stack(self._models)
            first = functools.partial(_of_first, stack)
            call_all(method, first, inputs, self._score_noise)
        except Exception as error:
            return reason(error, module)
        return ""

    def _step(self, models: Sequence[Method]) -> Tensor:
        """The losses `[K]` of a second step, which include effects of state left by the first."""
        stack = self._stack(models)
        for _ in range(2):
            losses = stack.step([self._inputs[0]], [self._noise], [self._after_noise], 1.0)
        return losses.total

    def _evaluate(self, model: Method, verb: str, *inputs: Any) -> Any:
        """The result of a member in evaluation mode."""
        return _tried(self._name, verb, lambda: _of_first(self._stack([model]), verb, *inputs))

    def _stack(self, models: Sequence[Method]) -> StackedMembers:
        if self._fitted:
            return FittedMembers(models, streams=[0] * len(models))
        make = functools.partial(StackedSGD, momentum=0.0)
        rates = Rates([1e-3] * len(models), [0.0] * len(models))
        return Stack(models, streams=[0] * len(models), rates=rates, make_optimiser=make)

    def _refuse(self, law: str, got: str) -> NoReturn:
        raise ContractError(self._name, law, got)


def _call(name: str, verb: str, model: Any, inputs: tuple[Mapping[str, Any], Mapping[str, Tensor]]) -> Any:
    """The result of `verb` of a method in training mode for a batch and noise."""
    return _tried(name, verb, lambda: getattr(model.train(), verb)(*inputs))


def _score_noise(model: Method) -> Any:
    return model.score_noise(EXAMPLES) if isinstance(model, ImageMethod) else {}


def _tried(name: str, verb: str, call: Callable[[], R]) -> R:
    """Call the user's code. If it raises an exception, raise ContractError with the line in the user's file."""
    try:
        return call()
    except Exception as error:
        law = f"{verb} must work on a batch of {EXAMPLES} random examples"
        raise ContractError(name, law, reason(error, method_of(name).__module__)) from error


def _of_first(stack: StackedMembers, verb: str, *inputs: Any) -> Any:
    """The result of a stack's first member in evaluation mode."""
    return tree_map(lambda output: output[0], stack.evaluate(verb, *inputs))


# Check whether the capabilities return the right shapes.


def check_capabilities(
    model: Method, evaluate: Evaluate, refuse: Refuse, inputs: Tensor, score_noise: Mapping[str, Tensor]
) -> None:
    """Call `refuse` unless the method's capabilities work. `inputs`: images `[B, C, H, W]`, or the x of pairs `[B,
    X]`."""
    if isinstance(model, ImageMethod):
        _check_images(model, evaluate, refuse, inputs, score_noise)
    elif "predict" in model.capabilities:
        _check_conditional(evaluate("predict", inputs), refuse, len(inputs))


def call_all(model: Method, evaluate: Evaluate, inputs: Tensor, score_noise: Mapping[str, Tensor]) -> None:
    """Call all capabilities that the method declares."""
    if "predict" in model.capabilities:
        evaluate("predict", inputs)
    if isinstance(model, ImageMethod):
        z_BD = evaluate("embed", inputs)["z"]
        if "score" in model.capabilities:
            evaluate("score", inputs, score_noise, *([inputs] if model.scores_pixels else []))
        if "heat" in model.capabilities:
            evaluate("heat", inputs)
        if "decode" in model.capabilities:
            evaluate("decode", z_BD)
        if "density" in model.capabilities:
            evaluate("density")
        if "classify" in model.capabilities:
            evaluate("classify", inputs)


def shown(value: object) -> str:
    """A description of a value, such as `a tensor of shape [8, 2]`."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {[*value.shape]}"
    return "none" if value is None else f"of type {type(value).__name__}"


def _check_images(
    model: ImageMethod,
    evaluate: Evaluate,
    refuse: Refuse,
    images_BCHW: Tensor,
    score_noise: Mapping[str, Tensor],
) -> None:
    count, vectors = len(images_BCHW), evaluate("embed", images_BCHW)
    for name in ("z", *model.representations, *([model.variance] if model.variance else [])):
        if not isinstance(vectors, dict) or name not in vectors or vectors[name].shape[:-1] != (count,):
            got = vectors.get(name) if isinstance(vectors, dict) else vectors
            refuse(f"embed must return a dict with '{name}' of shape [{count}, D]", shown(got))
    if "score" in model.capabilities:
        scores = evaluate("score", images_BCHW, score_noise, *([images_BCHW] if model.scores_pixels else []))
        if tuple(scores) != model.scores or any(score.shape != (count,) for score in scores.values()):
            got = ", ".join(f"'{name}' is {shown(score)}" for name, score in scores.items())
            refuse(f"score must return {', '.join(model.scores)}, each of shape [{count}]", got)
    if "heat" in model.capabilities:
        heat, shape = evaluate("heat", images_BCHW), [count, *images_BCHW.shape[-2:]]
        if not isinstance(heat, Tensor) or [*heat.shape] != shape:
            refuse(f"heat must return maps of shape {shape}", shown(heat))
    if "decode" in model.capabilities:
        decoded = evaluate("decode", vectors["z"])
        if decoded.shape != images_BCHW.shape:
            refuse(f"decode must return images of shape {[*images_BCHW.shape]}", shown(decoded))
    if "density" in model.capabilities:
        _check_density(evaluate("density"), refuse, evaluate("project", images_BCHW).shape[-1])
    if "classify" in model.capabilities:
        logits, classes = evaluate("classify", images_BCHW), [count, model.classes]
        if not isinstance(logits, Tensor) or [*logits.shape] != classes:
            refuse(f"classify must return logits of shape {classes}", shown(logits))


def _check_density(mixture: Any, refuse: Refuse, size: int) -> None:
    """Check a mixture over vectors of P=`size` dimensions."""
    parts = mixture if isinstance(mixture, dict) else {}
    logits_M = parts.get("logits")
    count = len(logits_M) if isinstance(logits_M, Tensor) and logits_M.ndim == 1 else "M"
    for name, shape in {"logits": [count], "means": [count, size], "covariances": [count, size, size]}.items():
        part = parts.get(name)
        if not isinstance(part, Tensor) or [*part.shape] != shape:
            got = shown(part if isinstance(mixture, dict) else mixture)
            refuse(f"density must return a dict with '{name}' of shape [{', '.join(map(str, shape))}]", got)


def _check_conditional(density: Any, refuse: Refuse, count: int) -> None:
    """Check a mixture at each of `count` x."""
    law = "predict must return sweeper.ConditionalDensity(log_weights_BM, means_BM, sigmas_BM)"
    if not isinstance(density, ConditionalDensity):
        refuse(law, shown(density))
    components = density.log_weights_BM.shape[-1] if isinstance(density.log_weights_BM, Tensor) else "M"
    for name, part in density._asdict().items():
        if not isinstance(part, Tensor) or [*part.shape] != [count, components]:
            refuse(f"{law}, each of shape [{count}, {components}]", f"{name} is {shown(part)}")
    if not (density.sigmas_BM > 0).all():
        refuse("the standard deviations of predict must be above 0", f"{density.sigmas_BM.min().item():g}")
    sums_B = density.log_weights_BM.exp().sum(-1)
    if not torch.allclose(sums_B, torch.ones_like(sums_B), atol=WEIGHT_TOLERANCE, rtol=0):
        refuse("the weights of predict, exp(log_weights_BM), must sum to 1", f"{sums_B[0].item():g}")


_checked = functools.lru_cache(maxsize=64)(check_method)
