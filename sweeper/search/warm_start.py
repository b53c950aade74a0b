"""What a study begins with: results of another sweep, kept beside the study so that it stays what it was begun with."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.errors import SpecError
from sweeper.spec.grid import Value
from sweeper.spec.search import Study, within
from sweeper.storage.io.files import Files
from sweeper.storage.json_records import read_record, text
from sweeper.storage.store import Store

SAME = ("method", "dataset", "normal_class", "held_out", "outliers", "validation")
"""Keys that say what an objective measures: rows that differ in them say nothing to a study."""


@dataclass(frozen=True)
class WarmStart:
    """Results that a study knows before its first trial."""

    sweep: str | None
    """The one that they are of."""
    results: tuple[tuple[Mapping[str, Value], tuple[float, ...]], ...] = ()
    """Of each its values of the searched keys, and its objectives."""

    def keep(self, files: Files, path: str, study: Study) -> None:
        """Write it, with what the study is, for when the search is continued."""
        content = {"study": study.identity, "warm_start": self.sweep, "results": self.results}
        files.write(path, json.dumps(content, indent=1).encode())


def kept_warm_start(files: Files, path: str, study: Study) -> WarmStart | None:
    """What `keep` wrote of this study; None where there is nothing, or it is damaged."""
    space, objectives = study.search.space, study.search.objectives

    def result(params: Any, values: Any) -> tuple[Mapping[str, Value], tuple[float, ...]]:
        if set(params) != set(space) or not all(within(one, params[key]) for key, one in space.items()):
            raise ValueError("a result has another value than the space")
        if len(values) != len(objectives) or not all(type(value) is float for value in values):
            raise ValueError("a result has other objectives")
        if not all(map(math.isfinite, values)):
            raise ValueError("a result is not finite")
        return dict(params), tuple(values)

    def parse(plain: Any) -> WarmStart:
        sweep = plain["warm_start"]
        return WarmStart(sweep and text(sweep), tuple(result(*one) for one in plain["results"]))

    return read_record(files, path, parse)


def warm_from(store: Store, sweep: str, study: Study, config: Mapping[str, Value]) -> WarmStart:
    """What the finished rows of a sweep say to a study whose trials are like `config`. SpecError where it is nothing.

    Rows of its method and data count whose searched values lie within the space; they may differ in all else.
    """
    rows = store.rows(sweep)
    if not rows:
        raise SpecError(f"--warm-start needs rows, but store {store.files.shown} has none of sweep '{sweep}'")
    names = [metric.name for metric in study.search.objectives]
    results: list[tuple[Mapping[str, Value], tuple[float, ...]]] = []
    for row in rows:
        fits = row["status"] == "finished" and all(row.get(key) == config.get(key) for key in SAME)
        params = {key: row.get(key) for key in study.search.space}
        values = [float(row[name]) for name in names if isinstance(row.get(name), int | float)]
        inside = all(within(one, params[key]) for key, one in study.search.space.items())
        if fits and inside and len(values) == len(names):
            results.append((params, tuple(values)))
    if not results:
        keys = ", ".join(study.search.space)
        raise SpecError(
            f"no finished row of sweep '{sweep}' fits study '{study.name}': same {', '.join(SAME)}, with "
            f"{', '.join(names)}, and {keys} within the space"
        )
    return WarmStart(sweep, tuple(results))
