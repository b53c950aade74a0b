"""What a request changes in its preset: of the whole request, for the folder of its views, and of each trial, for rows.

A trial's changes depend on its preset and its own values alone, so that its row is the same whichever request trained
it. A narrowed axis changes no trial: what is left of the axis are trials of the preset.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sweeper.spec import Grid, Grids, Search, Searches, Space, Value
from sweeper.spec.request import Request
from sweeper.spec.search import Study

DefaultsFormatter = Callable[[str], Mapping[str, Value]]
"""A method's name -> every key of its trials that has a default, and that default."""

CHOOSING = ("method", "dataset")
"""Keys that choose among the parts of a preset, where the parts differ in them."""
LONGEST = 120
"""Characters of a folder's name; a longer one is cut and ends with a hash of the whole."""


@dataclass(frozen=True)
class Change:
    """A key whose values in a request are other than in the preset."""

    values: tuple[Value, ...]
    """Those asked for, sorted."""
    preset: tuple[Value, ...]
    """The preset's own: one where it is fixed or a default, several where it is an axis or parts differ; none where it
    is searched."""


@dataclass(frozen=True)
class Changes:
    """What a request changes in a preset."""

    preset: str
    keys: Mapping[str, Change]
    """By hyperparameter, or by option of a search (`sampler`, `wave`, ...); sorted."""

    @property
    def label(self) -> str:
        """`digits` for a preset as it stands, else e.g. `digits, epochs=5 seed=0,1`."""
        pairs = [f"{key}={','.join(map(written, change.values))}" for key, change in self.keys.items()]
        return ", ".join(filter(None, [self.preset, " ".join(pairs)]))

    @property
    def folder(self) -> str:
        """The label as a name that every file system and object store takes."""
        name = re.sub(r"[^\w ,=.+-]", "_", self.label, flags=re.ASCII)
        if name == self.label and len(name) <= LONGEST:
            return name
        return f"{name[:LONGEST]}-{hashlib.sha256(self.label.encode()).hexdigest()[:8]}"


def changes_of(request: Request, preset: str, before: Space, after: Space, defaults: DefaultsFormatter) -> Changes:
    """What the request, which makes `after` of the preset's space `before`, changes in it."""
    asked = {key: (value,) for key, value in request.fixed.items()} | dict(request.axes)
    keys = {key: _of_key(key, before, after, defaults) for key in asked} | _of_options(request, before, after)
    return Changes(preset, {key: change for key, change in sorted(keys.items()) if change})


def of_grid(
    request: Request, before: Grid | Grids, defaults: DefaultsFormatter
) -> Callable[[Mapping[str, Value]], str]:
    """Complete config of a trial -> its changes: `epochs=5 seed=1`, or the empty string for one of the preset."""
    if not (request.fixed or request.axes):
        return lambda config: ""

    @functools.cache
    def tried_by(method: str, keys: tuple[str, ...]) -> list[dict[str, tuple[Value, ...]]]:
        return [{key: _tried(key, part, defaults(method)) for key in keys} for part in parts_of(before)]

    def of_trial(config: Mapping[str, Value]) -> str:
        every = tried_by(str(config["method"]), tuple(config))
        differing = ({key: value for key, value in config.items() if value not in tried[key]} for tried in every)
        return _text(min(differing, key=len))

    return of_trial


def of_study(request: Request, before: Search | Searches, study: Study, defaults: DefaultsFormatter) -> str:
    """The same for all trials of a study: a key that is searched no more counts, and so does an option of the search
    that proposals depend on."""
    method, searches = str(study.fixed["method"]), parts_of(before)
    known, own = defaults(method), next((one for one in searches if _method(one) == method), searches[0])
    found = {key: value for key, value in study.fixed.items() if value not in _tried(key, own, known)}
    found |= {key: change.values[0] for key, change in _of_options(request, own, study.search).items()}
    return _text(found)


def written(value: Value) -> str:
    """A value as `--set` takes it: `3`, `0.5`, `inf`, `true`, `none`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def parts_of(space: Space) -> Sequence[Grid | Search]:
    """The grids or the searches of a space."""
    if isinstance(space, Grids):
        return space.grids
    return space.searches if isinstance(space, Searches) else (space,)


def _text(found: Mapping[str, Value]) -> str:
    return " ".join(f"{key}={written(value)}" for key, value in sorted(found.items()))


def _tried(key: str, part: Grid | Search, defaults: Mapping[str, Value]) -> tuple[Value, ...]:
    """What the part tries for a key; nothing for one that is searched, whose values are the sampler's."""
    if isinstance(part, Search) and key in part.space:
        return ()
    return part.values(key) or ((defaults[key],) if key in defaults else ())


def _of_key(key: str, before: Space, after: Space, defaults: DefaultsFormatter) -> Change | None:
    """None where the request's values of the key are the preset's own."""
    methods: set[str] = set() if key in CHOOSING else set(map(_method, parts_of(after)))
    own = [part for part in parts_of(before) if key not in part.pinned]
    own = [part for part in own if _method(part) in methods] or own
    parts = [(part, defaults(_method(part))) for part in own]
    tried = [_tried(key, part, known) for part, known in parts if _has(key, part, known)]
    every = _sorted({value for values in tried for value in values})
    now = _sorted({value for part in parts_of(after) if key not in part.pinned for value in part.values(key)})
    alike = now == every if key in CHOOSING else all(set(values) == set(now) for values in tried)
    return None if tried and alike else Change(now, every)


def _of_options(request: Request, before: Space, after: Space) -> dict[str, Change]:
    """Options of a search that its proposals depend on: not how many trials there are to be."""
    old, new = parts_of(before)[0], parts_of(after)[0]
    if not isinstance(old, Search) or not isinstance(new, Search):
        return {}
    found: dict[str, Change] = {}
    for name, was, now in (
        ("wave", old.wave, new.wave),
        ("sampler", old.sampler, new.sampler),
        ("search-seed", old.seed, new.seed),
    ):
        if was != now:
            found[name] = Change((now,), (was,))
    if old.pruner != new.pruner:
        found["pruner"] = Change((request.search.pruner,), ())
    if request.warm_start:
        found["warm-start"] = Change((request.warm_start,), ())
    return found


def _method(part: Grid | Search) -> str:
    return str(part.values("method")[0])


def _has(key: str, part: Grid | Search, defaults: Mapping[str, Value]) -> bool:
    return key in defaults or bool(part.values(key)) or (isinstance(part, Search) and key in part.space)


def _sorted(values: set[Value]) -> tuple[Value, ...]:
    """Numbers by size, all else by its text."""
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value is not None, value)))
