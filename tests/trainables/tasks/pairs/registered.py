"""The catalog with the task `pairs` and its methods."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import pytest

from tests.trainables.tasks.pairs.methods import BayesianRegression, GaussianMLP
from tests.trainables.tasks.pairs.task import Pairs
from trainables import catalog
from trainables.contract import Method
from trainables.tasks.task import Task

PAIRS_METHODS: Mapping[str, type[Method]] = {
    "bayesian_regression": BayesianRegression,
    "gaussian_mlp": GaussianMLP,
}
PAIRS_TASKS: Mapping[str, Task] = {"pairs": Pairs()}


@contextmanager
def registered() -> Iterator[None]:
    """Within it METHODS and TASKS have these entries, too, in every module that has imported them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, additions in (("METHODS", PAIRS_METHODS), ("TASKS", PAIRS_TASKS)):
            entries = vars(catalog)[name]
            extended = MappingProxyType({**entries, **additions})
            for module in [sys.modules[module] for module in sys.modules if module.startswith("trainables.")]:
                if vars(module).get(name) is entries:
                    patch.setattr(module, name, extended)
        yield
