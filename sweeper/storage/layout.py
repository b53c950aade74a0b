"""Names and paths in a store."""

from __future__ import annotations

import re

SUFFIX = ".parquet"
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*", re.ASCII)


def check_name(name: str) -> str:
    """Return `name` if it is valid as the name of a sweep or a cohort in the store. Raises ValueError otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a name in the store must consist of letters, digits, '_', '-', '+' and '.' and begin with a letter or a "
            f"digit, but got {name!r}"
        )
    return name


def trials_folder(sweep: str) -> str:
    """Return the folder of the sweep's rows."""
    return f"trials/sweep={check_name(sweep)}"


def history_folder(sweep: str) -> str:
    """Return the folder of the sweep's history."""
    return f"history/sweep={check_name(sweep)}"


def checkpoints_folder(sweep: str) -> str:
    """Return the folder of the checkpoints of the sweep's cohorts."""
    return f"checkpoints/sweep={check_name(sweep)}"


def checkpoint_path(sweep: str, cohort: str) -> str:
    """Return the path of a cohort's checkpoint, which exists until the cohort's rows are written."""
    return f"{checkpoints_folder(sweep)}/{check_name(cohort)}.pt"


def whole_folders(sweep: str) -> tuple[str, ...]:
    """Return the folders of the sweep whose files and subfolders each belong to one request, unlike rows and history.

    The last one lies in the second one.
    """
    cuts = f"cuts/sweep={check_name(sweep)}"
    views = (f"{kind}/{sweep}" for kind in ("heatmaps", "tables", "trajectories", "studies"))
    return checkpoints_folder(sweep), cuts, *views, f"{cuts}/halved"
