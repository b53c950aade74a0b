"""Names of the classes of a user's own images, which views show in place of their numbers."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from sweeper.names import is_name
from sweeper.report.formatting import format_value
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import class_names_path

DIGEST, CLASS = "image_digest", "normal_class"
"""Columns of rows: which images of the user a trial has, and the number of a class."""
ValueText = Callable[[str, object], str]
"""Name of a hyperparameter and its value -> the value as text."""


def read_class_names(files: Files, name: str, rows: pd.DataFrame) -> Mapping[str, Sequence[str]]:
    """Return digest of a user's own images -> the names of their classes, as the last run of the sweep wrote them."""
    digests = [digest for digest in _digests(rows) if is_name(digest)]
    names: dict[str, list[str] | None] = {
        digest: read_record(files, class_names_path(name, digest), list[str]) for digest in digests
    }
    return {digest: known for digest, known in names.items() if known is not None}


def plain_text(name: str, value: object) -> str:
    """Return the text of a value as it is."""
    return format_value(value)


def text_with_class_names(files: Files, name: str, rows: pd.DataFrame) -> ValueText:
    """Return how views of these rows write values: with the names of classes if all rows have the same images."""
    digests = _digests(rows)
    names = read_class_names(files, name, rows).get(digests[0], ()) if len(digests) == 1 else ()
    texts: dict[object, str] = dict(enumerate(names))

    def text(name: str, value: object) -> str:
        return texts.get(value) or format_value(value) if name == CLASS else format_value(value)

    return text


def _digests(rows: pd.DataFrame) -> list[str]:
    """Return the distinct digests of the rows; that of images which are not the user's is empty."""
    return list(map(str, rows[DIGEST].fillna("").unique())) if DIGEST in rows else []
