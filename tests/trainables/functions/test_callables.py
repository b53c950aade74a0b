"""Whatever can be called is a method, and its annotations are read as Python reads them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import pytest
import torch

from tests.cases import for_each
from trainables import catalog, config
from trainables.config import resolve
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.method import FunctionError, method_of_function
from trainables.reports import Member, Report

NAME = "a_module:train"


@pytest.fixture(autouse=True)
def _methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_own_methods", {})


def trained(function: Callable[..., Any], rate: float = 0.5) -> Member:
    """The only trial of a function."""
    catalog._own_methods[NAME] = method = method_of_function(NAME, function)
    config.sections.cache_clear()
    reports = list[Report]()
    configs = [resolve({"method": NAME, "rate": rate})]
    FunctionCohort(configs, method, torch.device("cpu"), FunctionCallbacks(reports.append)).train()
    config.sections.cache_clear()
    return reports[-1].members[0]


class Trainer:
    """An object to call."""

    def __call__(self, rate: float = 0.1) -> dict[str, float]:
        return {"loss": rate}

    def bound(self, rate: float = 0.1) -> dict[str, float]:
        return {"loss": rate}


def two(width: int, rate: float = 0.1) -> dict[str, float]:
    return {"loss": width * rate}


def other_types(
    rate: float = 0.1,
    layers: list[int] = [1],  # noqa: B006
    sizes: tuple[int, ...] = (1, 2),
    names: dict[str, int] | None = None,
    maybe: Optional[int] = None,  # noqa: UP045
) -> dict[str, float]:
    assert (layers, sizes, names, maybe) == ([1], (1, 2), None, None)
    return {"loss": rate}


@dataclass(frozen=True)
class Settings:
    rate: float = 0.1


def of_settings_and_device(settings: Settings, device: str = "") -> dict[str, float]:
    assert device == "cpu"
    return {"loss": settings.rate}


@for_each(
    "function",
    [
        Trainer(),
        Trainer().bound,
        functools.partial(two, 1),
        lambda rate=0.1: {"loss": rate},
        other_types,
        of_settings_and_device,
    ],
)
def test_it_is_called_with_its_keys(function: Callable[..., Any]) -> None:
    member = trained(function)
    assert (member.error, member.metrics) == (None, {"loss": 0.5})


def of_a_list(rate: list[float]) -> None: ...
def of_two_types(rate: int | str) -> None: ...
def of_nothing_known(rate: "Nowhere" = 1) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@for_each(
    ("function", "got"),
    [
        (of_a_list, r"rate of type list\[float\]"),
        (of_two_types, r"rate of type int \| str"),
        (of_nothing_known, "name 'Nowhere' is not defined"),
    ],
)
def test_other_types_without_a_default_are_refused(function: Callable[..., Any], got: str) -> None:
    with pytest.raises(FunctionError, match=f"the function {NAME} must .*, but got {got}"):
        method_of_function(NAME, function)


def test_an_infinite_epoch_is_refused() -> None:
    def train(trial: Any, rate: float) -> None:
        trial.report(float("inf"), loss=rate)

    assert "an epoch must be a whole number of at least 0, but got inf" in str(trained(train).error)
