"""Linear probes on frozen features: the logistic regressions of all members at once (VJE, section 4).

Shapes: K members, N bank images, M test images, D features, C classes, B images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.evaluation.anomaly import Floats
from trainables.validation import between, positive, whole

MOMENTUM = 0.9
CONSTANT = 1e-6
"""A feature whose standard deviation is at most this share of its mean is constant but for rounding in float32."""


class Standardisation(NamedTuple):
    """Shifts and scales each feature to mean 0 and standard deviation 1 over a member's bank images."""

    mean_K1D: Tensor
    std_K1D: Tensor
    """1 for a constant feature, so that its rounding errors do not become a signal."""

    @classmethod
    def of(cls, bank_KND: Tensor) -> Standardisation:
        """In float32, with the standard deviation of N images (not N - 1), as scikit-learn's StandardScaler has it."""
        # Each member by itself: its statistics are equal to the last bit in any stack.
        moments = [torch.var_mean(bank_ND.float(), 0, correction=0, keepdim=True) for bank_ND in bank_KND]
        mean_K1D, std_K1D = torch.stack([mean for _, mean in moments]), torch.stack([var.sqrt() for var, _ in moments])
        return cls(mean_K1D, torch.where(std_K1D <= CONSTANT * mean_K1D.abs(), 1.0, std_K1D))


@torch.no_grad()
def accuracies(
    bank_KND: Tensor,
    bank_labels_N: Tensor,
    test_KMD: Tensor,
    test_labels_M: Tensor,
    classes: int,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    generator_of_epoch: Callable[[int], torch.Generator],
    standardize: bool = False,
    top: Sequence[int] = (1,),
) -> dict[int, Floats]:
    """Shares `[K]` of the test images whose class is among the `t` of largest logit, by each `t` of `top`.

    Trained as `fit` says, on features as they are, or, with `standardize`, on features whose mean and standard
    deviation over the bank's images are 0 and 1; test features are shifted and scaled by the bank's statistics. Of
    classes with equal logits the lower comes first. NaN for a member with a feature or logit that is not finite.
    ValueError unless every `t` is in 1..classes.
    """
    for places in top:
        between("top", places, 1, classes)
    standardisation = Standardisation.of(bank_KND) if standardize else None
    weight_KCD, bias_KC1 = fit(
        bank_KND,
        bank_labels_N,
        classes,
        epochs=epochs,
        lr=lr,
        batch_size=batch_size,
        generator_of_epoch=generator_of_epoch,
        standardisation=standardisation,
    )
    labels_M = test_labels_M.to(test_KMD.device)
    shares = []
    for member, (bank_ND, test_MD) in enumerate(zip(bank_KND, test_KMD, strict=True)):
        x_MD = test_MD.float()
        if standardisation:
            x_MD = (x_MD - standardisation.mean_K1D[member]) / standardisation.std_K1D[member]
        logits_MC = torch.addmm(bias_KC1[member].T, x_MD, weight_KCD[member].T)
        shares.append(_shares(logits_MC, labels_M, top) if _finite(bank_ND) else [math.nan] * len(top))
    shares_Kt = np.array(shares)
    return {places: shares_Kt[:, index] for index, places in enumerate(top)}


@torch.no_grad()
def fit(
    bank_KND: Tensor,
    bank_labels_N: Tensor,
    classes: int,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    generator_of_epoch: Callable[[int], torch.Generator],
    standardisation: Standardisation | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights `[K, C, D]` and biases `[K, C, 1]` of K softmax regressions, from zero, in float32 on the bank's device.

    SGD with momentum 0.9 on the cross-entropy, no weight decay; the learning rate falls from `lr` by half a cosine to 0
    after the last step. An epoch is as many whole batches of at most N images as there are, in a permutation that its
    generator draws (epochs count from 0) and that all members share; no member feels another. With
    a `standardisation` the weights are those for features that it has shifted and scaled. ValueError unless
    `epochs`, `batch_size` and `classes` are at least 1 and `lr > 0`.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("classes", classes)):
        whole(name, value, 1)
    positive("lr", lr)
    members, images, features = bank_KND.shape
    size = min(batch_size, images)
    steps = images // size
    # Weights and biases lie in one tensor, so that one kernel moves both. Classes come before images and features:
    # on a CPU the products and the softmax are 3 to 10 times faster so where there are few classes.
    both = torch.zeros(members, classes * (features + 1), device=bank_KND.device)
    velocity = torch.zeros_like(both)
    (weight_KCD, bias_KC1), (weight_velocity_KCD, bias_velocity_KC1) = (
        (flat[:, : classes * features].view(members, classes, features), flat[:, classes * features :, None])
        for flat in (both, velocity)
    )
    # A batch is gathered at a time, into one place: it stays in the cache, and the bank is never copied as a whole.
    gathered_KBD = bank_KND.new_empty(members, size, features)
    error_KCB = both.new_empty(members, classes, size)
    one_K1B, one_KB1 = both.new_ones(members, 1, size), both.new_ones(members, size, 1)
    for epoch in range(epochs):
        order, labels = _order(generator_of_epoch(epoch), bank_labels_N, bank_KND.device)
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            x_KBD = torch.index_select(bank_KND, 1, order[batch], out=gathered_KBD).float()
            if standardisation:  # in place: a standardised copy of the bank could be too large for the memory
                x_KBD.sub_(standardisation.mean_K1D).div_(standardisation.std_K1D)
            torch.baddbmm(bias_KC1, weight_KCD, x_KBD.mT, out=error_KCB)
            torch.softmax(error_KCB, 1, out=error_KCB)
            error_KCB.scatter_add_(1, labels[batch].expand(members, 1, size), -one_K1B)
            weight_velocity_KCD.baddbmm_(error_KCB, x_KBD, beta=MOMENTUM, alpha=1 / size)
            bias_velocity_KC1.baddbmm_(error_KCB, one_KB1, beta=MOMENTUM, alpha=1 / size)
            both.add_(velocity, alpha=-lr * 0.5 * (1 + math.cos(math.pi * (epoch * steps + step) / (epochs * steps))))
    return weight_KCD, bias_KC1


def _order(generator: torch.Generator, labels_N: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """A permutation of the images `[N]`, and their labels in it `[N]`."""
    order_N = torch.randperm(len(labels_N), generator=generator, device=generator.device)
    return order_N.to(device), labels_N[order_N.to(labels_N.device)].to(device)


def _shares(logits_MC: Tensor, labels_M: Tensor, top: Sequence[int]) -> list[float]:
    """How often the label is among the first `t` classes, for each `t` of `top`; NaN where a logit is not finite."""
    if not _finite(logits_MC):
        return [math.nan] * len(top)
    own_M1 = logits_MC.gather(1, labels_M[:, None])
    lower_MC = torch.arange(logits_MC.shape[1], device=logits_MC.device) < labels_M[:, None]
    rank_M = ((logits_MC > own_M1) | ((logits_MC == own_M1) & lower_MC)).sum(1)
    return [(rank_M < places).double().mean().item() for places in top]


def _finite(x: Tensor) -> bool:
    """Without a copy of `x`."""
    return bool(torch.stack(torch.aminmax(x)).isfinite().all())
