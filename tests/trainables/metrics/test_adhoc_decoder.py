"""Ad-hoc decoders learn the images of their features, stop in time and leave everything else as it was."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainables.metrics.generation import AdhocDecoder, AdhocTraining, train_adhoc_decoder

N, D, SHAPE = 203, 3, (1, 2, 4)


@pytest.fixture
def features_ND() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def images_NCHW(features_ND: Tensor) -> Tensor:
    """An affine function of the features with noise of standard deviation 0.1."""
    source = torch.Generator().manual_seed(1)
    weight_DP, noise_NP = torch.randn(D, 8, generator=source), torch.randn(N, 8, generator=source)
    return (0.5 + 0.2 * features_ND @ weight_DP + 0.1 * noise_NP).unflatten(1, SHAPE)


@pytest.fixture
def decoder() -> nn.Module:
    return affine()


def affine() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 8), nn.Unflatten(1, SHAPE))


def trained(decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, **changes: int | float) -> AdhocDecoder:
    options: dict[str, Any] = {"epochs": 60, "patience": 60, "lr": 0.02, "batch_size": 20, **changes}
    seed = torch.Generator().manual_seed(5)
    return train_adhoc_decoder(decoder, features_ND, images_NCHW, AdhocTraining(**options), generator=seed)


def test_an_affine_decoder_finds_the_least_squares_solution(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor
) -> None:
    fitted = trained(decoder, features_ND, images_NCHW)
    design = np.hstack([features_ND.numpy(), np.ones((N, 1))])
    solution, *_ = np.linalg.lstsq(design, images_NCHW.flatten(1).numpy())
    torch.testing.assert_close(
        fitted.decoder(features_ND).flatten(1), torch.from_numpy(design @ solution).float(), atol=0.08, rtol=0
    )
    lowest = min(fitted.validation_losses)
    assert fitted.validation_losses[0] > 5 * lowest and lowest < 1.5 * 0.1**2


def test_the_best_epoch_is_restored(decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor) -> None:
    """Training for as many epochs as the best one ends with the same weights."""
    fitted = trained(decoder, features_ND, images_NCHW, lr=0.1, epochs=30)
    best = int(np.argmin(fitted.validation_losses))
    assert best < 29, "this learning rate is too high for the last epoch to be the best"
    shorter = trained(decoder, features_ND, images_NCHW, lr=0.1, epochs=best + 1)
    assert shorter.validation_losses == fitted.validation_losses[: best + 1]
    assert (shorter.decoder(features_ND) == fitted.decoder(features_ND)).all()


@pytest.mark.parametrize("patience", [1, 3])
def test_training_ends_after_patience_epochs_without_a_better_one(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, patience: int
) -> None:
    losses = trained(decoder, features_ND, images_NCHW, lr=0.1, patience=patience, epochs=1000).validation_losses
    assert len(losses) < 1000 and np.argmin(losses) == len(losses) - 1 - patience
    waits = np.diff([epoch for epoch, loss in enumerate(losses) if loss == min(losses[: epoch + 1])])
    assert max(waits) <= patience, "it did not end later than it had to"


def test_the_loss_is_that_of_a_tenth_of_the_images_which_are_not_trained_on(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor
) -> None:
    """An image with a single huge error dominates the losses if it is held out, and training if it is not."""
    held_out = []
    for image in range(N):
        changed_NCHW = images_NCHW.clone()
        changed_NCHW[image] = 1e6
        fitted = trained(decoder, features_ND, changed_NCHW, epochs=1, lr=1e-9, batch_size=N)
        if fitted.validation_losses[0] > 1e6:
            assert fitted.validation_losses[0] == pytest.approx(1e12 / (N // 10), rel=1e-4)
            held_out.append(image)
    assert len(held_out) == N // 10
    changed_NCHW = images_NCHW.clone()
    changed_NCHW[held_out] = 0.5
    expected = trained(decoder, features_ND, images_NCHW, epochs=1).decoder(features_ND)
    assert (trained(decoder, features_ND, changed_NCHW, epochs=1).decoder(features_ND) == expected).all()


def test_it_depends_on_its_generator_alone_and_changes_neither_the_decoder_nor_the_global_generator(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor
) -> None:
    before, untrained = torch.get_rng_state(), affine()
    first = trained(decoder, features_ND, images_NCHW, epochs=2)
    assert (torch.get_rng_state() == before).all()
    assert (decoder(features_ND) == untrained(features_ND)).all()
    torch.rand(3)
    with torch.no_grad():
        second = trained(decoder, features_ND, images_NCHW, epochs=2)
    assert first.validation_losses == second.validation_losses
    other = train_adhoc_decoder(
        decoder, features_ND, images_NCHW, AdhocTraining(2, 2), generator=torch.Generator().manual_seed(6)
    )
    assert other.validation_losses != first.validation_losses


def test_statistics_of_batchnorm_are_restored_with_the_weights(features_ND: Tensor, images_NCHW: Tensor) -> None:
    """A batch of a single image would be an error, and in training mode the result would depend on the batch."""
    decoder = nn.Sequential(affine()[0], nn.BatchNorm1d(8), nn.Unflatten(1, SHAPE))
    fitted = trained(decoder, features_ND, images_NCHW, lr=0.1, epochs=20, batch_size=26)
    best = int(np.argmin(fitted.validation_losses))
    shorter = trained(decoder, features_ND, images_NCHW, lr=0.1, epochs=best + 1, batch_size=26)
    assert (shorter.decoder(features_ND) == fitted.decoder(features_ND)).all()
    torch.testing.assert_close(fitted.decoder(features_ND[:5]), fitted.decoder(features_ND)[:5])


def test_features_that_are_not_finite_give_losses_of_nan(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor
) -> None:
    features_ND[:, 1] = math.nan
    fitted = trained(decoder, features_ND, images_NCHW, patience=2)
    assert len(fitted.validation_losses) == 3 and np.isnan(fitted.validation_losses).all()


def test_training_can_be_stopped_between_epochs(decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor) -> None:
    calls = iter([None, None, KeyboardInterrupt()])

    def raise_if_stopped() -> None:
        if error := next(calls):
            raise error

    with pytest.raises(KeyboardInterrupt):
        train_adhoc_decoder(
            decoder, features_ND, images_NCHW, AdhocTraining(9, 9), generator=torch.Generator(),
            raise_if_stopped=raise_if_stopped,
        )  # fmt: skip
    assert next(calls, "called three times") == "called three times"


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"epochs": 0}, "`epochs >= 1` must hold, but got epochs=0"),
        ({"patience": 0}, "`patience >= 1` must hold"),
        ({"batch_size": 0}, "`batch_size >= 1` must hold"),
        ({"lr": 0.0}, "`lr > 0` must hold"),
    ],
)
def test_errors_state_the_law(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, changes: dict[str, int | float], law: str
) -> None:
    with pytest.raises(ValueError, match=law):
        trained(decoder, features_ND, images_NCHW, **changes)
    with pytest.raises(ValueError, match="at least 2 training images, but got 1"):
        trained(decoder, features_ND[:1], images_NCHW[:1])
