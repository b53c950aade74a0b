"""Names of sweeps and cohorts, which become names of files and folders in a store."""

import re

LAW = "must consist of letters, digits, '_', '-', '+' and '.' and begin with a letter or a digit"
"""What a name is, for an error."""


def is_name(name: str) -> bool:
    """Whether a sweep or a cohort can have this name."""
    return re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name, re.ASCII) is not None
