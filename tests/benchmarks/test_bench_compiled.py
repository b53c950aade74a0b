from functools import partial

import pytest
import torch

from tests.benchmarks.bench_compiled import METHODS, PRESETS, medians, weights_difference, workload
from trainables.catalog import METHODS as CATALOG
from trainables.contract import ImageMethod
from trainables.image_trial import ImageTrial


def test_every_image_method_that_learns_by_gradients_is_measured() -> None:
    learning = [name for name, method in CATALOG.items() if method.trains() and not method.fitted()]
    assert [name for name in learning if issubclass(CATALOG[name], ImageMethod)] == METHODS


@pytest.mark.parametrize("encoder", PRESETS)
def test_a_workload_has_the_encoder_and_equal_members(encoder: str) -> None:
    work = workload("simclr", encoder, 2)
    stack = work.stack()
    losses_K = work.step(stack)
    assert losses_K.shape == (2,)
    assert losses_K[0] == losses_K[1]
    assert any(name.startswith("method.encoder") for name in stack.parameters)
    for config in work.configs:
        assert isinstance(config, ImageTrial)
        assert config.encoder.encoder == encoder


def test_weights_differ_by_a_share_of_the_largest_of_their_tensor() -> None:
    work = workload("vje", "mlp", 1)
    first, second = work.stack(), work.stack()
    assert weights_difference(first, second) == 0
    with torch.no_grad():
        weights = second.parameters["method.encoder.layers.1.weight"]
        largest = weights.abs().max()
        weights.flatten()[0] += 0.5 * largest
    assert weights_difference(first, second) == pytest.approx(0.5)


def test_steps_are_measured_in_turns() -> None:
    calls: list[str] = []
    seconds = medians({"a": partial(calls.append, "a"), "b": partial(calls.append, "b")}, 0.0)
    assert set(seconds) == {"a", "b"}
    assert "".join(calls).endswith("ab" * 7)
