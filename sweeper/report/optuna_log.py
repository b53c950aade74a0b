"""Optuna's log and warnings, silenced."""

import contextlib
import warnings
from collections.abc import Iterator

import optuna


@contextlib.contextmanager
def quiet(category: type[Warning] = optuna.exceptions.ExperimentalWarning) -> Iterator[None]:
    """Context manager that silences Optuna's log below errors, and warnings of `category`."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
