"""HSIC as a method, compared with traces of kernel matrices in numpy, float64.

Shapes: B images, P dimensions of the projection.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform

from tests.cases import for_each
from tests.trainables.methods.plain import (
    BATCH,
    NO_NOISE,
    Array,
    B,
    Constant,
    built,
    gradient_of_rows,
    loss_of,
    unit_projections,
)
from trainables.methods.gaussian.hsic import HSIC
from trainables.methods.gaussian.hsic import HSICConfig as Config

P = 3


def _model(**changes: Any) -> HSIC:
    return built(HSIC, Config(**{"projector_width": 8, "projection": P, **changes}))


def _kernel(z: Array, length: float) -> Array:
    """With the lower of the two middle distances of an even number, if the length is 0."""
    distances = pdist(z)
    scale = length or np.sort(distances)[(len(distances) - 1) // 2]
    return np.exp(-(squareform(distances) ** 2) / (2 * scale**2))


@for_each("length", [0.0, 0.3, 2.0])
@for_each("weight", [0.0, 3.0])
def test_loss_is_minus_dependence_minus_weighted_entropies(length: float, weight: float) -> None:
    model = _model(length=length, entropy_weight=weight, epsilon=0.01)
    first, second = unit_projections(model)
    total, parts = model.losses(BATCH, NO_NOISE)
    centring = np.eye(B) - np.full((B, B), 1 / B)
    dependence = np.trace(_kernel(first, length) @ centring @ _kernel(second, length) @ centring) / (B - 1) ** 2
    entropies = sum(np.log(np.linalg.eigvalsh(z.T @ z / B) + 0.01).sum() / 2 for z in (first, second))
    assert parts["hsic"].item() == pytest.approx(dependence, rel=1e-4)
    assert parts["entropy"].item() == pytest.approx(entropies, rel=1e-4)
    assert total.item() == pytest.approx(-dependence - weight / (2 * P) * entropies, rel=1e-4)


def test_the_median_has_no_gradient() -> None:
    """The gradient is that of the kernel whose length is fixed at the median."""
    model = _model(entropy_weight=0.0)
    with torch.no_grad():  # both views have one median
        rows = model.encoder.get_parameter("rows")
        rows[B:] = rows[:B]
    median = float(np.sort(pdist(unit_projections(model)[0]))[(B * (B - 1) // 2 - 1) // 2])
    fixed = _model(entropy_weight=0.0, length=median)
    fixed.load_state_dict(model.state_dict())
    gradient = gradient_of_rows(model, loss_of(model))
    assert gradient.abs().max() > 1e-3
    torch.testing.assert_close(gradient, gradient_of_rows(fixed, loss_of(fixed)), rtol=1e-3, atol=1e-5)


def test_both_views_have_gradients_and_are_alike() -> None:
    model = _model(epsilon=0.01)
    assert (gradient_of_rows(model, loss_of(model)).abs().amax(-1) > 1e-5).all()
    assert loss_of(model, 1, 0).item() == pytest.approx(loss_of(model).item(), rel=1e-4)


def test_a_collapsed_encoder_has_no_dependence_and_a_finite_gradient() -> None:
    model = built(HSIC, Config(projector_width=8, projection=P), encoder=Constant)
    assert isinstance(model.projector, torch.nn.Sequential)
    with torch.no_grad():
        model.projector[1].get_parameter("bias").add_(1)
    total, parts = model.losses(BATCH, NO_NOISE)
    assert parts["hsic"].item() == pytest.approx(0, abs=1e-6)
    gradients = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def _clusters(entropy_weight: float) -> int:
    """Groups of images that lie near each other, after a training of everything."""
    model = _model(entropy_weight=entropy_weight)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model).backward()
        optimiser.step()
    first, _ = unit_projections(model)
    together = squareform(pdist(first)) < 0.1
    return len({tuple(row) for row in together.tolist()})


@pytest.mark.slow
def test_without_the_entropy_images_become_two_clusters_and_with_it_they_do_not() -> None:
    assert _clusters(0.0) == 2 and _clusters(1.0) == B
