"""What differs between two runs of one trial: where, with what and how long it ran, and what came out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sweeper.storage.rows import PROVENANCE, plain_value

CIRCUMSTANCES = (*PROVENANCE, "preset", "changes", "cohort", "cohort_size", "replaced")
"""Columns that say how a trial ran; all others say what was trained and what came out."""


@dataclass(frozen=True)
class Difference:
    """A column in which two runs of a trial differ."""

    column: str
    kind: Literal["circumstance", "result"]
    first: Any
    """Value in the first run; None where it is null."""
    second: Any


def run_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Return the columns in which two rows of one trial differ, circumstances first, in the order of the rows.

    A column that one row lacks is null there; nulls are equal. Raises ValueError for rows of two trials.
    """
    if first["trial_id"] != second["trial_id"]:
        raise ValueError(f"runs must be of one trial, but got {first['trial_id']!r} and {second['trial_id']!r}")
    differences = []
    for column in dict.fromkeys((*first, *second)):
        left, right = plain_value(first.get(column)), plain_value(second.get(column))
        if left != right:
            differences.append(Difference(column, "circumstance" if column in CIRCUMSTANCES else "result", left, right))
    return sorted(differences, key=lambda difference: difference.kind)
