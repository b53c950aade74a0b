"""Names of sweeps and cohorts, which become names of files and folders in a store."""

import re

LAW = "must consist of letters, digits, '_', '-', '+' and '.' and begin with a letter or a digit"
"""What a name is, for an error."""
PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
"""The regular expression of a name."""


def is_name(name: str) -> bool:
    """Whether a sweep or a cohort can have this name."""
    return re.fullmatch(PATTERN, name) is not None
