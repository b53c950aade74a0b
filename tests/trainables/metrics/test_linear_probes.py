"""Fused probes against a loop of autograd and torch's own SGD, scikit-learn, and each member alone; on features as they
are and standardised. Their evaluators: when they run, on which images, and metrics that are undefined.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from tests.cases import for_each
from tests.trainables.metrics.evaluated import C, D, K, M, N, Sets, eval_config, last_metrics, prepared, untrained
from tests.trainables.small import HERE
from trainables.data.datasets.catalog import load
from trainables.methods.variational.vje import VJE
from trainables.metrics import probes
from trainables.metrics.evaluator import ProbeData
from trainables.metrics.probes import Schedule, Standardisation, fit_by_sgd, sgd_accuracies
from trainables.training.metric_names import metric_names
from trainables.training.train import train

B = 32


def generator_of_epoch(epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(100 + epoch)


SCHEDULE = Schedule(6, 0.3, B, generator_of_epoch)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_training_is_that_of_autograd_and_torch_sgd(sets: Sets, weight_decay: float) -> None:
    bank_KND, labels_N, _, _ = sets
    weight_KCD, bias_KC1 = fit_by_sgd(bank_KND, labels_N, C, SCHEDULE, weight_decay=weight_decay)
    for bank_ND, weight_CD, bias_C1 in zip(bank_KND.double(), weight_KCD, bias_KC1, strict=True):
        layer = torch.nn.Linear(D, C, dtype=torch.float64)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.3, momentum=0.9, weight_decay=weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=6 * (N // B))
        for epoch in range(6):
            order_N = torch.randperm(N, generator=generator_of_epoch(epoch))
            for batch_B in order_N.split(B)[: N // B]:
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(layer(bank_ND[batch_B]), labels_N[batch_B]).backward()
                optimiser.step()
                schedule.step()
        torch.testing.assert_close(weight_CD.double(), layer.weight.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(bias_C1[:, 0].double(), layer.bias.detach(), rtol=1e-4, atol=1e-5)


def test_one_step_moves_each_class_by_its_share_of_the_images(sets: Sets) -> None:
    """From zero every class has probability 1/C; a batch size beyond N is N, so one epoch is one step."""
    bank_KND, labels_N, _, _ = sets
    weight_KCD, bias_KC1 = fit_by_sgd(bank_KND, labels_N, C, Schedule(1, 0.7, 10 * N, generator_of_epoch))
    pull_NC = torch.nn.functional.one_hot(labels_N, C) - 1 / C
    torch.testing.assert_close(weight_KCD, 0.7 / N * pull_NC.T @ bank_KND, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(bias_KC1[..., 0], (0.7 * pull_NC.mean(0)).expand(K, C), rtol=1e-5, atol=1e-6)


def test_real_digits_as_well_as_scikit_learns_regression() -> None:
    images, labels = load_digits(return_X_y=True)
    features = (images - images.mean()) / images.std()
    bank_1ND, test_1MD = (torch.from_numpy(half[None]).float() for half in (features[:1200], features[1200:]))
    labels_N, labels_M = torch.from_numpy(labels[:1200]), torch.from_numpy(labels[1200:])
    data = ProbeData(bank_1ND, labels_N, test_1MD, labels_M, 10)
    actual = sgd_accuracies(data, Schedule(200, 0.1, 128, generator_of_epoch))[1]
    reference = LogisticRegression(C=100, max_iter=1000).fit(features[:1200], labels[:1200])
    assert actual == pytest.approx(reference.score(features[1200:], labels[1200:]), abs=0.01)


def test_standardised_features_are_those_of_scikit_learns_scaler(sets: Sets) -> None:
    """Test features are standardised by the bank's statistics, so the scales of features do not matter."""
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets
    scale_D, shift_D = torch.logspace(-4, 4, D), torch.linspace(-3, 3, D)
    bank_KND, test_KMD = ((x_KND + shift_D) * scale_D for x_KND in (bank_KND, test_KMD))
    scalers = [StandardScaler().fit(bank_ND.double().numpy()) for bank_ND in bank_KND]
    scaled_KND, scaled_KMD = (
        torch.stack(
            [torch.from_numpy(scaler.transform(x_ND.double())) for scaler, x_ND in zip(scalers, x_KND, strict=True)]
        )
        for x_KND in (bank_KND, test_KMD)
    )
    data, scaled = (
        ProbeData(bank, bank_labels_N, test, test_labels_M, C)
        for bank, test in ((bank_KND, test_KMD), (scaled_KND, scaled_KMD))
    )
    actual = sgd_accuracies(data, SCHEDULE, standardize=True, top=(1, 2))
    expected = sgd_accuracies(scaled, SCHEDULE, top=(1, 2))
    for top in (1, 2):
        np.testing.assert_allclose(actual[top], expected[top], atol=1.01 / M)  # an image whose logits are nearly equal
    weights = fit_by_sgd(bank_KND, bank_labels_N, C, SCHEDULE, standardisation=Standardisation.of(bank_KND))
    for ours, theirs in zip(weights, fit_by_sgd(scaled_KND, bank_labels_N, C, SCHEDULE), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_feature_that_is_constant_but_for_rounding_is_no_signal(sets: Sets) -> None:
    """For a dead unit scaled to variance 1, the rounding errors here would reveal the class."""
    bank_KND, labels_N, _, _ = sets
    bank_KND[..., 2] = torch.where(labels_N == 1, 0.3, np.nextafter(np.float32(0.3), np.float32(1)).item())
    bank_KND[..., 4] = 0.0
    assert bank_KND[..., 2].unique().numel() == 2
    standardisation = Standardisation.of(bank_KND)
    assert (standardisation.std_K1D[..., [2, 4]] == 1).all() and (standardisation.std_K1D[..., [0, 1, 3]] > 0.5).all()
    weight_KCD, _ = fit_by_sgd(bank_KND, labels_N, C, SCHEDULE, standardisation=standardisation)
    assert weight_KCD[..., [2, 4]].abs().max() < 1e-5 < 0.1 < weight_KCD[..., 0].abs().max()


def test_standardising_leaves_the_features_as_they_were(sets: Sets) -> None:
    before = [tensor.clone() for tensor in sets]
    sgd_accuracies(ProbeData(*sets, C), replace(SCHEDULE, batch_size=N), standardize=True)
    assert all(torch.equal(left, right) for left, right in zip(sets, before, strict=True))


@pytest.mark.parametrize("standardize", [False, True])
def test_fused_equals_alone(sets: Sets, standardize: bool) -> None:
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets
    how: dict[str, Any] = {"standardize": standardize, "top": (1, 2)}
    fused = sgd_accuracies(ProbeData(*sets, C), SCHEDULE, **how)
    weights = fit_by_sgd(bank_KND, bank_labels_N, C, SCHEDULE)
    assert len(set(fused[1])) > 1, "the members differ"
    for k in range(K):
        member = slice(k, k + 1)
        data = ProbeData(bank_KND[member], bank_labels_N, test_KMD[member], test_labels_M, C)
        alone = sgd_accuracies(data, SCHEDULE, **how)
        assert {top: share[0] for top, share in alone.items()} == {top: share[k] for top, share in fused.items()}
        for actual, expected in zip(fit_by_sgd(bank_KND[member], bank_labels_N, C, SCHEDULE), weights, strict=True):
            torch.testing.assert_close(actual, expected[member], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("error")
@for_each("bad", [math.nan, math.inf, -math.inf])
@for_each("where", [0, 2])
@for_each("standardize", [False, True])
def test_a_feature_that_is_not_finite_affects_only_its_own_member(
    sets: Sets, where: int, bad: float, standardize: bool
) -> None:
    clean = sgd_accuracies(ProbeData(*sets, C), SCHEDULE, standardize=standardize)[1]
    sets[where][1, 5, 3] = bad
    actual = sgd_accuracies(ProbeData(*sets, C), SCHEDULE, standardize=standardize)[1]
    assert np.isnan(actual[1]) and actual.dtype == np.float64
    np.testing.assert_array_equal(np.delete(actual, 1), np.delete(clean, 1))


def test_renaming_the_classes_changes_no_accuracy(sets: Sets) -> None:
    bank_KND, bank_labels_N, test_KMD, test_labels_M = sets
    renamed_C = torch.tensor([3, 0, 4, 1, 2])
    renamed = ProbeData(bank_KND, renamed_C[bank_labels_N], test_KMD, renamed_C[test_labels_M], C)
    actual = sgd_accuracies(renamed, SCHEDULE, top=(1, 3))
    expected = sgd_accuracies(ProbeData(*sets, C), SCHEDULE, top=(1, 3))
    for top in (1, 3):
        np.testing.assert_array_equal(actual[top], expected[top])


def test_top_t_accuracy_rises_with_t_and_is_1_for_all_classes(sets: Sets) -> None:
    shares = sgd_accuracies(ProbeData(*sets, C), SCHEDULE, top=range(1, C + 1))
    assert list(shares) == list(range(1, C + 1))
    table_CK = np.stack(list(shares.values()))
    assert (np.diff(table_CK, axis=0) >= 0).all() and (table_CK[-1] == 1).all() and (table_CK[0] < 1).all()
    assert table_CK[0].min() > 1.5 / C


def test_of_equal_logits_only_one_counts_as_correct() -> None:
    """For a collapsed encoder and four classes of equal size all logits are 0, so the lowest class is predicted."""
    labels_M = torch.arange(4).repeat(8)
    zero_1MD = torch.zeros(1, len(labels_M), D)
    schedule = replace(SCHEDULE, batch_size=len(labels_M))
    assert not fit_by_sgd(zero_1MD, labels_M, 4, schedule)[1].any()
    actual = sgd_accuracies(ProbeData(zero_1MD, labels_M, zero_1MD, labels_M, 4), schedule, top=(1, 2))
    assert {top: float(share[0]) for top, share in actual.items()} == {1: 0.25, 2: 0.5}


def test_a_feature_that_is_not_finite_counts_even_if_its_image_was_never_drawn(sets: Sets) -> None:
    left_out = torch.randperm(N, generator=generator_of_epoch(0))[-1]
    sets[0][1, left_out, 0] = math.nan
    schedule = replace(SCHEDULE, epochs=1)
    assert fit_by_sgd(sets[0], sets[1], C, schedule)[0].isfinite().all()
    assert np.isnan(sgd_accuracies(ProbeData(*sets, C), schedule)[1]).tolist() == [False, True, False]


def test_features_of_other_precisions_are_read_as_float32(sets: Sets) -> None:
    bank_KND, labels_N, _, _ = sets
    for dtype in (torch.float64, torch.bfloat16):
        actual = fit_by_sgd(bank_KND.to(dtype), labels_N, C, SCHEDULE)[0]
        assert torch.equal(actual, fit_by_sgd(bank_KND.to(dtype).float(), labels_N, C, SCHEDULE)[0])


@pytest.mark.parametrize(
    ("changed", "law"),
    [
        ({"epochs": 0}, "`epochs >= 1` must hold"),
        ({"batch_size": 0}, "`batch_size >= 1` must hold"),
        ({"lr": 0.0}, "`lr > 0` must hold"),
    ],
)
def test_a_schedule_states_its_laws(changed: dict[str, Any], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        replace(SCHEDULE, **changed)


@pytest.mark.parametrize("top", [0, C + 1])
def test_so_many_classes_as_top_there_must_be(sets: Sets, top: int) -> None:
    with pytest.raises(ValueError, match=f"`1 <= top <= {C}` must hold, but got top={top}"):
        sgd_accuracies(ProbeData(*sets, C), SCHEDULE, top=(1, top))


# --- The evaluators of classifiers ---


@pytest.mark.parametrize("knn", [0, 5])
@pytest.mark.parametrize("probe_epochs", [0, 3])
def test_classifiers_run_only_if_requested_and_probes_only_at_the_end(knn: int, probe_epochs: int) -> None:
    for report in train([eval_config(knn=knn, probe_epochs=probe_epochs, epochs=3)], HERE):
        names = list(report.members[0].metrics)
        assert any(name.startswith("knn") for name in names) == bool(knn)
        assert any(name.startswith("probe") for name in names) == (bool(probe_epochs) and report.epoch == 3)


def test_top_5_accuracy_is_reported_for_more_than_five_classes() -> None:
    config = eval_config(probe_epochs=1)
    top5 = {classes: [name for name in metric_names(config, classes) if "top5" in name] for classes in (3, 5, 6, 1000)}
    assert top5 == {3: [], 5: [], 6: ["probe_top5_z", "probe_top5_mu"], 1000: ["probe_top5_z", "probe_top5_mu"]}


def test_an_undefined_metric_is_null_and_its_member_has_not_diverged() -> None:
    """Without the KL the variance collapses, and its coefficient of variation is 0 / 0."""
    configs = [eval_config(terms="dir", lr=lr, epochs=3) for lr in (0.3, 1e-6)]
    collapsed, sound = list(train(configs, HERE))[-1].members
    assert collapsed.status == sound.status == "finished"
    assert collapsed.metrics["var_cv"] is None and 0 <= (collapsed.metrics["var_mean"] or 0.0) < 0.01
    assert sound.metrics["var_cv"] is not None and (sound.metrics["var_mean"] or 0.0) > 0.1


@torch.no_grad()
@pytest.mark.parametrize("held_out", ["", "3", "0+1+8"])
def test_held_out_classes_are_neither_trained_on_nor_tested_by_classifiers(
    held_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked against scikit-learn's nearest neighbour among the other classes, and by the arguments of the probes."""
    config = eval_config(epochs=0, knn=1, probe_epochs=1, held_out=held_out)
    calls: list[Any] = []
    real = probes.sgd_accuracies

    def accuracies(*arguments: Any, **options: Any) -> dict[int, Any]:
        calls.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(probes, "sgd_accuracies", accuracies)
    metrics, model, data = last_metrics(config), untrained(config), load("digits", HERE)
    out = torch.tensor([int(name) for name in held_out.split("+")] if held_out else [], dtype=torch.long)
    learnt, tested = ~torch.isin(data.train_labels, out), ~torch.isin(data.test_labels, out)
    bank, test = (model.embed(prepared(images)) for images in (data.train_images[learnt], data.test_images[tested]))
    for name in VJE.representations:
        nearest = KNeighborsClassifier(1, metric="cosine", algorithm="brute")
        nearest.fit(bank[name].numpy(), data.train_labels[learnt])
        expected = nearest.score(test[name].numpy(), data.test_labels[tested])
        assert metrics[f"knn_{name}"] == metrics[f"knn_weighted_{name}"] == pytest.approx(expected, abs=4e-3)
    for probed, *_ in calls:
        assert torch.equal(probed.bank_labels_N, data.train_labels[learnt]) and probed.classes == 10
        assert torch.equal(probed.test_labels_M, data.test_labels[tested])
    assert len(calls) == 2
