"""Values of rows, which data frames, NumPy and Parquet represent in different ways."""

from typing import Any


def plain_value(value: Any) -> Any:
    """The value as one of Python, and None for every null (None, NaN, NaT and NA), so that values of two tables are
    equal and hash alike."""
    if value is None or type(value).__name__ == "NAType" or value != value:  # a comparison with NA has no truth value
        return None
    return value.item() if hasattr(value, "item") else value
