"""Fused probes against plain modules trained by torch's Adam, scikit-learn, and each member alone."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from tests.trainables.metrics.evaluated import C, D, K, N, Sets
from trainables.metrics.evaluator import ProbeData
from trainables.metrics.probes import Accuracies, Schedule, adam_accuracies, fit_by_adam

H, B, EPOCHS, LR = 9, 32, 6, 0.02
SEED = 3


def generator_of_epoch(epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(100 + epoch)


SCHEDULE = Schedule(EPOCHS, LR, B, generator_of_epoch)


def starting(members: int = K) -> dict[str, Any]:
    """Generators of the initial weights; they keep a state, so each call makes its own."""
    return {"initial_generators": [torch.Generator().manual_seed(SEED) for _ in range(members)]}


HIDDEN = pytest.mark.parametrize("hidden", [(), (H,)], ids=["linear", "mlp"])


def plain(hidden: tuple[int, ...], bank_ND: Tensor, labels_N: Tensor, lr: float, epochs: int, batch_size: int) -> Any:
    """A plain module after each epoch of training."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        wide = [nn.Linear(bank_ND.shape[1], hidden[0]), nn.ReLU()] if hidden else []
        probe = nn.Sequential(*wide, nn.Linear(hidden[0] if hidden else bank_ND.shape[1], C))
    probe.to(bank_ND)
    optimiser = torch.optim.Adam(probe.parameters(), lr)
    for epoch in range(epochs):
        order_N = torch.randperm(len(bank_ND), generator=generator_of_epoch(epoch))
        for batch_B in order_N.split(batch_size)[: len(bank_ND) // batch_size]:
            optimiser.zero_grad()
            nn.functional.cross_entropy(probe(bank_ND[batch_B]), labels_N[batch_B]).backward()
            optimiser.step()
        yield probe


@HIDDEN
def test_training_is_that_of_a_plain_module_and_torch_adam(sets: Sets, hidden: tuple[int, ...]) -> None:
    bank_KND, labels_N, _, _ = sets
    layers = fit_by_adam(bank_KND, labels_N, (D, *hidden, C), SCHEDULE, **starting())
    for k in range(K):
        *_, probe = plain(hidden, bank_KND[k].double(), labels_N, LR, EPOCHS, B)
        for (weight_KOI, bias_KO1), linear in zip(layers, list(probe)[::2], strict=True):
            torch.testing.assert_close(weight_KOI[k].double(), linear.weight.detach(), rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(bias_KO1[k, :, 0].double(), linear.bias.detach(), rtol=1e-3, atol=1e-4)


@HIDDEN
def test_accuracies_are_those_after_the_last_and_the_best_epoch(sets: Sets, hidden: tuple[int, ...]) -> None:
    """At a learning rate at which the best epoch is not the last."""
    bank_KND, labels_N, test_KMD, test_labels_M = sets
    actual = adam_accuracies(ProbeData(*sets, C), replace(SCHEDULE, lr=0.5, epochs=8), hidden=hidden, **starting())
    by_epoch_KE = [
        [
            (probe(test_MD).argmax(1) == test_labels_M).double().mean().item()
            for probe in plain(hidden, bank_ND, labels_N, 0.5, 8, B)
        ]
        for bank_ND, test_MD in zip(bank_KND, test_KMD, strict=True)
    ]
    np.testing.assert_allclose(actual.last, [shares[-1] for shares in by_epoch_KE])
    np.testing.assert_allclose(actual.best, [max(shares) for shares in by_epoch_KE])
    assert (actual.best > actual.last).any()


@pytest.mark.parametrize("inputs", [4, 100])
def test_probes_start_as_torch_draws_linear_layers_each_by_its_own_generator(inputs: int) -> None:
    """A learning rate of almost 0 leaves the initial weights."""
    bank_KND = torch.randn(K, 8, inputs)
    labels_N = torch.zeros(8, dtype=torch.long)
    generators = [torch.Generator().manual_seed(seed) for seed in range(K)]
    layers = fit_by_adam(
        bank_KND, labels_N, (inputs, H, C), replace(SCHEDULE, lr=1e-12, epochs=1), initial_generators=generators
    )
    for k in range(K):
        with torch.random.fork_rng():
            torch.manual_seed(k)
            expected = [nn.Linear(inputs, H), nn.Linear(H, C)]
        for (weight_KOI, bias_KO1), linear in zip(layers, expected, strict=True):
            torch.testing.assert_close(weight_KOI[k], linear.weight.detach())
            torch.testing.assert_close(bias_KO1[k, :, 0], linear.bias.detach())


@HIDDEN
def test_accuracies_of_several_starts_are_the_mean_over_them(sets: Sets, hidden: tuple[int, ...]) -> None:
    """Of which a member's generator draws one after the other."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(K)]
    data = ProbeData(*sets, C)
    singles = [adam_accuracies(data, SCHEDULE, hidden=hidden, initial_generators=generators) for _ in range(3)]
    generators = [torch.Generator().manual_seed(seed) for seed in range(K)]
    actual = adam_accuracies(data, SCHEDULE, hidden=hidden, initial_generators=generators, starts=3)
    assert len({tuple(single.last) for single in singles}) > 1, "the starts differ"
    for name in ("last", "best"):
        np.testing.assert_allclose(getattr(actual, name), np.mean([getattr(each, name) for each in singles], axis=0))


@pytest.mark.slow
def test_real_digits_as_well_as_scikit_learns_regression() -> None:
    """At the learning rate that 1,260 images need, on pixels as the specification scales them."""
    images, labels = load_digits(return_X_y=True)
    features, labels_N = torch.from_numpy(images / 16).float(), torch.from_numpy(labels)
    data = ProbeData(features[None, :1260], labels_N[:1260], features[None, 1260:], labels_N[1260:], 10)
    actual = adam_accuracies(data, Schedule(200, 1e-2, 128, generator_of_epoch), hidden=(), **starting(1))
    reference = LogisticRegression(C=10, max_iter=1000).fit(images[:1260] / 16, labels[:1260])
    assert actual.last == pytest.approx(reference.score(images[1260:] / 16, labels[1260:]), abs=0.01)


def test_only_the_hidden_layer_solves_exclusive_or() -> None:
    corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).repeat(8, 1)[None]
    labels_N = torch.tensor([0, 1, 1, 0]).repeat(8)
    data, schedule = ProbeData(corners, labels_N, corners, labels_N, 2), replace(SCHEDULE, epochs=200)
    assert adam_accuracies(data, schedule, hidden=(16,), **starting(1)).last == 1
    assert adam_accuracies(data, schedule, hidden=(), **starting(1)).best <= 0.75


@HIDDEN
def test_fused_equals_alone(sets: Sets, hidden: tuple[int, ...]) -> None:
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets
    fused, layers = (
        adam_accuracies(ProbeData(*sets, C), SCHEDULE, hidden=hidden, **starting()),
        fit_by_adam(bank_KND, bank_labels_N, (D, *hidden, C), SCHEDULE, **starting()),
    )
    assert len(set(fused.last)) > 1, "the members differ"
    for k in range(K):
        member = slice(k, k + 1)
        data = ProbeData(bank_KND[member], bank_labels_N, test_KMD[member], test_labels_M, C)
        alone = adam_accuracies(data, SCHEDULE, hidden=hidden, **starting(1))
        assert (alone.last[0], alone.best[0]) == (fused.last[k], fused.best[k])
        layers_alone = fit_by_adam(bank_KND[member], bank_labels_N, (D, *hidden, C), SCHEDULE, **starting(1))
        for actual, expected in zip(layers_alone, layers, strict=True):
            torch.testing.assert_close(actual[0], expected[0][member], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(actual[1], expected[1][member], rtol=1e-4, atol=1e-5)


@HIDDEN
def test_images_without_a_label_are_as_if_they_were_not_there(sets: Sets, hidden: tuple[int, ...]) -> None:
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets
    bank_labels_N[::3], test_labels_M[1::4] = -1, -1
    bank_N, test_M = bank_labels_N >= 0, test_labels_M >= 0
    actual = adam_accuracies(ProbeData(*sets, C), SCHEDULE, hidden=hidden, **starting())
    labelled = (bank_KND[:, bank_N], bank_labels_N[bank_N], test_KMD[:, test_M], test_labels_M[test_M])
    for shares, expected in zip(
        actual, adam_accuracies(ProbeData(*labelled, C), SCHEDULE, hidden=hidden, **starting()), strict=True
    ):
        np.testing.assert_array_equal(shares, expected)
    assert actual.last.min() > 1.5 / C


@pytest.mark.parametrize("where", [1, 3])
def test_without_any_label_accuracies_are_nan(sets: Sets, where: int) -> None:
    sets[where][:] = -1
    actual = adam_accuracies(ProbeData(*sets, C), SCHEDULE, hidden=(H,), **starting())
    assert all(shares.shape == (K,) and np.isnan(shares).all() for shares in actual)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 2])
@HIDDEN
def test_a_feature_that_is_not_finite_affects_only_its_own_member(
    sets: Sets, where: int, bad: float, hidden: tuple[int, ...]
) -> None:
    clean = adam_accuracies(ProbeData(*sets, C), SCHEDULE, hidden=hidden, **starting())
    sets[where][1, 5, 3] = bad
    for shares, expected in zip(
        adam_accuracies(ProbeData(*sets, C), SCHEDULE, hidden=hidden, **starting()), clean, strict=True
    ):
        assert np.isnan(shares).tolist() == [False, True, False] and shares.dtype == np.float64
        np.testing.assert_array_equal(np.delete(shares, 1), np.delete(expected, 1))


def test_inputs_are_left_as_they_were(sets: Sets) -> None:
    before = [tensor.clone() for tensor in sets]
    adam_accuracies(ProbeData(*sets, C), replace(SCHEDULE, batch_size=N), hidden=(H,), **starting())
    assert all(torch.equal(left, right) for left, right in zip(sets, before, strict=True))


def test_a_batch_size_beyond_the_images_is_their_number(sets: Sets) -> None:
    data, (all_images, more) = ProbeData(*sets, C), (replace(SCHEDULE, batch_size=size) for size in (N, 10 * N))
    expected, actual = (adam_accuracies(data, schedule, hidden=(H,), **starting()) for schedule in (all_images, more))
    assert all(map(np.array_equal, actual, expected))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_features_of_other_precisions_are_read_as_float32(sets: Sets, dtype: torch.dtype) -> None:
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets

    def shares(bank_KND: Tensor, test_KMD: Tensor) -> Accuracies:
        return adam_accuracies(
            ProbeData(bank_KND, bank_labels_N, test_KMD, test_labels_M, C), SCHEDULE, hidden=(H,), **starting()
        )

    read = shares(bank_KND.to(dtype).float(), test_KMD.to(dtype).float())
    assert all(map(np.array_equal, shares(bank_KND.to(dtype), test_KMD.to(dtype)), read))


@pytest.mark.parametrize(
    ("changed", "law"),
    [
        ({"starts": 0}, "`starts >= 1` must hold"),
        ({"hidden": (0,)}, "`hidden >= 1` must hold"),
    ],
)
def test_errors_state_the_law(sets: Sets, changed: dict[str, Any], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        adam_accuracies(ProbeData(*sets, C), SCHEDULE, **{"hidden": (H,), **starting(), **changed})
