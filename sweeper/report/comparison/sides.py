"""The two sides of a comparison as typed, and their rows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from sweeper.report.comparison.pairs import STUDY_COLUMNS
from sweeper.spec import SpecError
from sweeper.spec.space import unknown
from sweeper.storage.requests import read_request, request_name
from sweeper.storage.rows import columns_of, plain_value
from sweeper.storage.store import StoreReader

DEFAULT_STORE = "results"
CHANGES = "changes"
SYNTAX = "NAME[:PRESET][,KEY=VALUE...][@STORE]"


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the finished trials of a sweep that were selected."""

    name: str
    preset: str | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Column -> value, as typed. `changes` and the preset are the request whose rows are compared."""
    store: str = DEFAULT_STORE

    @property
    def label(self) -> str:
        conditions = "".join(f",{key}={value}" for key, value in self.conditions.items())
        return f"{self.name}{':' if self.preset else ''}{self.preset or ''}{conditions} in {self.store}"


@dataclass(frozen=True)
class SideRows:
    """The rows of a side."""

    rows: pd.DataFrame
    """Only finished trials: the metrics of pruned ones are from an earlier epoch, and diverged ones have none."""
    left_out: Mapping[str, int]
    """Status -> number of trials that are left out."""
    hyperparameters: tuple[str, ...]
    metrics: tuple[str, ...]


def parse_sides(first: str, second: str) -> tuple[Side, Side]:
    """Parse `NAME[:PRESET][,KEY=VALUE...][@STORE]` twice. Parts that the second lacks are those of the first, except
    for conditions; the preset is taken over only together with the name, and the changes only together with the preset.
    Raises SpecError."""
    a = _parse(first, None)
    b = _parse(second, a)
    if a == b:
        raise SpecError(f"the two sides must differ, but both are {a.label}")
    return a, b


def _parse(text: str, default: Side | None) -> Side:
    head, at, store = text.partition("@")
    place, *conditions = head.split(",")
    name, _, preset = (part.strip() for part in place.partition(":"))
    if not name and default is None:
        raise SpecError(f"the first side must be {SYNTAX}, but got '{text}'")
    if at and not store.strip():
        raise SpecError(f"a store must follow the @, but got '{text}'")
    values: dict[str, str] = {}
    for condition in _joined(conditions):
        key, equals, value = (part.strip() for part in condition.partition("="))
        if not key or not equals:
            raise SpecError(f"a side must be {SYNTAX}, but got '{text}'")
        if key in values:
            raise SpecError(f"a side takes each key once, but got {key}={values[key]} and {key}={value}")
        values[key] = value
    side = Side(name, preset or None, values, store.strip() or DEFAULT_STORE)
    if default is None:
        return side
    side = replace(side, store=side.store if at else default.store)
    if name:
        return side
    if not preset and CHANGES in default.conditions:
        side = replace(side, conditions={CHANGES: default.conditions[CHANGES], **values})
    return replace(side, name=default.name, preset=preset or default.preset)


def _joined(conditions: Sequence[str]) -> list[str]:
    """Join what belongs together again, because the values of an axis in `changes` have commas between them."""
    joined: list[str] = []
    for condition in conditions:
        if joined and joined[-1].partition("=")[0].strip() == CHANGES and not re.match(r"\s*\w+\s*=", condition):
            joined[-1] += f",{condition}"
        else:
            joined.append(condition)
    return joined


def rows_of(side: Side) -> SideRows:
    """Return the rows of a side. Raises SpecError or StoreError if there are none."""
    reader = StoreReader(side.store)
    table = reader.rows(side.name)
    if table is None:
        names = [name.removeprefix("sweep=") for name in reader.files.list("trials") if name.startswith("sweep=")]
        store = f"store {reader.files.display_uri}"
        raise SpecError(f"{store}: {unknown('sweep', side.name, names)}" if names else f"{store} has no rows")
    columns, rows = columns_of(table.schema), table.to_pandas()
    presets = sorted(rows["preset"].dropna().unique())
    if side.preset is None and len(presets) > 1:
        raise SpecError(
            f"{side.name} has rows of several presets; write {side.name}:PRESET with one of: {', '.join(presets)}"
        )
    preset = side.preset or "".join(presets)
    changes = side.conditions.get(CHANGES, "")
    conditions = {**({"preset": side.preset} if side.preset else {}), CHANGES: "", **side.conditions}
    if listed := read_request(reader.files, side.name, request_name(preset, changes)):
        rows = listed.select(rows)
        conditions = {key: value for key, value in side.conditions.items() if key != CHANGES}
    for key, value in conditions.items():
        rows = _selected(rows, key, value, side)
    counts = rows["status"].value_counts().to_dict()
    finished = rows[rows["status"] == "finished"].reset_index(drop=True)
    if not len(finished):
        raise SpecError(f"{side.label}: none of its {len(rows)} trials has finished")
    return SideRows(
        finished,
        {status: count for status, count in counts.items() if status != "finished"},
        tuple(key for key in columns.hyperparameters if key not in STUDY_COLUMNS),
        (*columns.metrics, "seconds"),
    )


def _selected(rows: pd.DataFrame, key: str, text: str, side: Side) -> pd.DataFrame:
    if key not in rows.columns:
        raise SpecError(unknown(f"column in the rows of {side.name}", key, [str(name) for name in rows.columns]))
    if key == CHANGES and rows[key].isna().all():  # of a version that did not record them
        return rows
    values = [plain_value(value) for value in rows[key]]
    mask = [_matches(value, text) for value in values]
    if not any(mask):
        choices = ", ".join(sorted({repr(value) if isinstance(value, str) else _text(value) for value in values}))
        if not text:
            raise SpecError(f"{side.label}: no trial without {key}; add {key}=... with one of: {choices}")
        raise SpecError(f"{side.label}: no trial with {key}={text}; there are: {choices}")
    return rows[mask]


def _matches(value: object, text: str) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return _text(value) == text


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
