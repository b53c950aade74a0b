"""Which keys of an error the preset has set, and not who asked for the sweep."""

from __future__ import annotations

import re

from sweeper.spec import Grids, Search, Searches, Space
from sweeper.spec.request import Request


def explained(error: str, request: Request, preset: str, space: Space) -> str:
    """The error, with ` (KEY is set by preset 'NAME')` for the keys that it is about and that the preset alone sets.

    An error is about the keys that it names in its first part, before a semicolon and a list of what there is.
    """
    head, semicolon, rest = error.partition("; ")
    said = re.sub(r"\(did you mean [^)]*\)", "", head)
    about = {key for word in said.split() if "/" not in word for key in re.findall(r"\w+", word)}  # no path's parts
    keys = sorted((about & _keys(space)) - {"method"} - set(request.fixed) - set(request.axes))
    if not keys:
        return error
    are = "are" if len(keys) > 1 else "is"
    return f"{head} ({' and '.join(keys)} {are} set by preset '{preset}'){semicolon}{rest}"


def _keys(space: Space) -> set[str]:
    """Every key that the preset fixes, varies or searches."""
    if isinstance(space, Grids):
        return {key for grid in space.grids for key in _keys(grid)}
    if isinstance(space, Searches):
        return {key for search in space.searches for key in _keys(search)}
    return {*space.fixed, *space.axes, *(space.space if isinstance(space, Search) else ())}
