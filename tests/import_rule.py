"""What the modules of a folder may import, a row of the tables `trainables_imports` and `sweeper_imports`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """What the modules of a folder import besides the standard library and each other."""

    may: tuple[str, ...] = ()
    """Libraries, and rows above."""
    never: tuple[str, ...] = ()
    """Libraries that are not imported with anything that is imported either."""
    alone: bool = False
    """Whether its modules may not import each other."""


LAUNCHERS = ("ray", "pandas", "pyarrow", "optuna")
"""What models are trained without."""
