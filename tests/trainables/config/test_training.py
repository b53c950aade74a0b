"""The sections of a training: zero epochs, batches that are split over workers, optimisers."""

import pytest

from trainables.sections import GradientTraining, Optimiser, Training


def test_zero_epochs_allow_no_warm_up() -> None:
    assert GradientTraining(epochs=0).warmup_epochs == 0
    with pytest.raises(ValueError, match=r"^`warmup_epochs < epochs` must hold, but got warmup_epochs=1, epochs=0$"):
        GradientTraining(epochs=0, warmup_epochs=1)
    assert GradientTraining(epochs=2, warmup_epochs=1).epochs == 2


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 1), (2, 1), (64, 32), (6, 3)])
def test_a_batch_is_split_into_equal_parts(batch_size: int, workers: int) -> None:
    assert GradientTraining(batch_size=batch_size, workers=workers).workers == workers


@pytest.mark.parametrize(("batch_size", "workers"), [(64, 3), (64, 64), (4, 8), (6, 4)])
def test_a_batch_that_cannot_be_split_is_refused(batch_size: int, workers: int) -> None:
    with pytest.raises(ValueError) as error:
        GradientTraining(batch_size=batch_size, workers=workers)
    assert str(error.value) == (
        f"batch_size must be a multiple of workers, at least 2 for each, but got batch_size={batch_size}, "
        f"workers={workers}"
    )


@pytest.mark.parametrize("workers", [0, -2, 1.0, True])
def test_workers_must_be_a_positive_integer(workers: int) -> None:
    with pytest.raises(ValueError, match=r"workers must be a whole number|`workers >= 1` must hold"):
        GradientTraining(workers=workers)


def test_a_training_without_gradients_has_one_process() -> None:
    assert Training().processes == 1 and GradientTraining(batch_size=6, workers=3).processes == 3
    assert (
        not {"lr", "batch_size", "workers"} & set(vars(Training()))
        and vars(Training()).items() <= vars(GradientTraining()).items()
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("optimiser", "adan", "no optimiser 'adan' (did you mean 'adam'?); there are: sgd, adam"),
        ("lr_schedule", "linear", "no lr_schedule 'linear'; there are: cosine, constant"),
        ("adam_epsilon", 0.0, "`adam_epsilon > 0` must hold, but got adam_epsilon=0.0"),
    ],
)
def test_an_optimiser_out_of_range_is_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Optimiser(**{field: value})  # type: ignore[arg-type]
    assert str(error.value) == message
