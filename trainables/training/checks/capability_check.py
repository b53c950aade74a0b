"""Does a method of the user give what its capabilities promise, of the right shapes?

Shapes: B examples, X inputs, D dimensions of a representation, P of a projection, M components.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from trainables.contract import ConditionalDensity, ImageMethod, Method

TOLERANCE = 1e-3
"""Largest difference between one and the sum of a mixture's weights."""
Evaluate = Callable[..., Any]
"""Calls a method of the model by its name, in evaluation mode."""
Refuse = Callable[[str, str], NoReturn]
"""Raises ContractError with a law and the offender."""


def check_capabilities(
    model: Method, evaluate: Evaluate, refuse: Refuse, inputs: Tensor, score_noise: Mapping[str, Tensor]
) -> None:
    """Call `refuse` unless the method gives what it declares. `inputs`: images `[B, C, H, W]`, or the x of pairs
    `[B, X]`."""
    if isinstance(model, ImageMethod):
        _check_images(model, evaluate, refuse, inputs, score_noise)
    elif "predict" in model.capabilities:
        _check_conditional(evaluate("predict", inputs), refuse, len(inputs))


def call_all(model: Method, evaluate: Evaluate, inputs: Tensor, score_noise: Mapping[str, Tensor]) -> None:
    """Call all that the method declares."""
    if "predict" in model.capabilities:
        evaluate("predict", inputs)
    if isinstance(model, ImageMethod):
        z_BD = evaluate("embed", inputs)["z"]
        if "score" in model.capabilities:
            evaluate("score", inputs, score_noise)
        if "decode" in model.capabilities:
            evaluate("decode", z_BD)
        if "density" in model.capabilities:
            evaluate("density")


def shown(value: object) -> str:
    """What a value is, such as `a tensor of shape [8, 2]`."""
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
        scores = evaluate("score", images_BCHW, score_noise)
        if tuple(scores) != model.scores or any(score.shape != (count,) for score in scores.values()):
            got = ", ".join(f"'{name}' is {shown(score)}" for name, score in scores.items())
            refuse(f"score must return {', '.join(model.scores)}, each of shape [{count}]", got)
    if "decode" in model.capabilities:
        decoded = evaluate("decode", vectors["z"])
        if decoded.shape != images_BCHW.shape:
            refuse(f"decode must return images of shape {[*images_BCHW.shape]}", shown(decoded))
    if "density" in model.capabilities:
        _check_density(evaluate("density"), refuse, evaluate("project", images_BCHW).shape[-1])


def _check_density(mixture: Any, refuse: Refuse, size: int) -> None:
    """A mixture over vectors of P=`size` dimensions."""
    parts = mixture if isinstance(mixture, dict) else {}
    logits_M = parts.get("logits")
    count = len(logits_M) if isinstance(logits_M, Tensor) and logits_M.ndim == 1 else "M"
    for name, shape in {"logits": [count], "means": [count, size], "covariances": [count, size, size]}.items():
        part = parts.get(name)
        if not isinstance(part, Tensor) or [*part.shape] != shape:
            got = shown(part if isinstance(mixture, dict) else mixture)
            refuse(f"density must return a dict with '{name}' of shape [{', '.join(map(str, shape))}]", got)


def _check_conditional(density: Any, refuse: Refuse, count: int) -> None:
    """A mixture at each of `count` x."""
    law = "predict must return trainables.contract.ConditionalDensity(log_weights_BM, means_BM, sigmas_BM)"
    if not isinstance(density, ConditionalDensity):
        refuse(law, shown(density))
    components = density.log_weights_BM.shape[-1] if isinstance(density.log_weights_BM, Tensor) else "M"
    for name, part in density._asdict().items():
        if not isinstance(part, Tensor) or [*part.shape] != [count, components]:
            refuse(f"{law}, each of shape [{count}, {components}]", f"{name} is {shown(part)}")
    if not (density.sigmas_BM > 0).all():
        refuse("the standard deviations of predict must be above 0", f"{density.sigmas_BM.min().item():g}")
    sums_B = density.log_weights_BM.exp().sum(-1)
    if not torch.allclose(sums_B, torch.ones_like(sums_B), atol=TOLERANCE, rtol=0):
        refuse("the weights of predict, exp(log_weights_BM), must have the sum 1", f"{sums_B[0].item():g}")
