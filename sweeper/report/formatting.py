"""Hyperparameters, metrics and tables as text, with the names of a user's own classes, and values as JSON has them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from sweeper.names import is_name
from sweeper.printing import printable
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import class_names_path

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
"""Sign of a negative number, and text of a null."""


def format_value(value: object) -> str:
    """Return a hyperparameter's value as text, e.g. `1`, `0.25`, `∞` or `cat`; null is an en dash."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        text = ("∞" if math.isinf(value) else repr(value)).removesuffix(".0").replace("e-0", "e-")
        return f"{MINUS}∞" if value == -math.inf else text.replace("-", MINUS) if value < 0 else text
    return printable(str(value))


def format_metric(value: float, digits: int) -> str:
    """Return a metric's value with this many decimals, or in scientific notation if all decimals would be zero."""
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}" if value == 0 or abs(value) >= 0.5 * 10**-digits else f"{value:.0e}"
    return text.replace("-", MINUS) if value < 0 else text


def format_significant(value: float) -> str:
    """Return three significant figures. Integer digits below a million are all shown."""
    if not math.isfinite(value) or value == 0:
        return format_metric(value, 2)
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 6:
        return format_metric(value, max(2 - exponent, 0))
    return f"{value:.2e}".replace("-", MINUS)


MOST_MORE_DECIMALS = 2
"""Most decimals that numbers have beyond three significant figures of the largest, so that all have equally many."""


def aligned_decimals(values: np.ndarray) -> int | None:
    """Return the number of decimals with which all of these values show three significant figures at least; None if
    they differ too much in size, or some are not below a million."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes):
        return 2
    least, most = (2 - math.floor(math.log10(size)) for size in (sizes.max(), sizes.min()))
    return max(most, 0) if most - max(least, 0) <= MOST_MORE_DECIMALS and least > -4 and most < 7 else None


def signed(value: float, low: float = math.nan, high: float = math.nan, digits: int | None = None) -> str:
    """Return a difference, such as `+0.012 [+0.008, +0.016]`, without its interval if that is unknown; a dash for NaN.
    With three significant figures, or so many decimals."""

    def text(number: float) -> str:
        size = format_significant(abs(number)) if digits is None else format_metric(round(abs(number), digits), digits)
        return f"{MINUS if number < 0 else '+'}{size}"

    if math.isnan(value):
        return DASH
    return text(value) + ("" if math.isnan(low) else f" [{text(low)}, {text(high)}]")


def text_table(columns: Mapping[str, Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return columns of text as a plain-text table for the terminal. Those in `right` are aligned to the right."""
    alignments = ["right" if name in right else "left" for name in columns]
    columns = {printable(name): [*map(printable, texts)] for name, texts in columns.items()}
    return tabulate(columns, headers="keys", tablefmt="simple", disable_numparse=True, colalign=alignments)


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


def distinct_texts(values: pd.Series, name: str, value_text: ValueText) -> list[str]:
    """Return the texts of the distinct values, in their order. No two are equal: in a chart they would be one."""
    distinct = list(values.drop_duplicates())
    texts = [value_text(name, value) for value in distinct]
    return texts if len(set(texts)) == len(texts) else [plain_text(name, value) for value in distinct]


def text_with_class_names(files: Files, name: str, rows: pd.DataFrame) -> ValueText:
    """Return how figures of these rows write values: with the names of classes if all rows have the same images."""
    digests = _digests(rows)
    names = read_class_names(files, name, rows).get(digests[0], ()) if len(digests) == 1 else ()
    texts: dict[object, str] = dict(enumerate(names))

    def text(name: str, value: object) -> str:
        return format_value(texts.get(value) or value) if name == CLASS else format_value(value)

    return text


def _digests(rows: pd.DataFrame) -> list[str]:
    """Return the distinct digests of the rows; that of images which are not the user's is empty."""
    return list(map(str, rows[DIGEST].fillna("").unique())) if DIGEST in rows else []


def json_values(values: pd.Series, kind: type | None = None) -> list[Any]:
    """Return the values as JSON has them: null for NaN, the text `inf` or `-inf`, ISO 8601 for times.

    `kind` is the type of a hyperparameter. pandas holds whole numbers with nulls as floats, which `kind` turns back.
    """
    if isinstance(values.dtype, pd.DatetimeTZDtype):  # whose Timestamps take ten times as long to write
        return [None if time is pd.NaT else time.isoformat() for time in values.dt.to_pydatetime()]
    plain = values.tolist()
    types = {*map(type, plain)}
    if types <= {str, int, bool, type(None)} or (
        types == {float} and kind is not int and all(map(math.isfinite, plain))
    ):
        return plain
    return [_json_value(value, kind) for value in plain]


def _json_value(value: Any, kind: type | None) -> Any:
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return int(value) if kind is int else value
    return value.isoformat() if isinstance(value, pd.Timestamp) else value
