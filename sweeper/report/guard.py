"""The guard around every figure and table: one that fails for its data is a line, and the others are still made."""

from collections.abc import Callable
from typing import TypeVar

from sweeper.errors import DamagedError, StoreError

Made = TypeVar("Made")


def made(say: Callable[[str], object], name: str, make: Callable[[], Made]) -> Made | None:
    """Return `make()`. If it fails for what the store holds, call `say` with a sentence about `name` and return None.

    A file of a store can hold anything, such as text where numbers belong, and pandas, NumPy and Matplotlib raise many
    kinds of errors for that. Raises StoreError if the store cannot be read or written.
    """
    try:
        return make()
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, DamagedError):
            raise
        reason = " ".join(str(error).split())[:200]
        say(f"{name} cannot be shown: {type(error).__name__}{reason and f': {reason}'}")
        return None
