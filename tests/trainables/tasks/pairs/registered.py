"""The catalog with two small methods of pairs, too."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import pytest

from tests.trainables.tasks.pairs.methods import BayesianRegression, GaussianMLP
from trainables import catalog
from trainables.contract import Method

PAIRS_METHODS: Mapping[str, type[Method]] = {
    "bayesian_regression": BayesianRegression,
    "gaussian_mlp": GaussianMLP,
}


@contextmanager
def registered() -> Iterator[None]:
    """Within it METHODS has these entries, too, in every module that has imported it."""
    with pytest.MonkeyPatch.context() as patch:
        entries = catalog.METHODS
        extended = MappingProxyType({**entries, **PAIRS_METHODS})
        for module in [sys.modules[module] for module in sys.modules if module.startswith("trainables.")]:
            if vars(module).get("METHODS") is entries:
                patch.setattr(module, "METHODS", extended)
        yield
