"""Point out in an error message which of its keys the preset has set, rather than the user."""

from __future__ import annotations

import re

from sweeper.spec import Grids, Search, Searches, Space
from sweeper.spec.request import Request


def explained(error: str, request: Request, preset: str, space: Space) -> str:
    """Add ` (KEY is set by preset 'NAME')` to an error, for the keys it names that the preset alone sets.

    Only the part before the first semicolon counts, because a list of choices may follow it.
    """
    head, semicolon, rest = error.partition("; ")
    statement = re.sub(r"\(did you mean [^)]*\)", "", head)
    words = {part for word in statement.split() if "/" not in word for part in re.findall(r"\w+", word)}  # no paths
    keys = sorted((words & _keys(space)) - {"method"} - set(request.fixed) - set(request.axes))
    if not keys:
        return error
    verb = "are" if len(keys) > 1 else "is"
    return f"{head} ({' and '.join(keys)} {verb} set by preset '{preset}'){semicolon}{rest}"


def _keys(space: Space) -> set[str]:
    """All keys that the preset fixes, varies or searches."""
    if isinstance(space, Grids):
        return {key for grid in space.grids for key in _keys(grid)}
    if isinstance(space, Searches):
        return {key for search in space.searches for key in _keys(search)}
    return {*space.fixed, *space.axes, *(space.space if isinstance(space, Search) else ())}
