"""Small JSON files that a store keeps beside the rows, such as cuts and measurements. A wrong file counts as absent."""

from collections.abc import Callable
from typing import Any, TypeVar

from sweeper.errors import DamagedError, SpecError
from sweeper.storage.io.files import Files, say_once
from trainables.json_input import MAX_BYTES, read_json

Record = TypeVar("Record")


def read_record(
    files: Files, path: str, kind: Any, convert: Callable[[Any], Record] = lambda record: record
) -> Record | None:
    """Return the JSON file at `path` as a `kind` (see `json_input`), converted; None if there is no such file.

    If the file is damaged or does not hold a `kind`, a line on stderr says so and the result is None. `convert` reports
    invalid content by a ValueError.
    """
    record, problem = checked_record(files, path, kind, convert)
    if problem:
        say_once(f"store {files.display_uri}: '{path}' is damaged and counts as absent: {problem}")
    return record


def checked_record(
    files: Files, path: str, kind: Any, convert: Callable[[Any], Record] = lambda record: record
) -> tuple[Record | None, str]:
    """As `read_record`, but return what is wrong with the file instead of printing it; empty if nothing is."""
    try:
        data = files.read(path, MAX_BYTES)
        return (None if data is None else convert(read_json(kind, data))), ""
    except (ValueError, SpecError, DamagedError) as error:
        return None, " ".join(str(error).split())[:300]
