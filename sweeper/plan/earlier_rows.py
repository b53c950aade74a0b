"""Rows of an earlier definition of a request: the preset, or a default, has changed since they were trained.

They stay in the store, but belong to the request no longer, so its trials are trained again. The user is told before.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sweeper.plan.changes import Changes, format_value
from sweeper.spec import Value
from sweeper.storage.requests import RequestRows
from sweeper.storage.store import StoreReader

Expected = Mapping[str, Mapping[str, Collection[Value]]]
"""Method -> key -> the values that trials of the request have. A trial that lacks a key has None. Keys that a search
samples are left out."""
MAX_KEYS, MAX_VALUES = 6, 3
"""Most keys, and most values of a key, that a note names."""


def expected_values(configs: Iterable[Mapping[str, Value]], searched: Collection[str] = ()) -> Expected:
    """Return the values of these trials by method and key."""
    by_method: dict[str, list[Mapping[str, Value]]] = {}
    for config in configs:
        by_method.setdefault(str(config["method"]), []).append(config)
    return {
        method: {
            key: {config.get(key) for config in own}
            for key in dict.fromkeys(key for config in own for key in config)
            if key not in searched
        }
        for method, own in by_method.items()
    }


def note(
    store: StoreReader,
    sweep: str,
    request_rows: RequestRows,
    changed: Changes,
    changes: Collection[str],
    expected: Expected,
    searched: Collection[str] = (),
) -> str | None:
    """Return one line about the rows of an earlier definition: how many, and in which keys they differ; None without.

    These are rows with the request's preset and one of its trials' `changes` that do not belong to the request, and
    that differ from its trials in no key that the request itself changes.
    """
    differences = []
    for row in store.unlisted(sweep, request_rows, changes):
        keys = _differing(row, expected.get(str(row["method"]), {}), searched)
        if not set(keys) & set(changed.keys) and (keys or not changed.keys):
            differences.append({key: (row.get(key), expected.get(str(row["method"]), {}).get(key, ())) for key in keys})
    if not differences:
        return None
    several = len(differences) > 1
    return (
        f"{len(differences)} {'rows' if several else 'row'} of '{request_rows.request}' in {store.files.display_uri} "
        f"{'do' if several else 'does'} not count, because its definition has changed since: {_text(differences)}"
    )


def _differing(
    row: Mapping[str, Any], expected: Mapping[str, Collection[Value]], searched: Collection[str]
) -> list[str]:
    """Return the keys in which a row has none of the expected values."""
    names = dict.fromkeys((*expected, *(key for key, value in row.items() if value is not None)))
    return [key for key in names if key not in searched and row.get(key) not in expected.get(key, (None,))]


def _text(differences: Sequence[Mapping[str, tuple[Any, Collection[Value]]]]) -> str:
    """Return e.g. `lr was 0.05, is 0.02; validation was none, is 0.2`, the key of most rows first."""
    counts = Counter(key for difference in differences for key in difference)
    parts = []
    for key, count in counts.most_common(MAX_KEYS):
        pairs = [difference[key] for difference in differences if key in difference]
        was, now = {old for old, _ in pairs}, {value for _, new in pairs for value in new}
        where = "" if count == len(differences) else f" ({count} rows)"
        parts.append(f"{key} was {_values(was)}, is {_values(now)}{where}")
    rest = [f"{len(counts) - MAX_KEYS} more keys"] if len(counts) > MAX_KEYS else []
    return "; ".join([*parts, *rest]) or "the values of its axes are combined otherwise"


def _values(values: Collection[Any]) -> str:
    texts = sorted(map(format_value, values)) or ["absent"]
    return ",".join(texts[:MAX_VALUES]) + (",..." if len(texts) > MAX_VALUES else "")
