"""A sweep's name in, Parquet out: `python -m sweeper.run` on the command line, and these functions from Python.

>>> import sweeper
>>> sorted(sweeper.__all__)
['best', 'compare', 'config_of', 'load', 'load_history', 'load_model', 'plan', 'run']

They are imported when they are first used, so `import sweeper` takes no time. `run`, `best`, `compare` and `plan` are
also the names of modules and of the package `sweeper/plan/`. In whichever order they are imported, `sweeper.run`,
`sweeper.best`, `sweeper.compare` and `sweeper.plan` are these modules, and can be called.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeper.api import best, compare, config_of, load, load_history, load_model, plan, run

__all__ = ["best", "compare", "config_of", "load", "load_history", "load_model", "plan", "run"]
MODULES = ("best", "compare", "plan", "run")
"""Functions that share their name with a module."""


class CallableModule(ModuleType):
    """A module that can be called as the function of its name in `sweeper.api`."""

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function, whose signature and documentation `help` and notebooks show."""
        return _function(self.__name__.rpartition(".")[2])

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)


class Package(ModuleType):
    """This package, which makes each of `MODULES` callable when it is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in MODULES and type(value) is ModuleType:
            value.__class__ = CallableModule
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"sweeper.{name}")
    if name in __all__:
        return _function(name)
    raise AttributeError(f"module 'sweeper' has no attribute '{name}'; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def _function(name: str) -> Any:
    return getattr(importlib.import_module("sweeper.api"), name)


sys.modules[__name__].__class__ = Package
