"""What a request changes in its preset: as a whole, which is the request's name, and in each trial, for its row.

A trial's changes depend on its preset and on its own values alone. So its row is the same whichever request trained it.
A request that narrows an axis changes nothing, because all its trials are trials of the preset: it trains a part of the
request without the narrowing, whose name it has.

Rows of an earlier definition of a request stay in the store, but belong to the request no longer, because its preset or
a default has changed since they were trained. Its trials are trained again, after a warning.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.definition import Grid, Search, Space, Value
from sweeper.definition.ranges import as_typed
from sweeper.definition.space import APART, Part, Study, parts_of
from sweeper.printing import printable
from sweeper.request import Request
from sweeper.storage.requests import request_name

Defaults = Callable[[str], Mapping[str, Value]]
"""Name of a method -> every key of its trials that has a default, with the default."""

SELECTING_KEYS = ("method", "dataset")
"""Keys by which a request chooses among the parts of a preset."""
OWN_IMAGES, DIGEST = "folder", "image_digest"
"""The data set of the user's own images, and the key that identifies them. In a name they are one: `folder-1f3a9c`."""
SIZE_KEYS = ("image_channels", "image_size", "image_width")
"""Keys that follow from images of the user's own with any other name, as their digest does."""
DIGEST_LENGTH = 6
"""Characters of a digest in a name."""
OF_DIGEST = re.compile(rf"(.+)-[0-9a-f]{{{DIGEST_LENGTH}}}")
SEARCH_OPTIONS = ("pruner", "sampler", "search-seed", "warm-start", "wave")
"""Options of a run whose changes have their names."""
OF_REPLICATES = "-replicates"
"""What the name of a change of replicates has after the key."""


@dataclass(frozen=True)
class Change:
    """The values of one key, which differ between the request and the preset."""

    values: tuple[Value, ...]
    """Values of the request, sorted."""
    preset: tuple[Value, ...]
    """Values of the preset, sorted; none if the key is searched."""


@dataclass(frozen=True)
class Changes:
    """What a request changes in a preset."""

    preset: str
    keys: Mapping[str, Change]
    """Hyperparameter or option of a search (`sampler`, `wave`, ...) -> its change; sorted by name."""

    @property
    def name(self) -> str:
        """The name of the request: `digits` for an unchanged preset, else e.g. `digits, epochs=5 seed=0,1`."""
        return request_name(self.preset, self.text)

    @property
    def text(self) -> str:
        """What differs from the preset, e.g. `epochs=5 seed=0,1`; empty if nothing does."""
        return _text({key: change.values for key, change in self.keys.items()})

    def without_narrowing(self, request: Request) -> Request:
        """Return the request with only those keys that change the preset."""
        fixed = {key: value for key, value in request.fixed.items() if key in self.keys}
        return replace(request, fixed=fixed, axes={key: axis for key, axis in request.axes.items() if key in self.keys})


def options_of(changes: str) -> list[str]:
    """Return the options with which a run changes its preset so. `changes` is a `Changes.text`."""
    options = list[str]()
    for change in changes.split():
        key, _, value = change.partition("=")
        if key in SEARCH_OPTIONS:
            options += [f"--{key}", value]
        elif key.endswith(OF_REPLICATES):
            options += ["--replicates", f"{key.removesuffix(OF_REPLICATES)}={value}"]
        elif key == "dataset" and (own := OF_DIGEST.fullmatch(value)):
            options += ["--set", f"dataset={own[1]}"]
        else:
            options += ["--axis" if "," in value or re.fullmatch(r"\d+\.\.\d+", value) else "--set", change]
    return options


def request_changes(request: Request, preset: str, before: Space, after: Space, defaults: Defaults) -> Changes:
    """Return what a request changes in a preset, whose space is `before` without the request and `after` with it."""
    requested = {key: (value,) for key, value in request.fixed.items()} | dict(request.axes)
    keys = {key: _key_change(key, before, after, defaults) for key in requested}
    keys |= _option_changes(request, before, after)
    return Changes(preset, {key: change for key, change in sorted(keys.items()) if change})


def longer_trials(before: Space, trials: Iterable[Mapping[str, Value]], changes: Changes) -> str | None:
    """Return a sentence about the trials that train for more epochs than any of their method does in the preset, whose
    space is `before`; None if there are none, or only some with less than twice as many."""
    if "epochs" not in changes.keys:
        return None
    preset: dict[str, int] = {}
    for part in parts_of(before):
        epochs = [int(value) for value in part.values("epochs") if isinstance(value, int)]
        preset[_method(part)] = max([preset.get(_method(part), 0), *epochs])
    counts = Counter((str(trial["method"]), trial["epochs"]) for trial in trials)
    texts = [
        f"{count} of {method} with epochs={epochs} {epochs / preset[method]:g} times"
        for (method, epochs), count in counts.items()
        if isinstance(epochs, int) and preset.get(method) and epochs >= 2 * preset[method]
    ]
    return f"some trials train longer than in the preset: {', '.join(texts)}" if texts else None


def trial_changes(request: Request, before: Space, defaults: Defaults) -> Callable[[Mapping[str, Value]], str]:
    """Return a function from the complete config of a grid's trial to its changes, e.g. `epochs=5 seed=1`; empty
    without any."""
    if not (request.fixed or request.axes):
        return lambda config: ""

    grids = [part for part in parts_of(before) if isinstance(part, Grid)]

    @functools.cache
    def tried_by_part(method: str, keys: tuple[str, ...]) -> list[dict[str, tuple[Value, ...]]]:
        return [{key: _values_of(key, part, defaults(method)) for key in keys} for part in grids]

    def of_trial(config: Mapping[str, Value]) -> str:
        method = str(config["method"])
        values = {**defaults(method), **config}  # a config lacks the keys of sections that say nothing of it
        parts = tried_by_part(method, tuple(values))
        differences = ({key: value for key, value in values.items() if value not in tried[key]} for tried in parts)
        return _text({key: (value,) for key, value in min(differences, key=len).items()})

    return of_trial


def study_changes(request: Request, before: Space, study: Study, defaults: Defaults) -> str:
    """Return the changes of all trials of a study, e.g. `lr=0.01 sampler=gp`; a fixed key that was searched is one."""
    method, searches = str(study.fixed["method"]), _searches(before)
    own = next((search for search in searches if _method(search) == method), searches[0])
    fixed = study.fixed.items()
    tried = {key: _values_of(key, own, defaults(method)) for key, _ in fixed}
    changed: dict[str, Sequence[Value]] = {key: (value,) for key, value in fixed if value not in tried[key]}
    changed |= {key: change.values for key, change in _option_changes(request, own, study.search).items()}
    return _text(changed)


def format_value(value: Value) -> str:
    """Format a value as `--set` takes it: `3`, `0.5`, `inf`, `true`, `none`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return printable(str(value))


def _text(changed: Mapping[str, Sequence[Value]]) -> str:
    texts = {key: as_typed([*map(format_value, values)]) for key, values in changed.items()}
    if digest := texts.pop(DIGEST, ""):
        name = texts.get("dataset", OWN_IMAGES)
        texts["dataset"] = f"{name}-{digest[:DIGEST_LENGTH]}"
        if name != OWN_IMAGES:
            texts = {key: text for key, text in texts.items() if key not in SIZE_KEYS}
    return " ".join(f"{key}={text}" for key, text in sorted(texts.items()))


def changed_keys(text: str) -> tuple[str, ...]:
    """Return the keys of a text such as `epochs=5 seed=0,1`, as `Changes.text` and the name of a request have it."""
    return tuple(each.partition("=")[0] for each in text.split() if "=" in each)


def _values_of(key: str, part: Part, defaults: Mapping[str, Value]) -> tuple[Value, ...]:
    """Return the values that a part has for a key; none if the key is searched, as its values are the sampler's, or
    replicated, as no trial is a result by itself."""
    if key in part.searched or key in part.replicates:
        return ()
    return part.values(key) or ((defaults[key],) if key in defaults else ())


def _key_change(key: str, before: Space, after: Space, defaults: Defaults) -> Change | None:
    """Return the change of a requested key; None if the preset has all values of the request. With a pruner of grids a
    part of the values is a change, too: a trial's result depends on those that it is compared with."""
    methods: set[str] = set() if key in SELECTING_KEYS else set(map(_method, parts_of(after)))
    unpinned = [part for part in parts_of(before) if key not in part.pinned]
    compared = [part for part in unpinned if _method(part) in methods] or unpinned
    parts = [(part, defaults(_method(part))) for part in compared]
    tried = [_values_of(key, part, part_defaults) for part, part_defaults in parts if _has(key, part, part_defaults)]
    preset_values = sorted_values({value for values in tried for value in values})
    requested = sorted_values(
        {value for part in parts_of(after) if key not in part.pinned for value in part.values(key)}
    )
    own = [preset_values] if key in SELECTING_KEYS else tried
    whole = key not in APART and any(isinstance(part, Grid) and part.pruner for part in parts_of(after))
    known = bool(tried) and all(
        set(requested) == set(values) if whole else set(requested) <= set(values) for values in own
    )
    return None if known else Change(requested, preset_values)


def _option_changes(request: Request, before: Space, after: Space) -> dict[str, Change]:
    """Return the changed options of a search on which its proposals depend, which the number of trials is not, and the
    pruner of grids."""
    of_grids = [{part.pruner for part in parts_of(space) if isinstance(part, Grid)} for space in (before, after)]
    if request.pruner and not of_grids[1] <= of_grids[0]:
        return {"pruner": Change((request.pruner,), ())}
    if not (_searches(before) and _searches(after)):
        return {}
    old, new, changed = _searches(before)[0], _searches(after)[0], dict[str, Change]()
    for name, field in (("wave", "wave"), ("sampler", "sampler"), ("search-seed", "seed")):
        old_value, new_value = getattr(old, field), getattr(new, field)
        if old_value != new_value:
            changed[name] = Change((new_value,), (old_value,))
    of_old, of_new = (
        {key: values for search in _searches(space) for key, values in search.replicates.items()}
        for space in (before, after)
    )
    for key, values in of_new.items():
        if values != of_old.get(key):
            changed[f"{key}{OF_REPLICATES}"] = Change(values, of_old.get(key, ()))
    if old.pruner != new.pruner:
        changed["pruner"] = Change((request.pruner,), ())
    if request.warm_start:
        changed["warm-start"] = Change((str(request.warm_start),), ())
    return changed


def _searches(space: Space) -> list[Search]:
    return [part for part in parts_of(space) if isinstance(part, Search)]


def _method(part: Part) -> str:
    return str(part.values("method")[0])


def _has(key: str, part: Part, defaults: Mapping[str, Value]) -> bool:
    return key in defaults or bool(part.values(key)) or key in part.searched


def sorted_values(values: set[Value]) -> tuple[Value, ...]:
    """Return None first, then numbers by size, then texts in alphabetical order."""
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value is not None, value)))


Expected = Mapping[str, Mapping[str, Collection[Value]]]
"""Method -> key -> the values that trials of the request have. A trial that lacks a key has None."""
MAX_KEYS, MAX_VALUES, MAX_TEXT = 6, 3, 100
"""Most keys, most values of a key, and most characters of a value that a note has."""


def _expected_values(configs: Iterable[Mapping[str, Value]]) -> Expected:
    """Return the values of these trials by method and key."""
    by_method: dict[str, list[Mapping[str, Value]]] = {}
    for config in configs:
        by_method.setdefault(str(config["method"]), []).append(config)
    return {
        method: {
            key: {config.get(key) for config in own} for key in dict.fromkeys(key for config in own for key in config)
        }
        for method, own in by_method.items()
    }


Differences = Mapping[str, tuple[Any, Collection[Any]]]
"""Key -> what an earlier definition has for it, and what the present one has."""
OF_GRID, OF_SEARCH = "a grid", "a search"


def note_on_earlier_rows(
    place: str,
    rows: Iterable[Mapping[str, Any]],
    request: str,
    changed: Changes,
    configs: Iterable[Mapping[str, Value]],
    defaults: Defaults,
    study_differences: Callable[[Mapping[str, Any]], Differences] | None,
) -> str | None:
    """Return one line about the rows of an earlier definition: how many, and in which keys they differ; None without.

    `rows` have the request's preset and one of its trials' changes, but do not belong to the request (see
    `StoreReader.unlisted`), in the store at `place`. Those of grids count if they differ from the request's trials of
    grids, with these `configs`, in no key that the request itself changes. Rows without a preset are meant if they
    differ in nothing but keys that they lack, as those of versions in which trials had fewer keys, and so other ids.

    `study_differences` says in what the study of a row differs from the studies of the request, which is None if it has
    none.
    """
    differences, expected, numbers = list[Differences](), _expected_values(configs), dict[str, set[int]]()
    for row in rows:
        own, unnamed = _differences(row, expected, defaults), row["preset"] is None
        if unnamed and (not own or any(row.get(key) is not None for key in own)):
            continue
        if row.get("study_id") is not None:
            of_study = study_differences(row) if study_differences else {"preset": (OF_SEARCH, (OF_GRID,))}
            differences.append(of_study)
            numbers.setdefault(str(row.get("study")), set()).add(int(row.get("number") or 0))
        elif not expected:
            differences.append({"preset": (OF_GRID, (OF_SEARCH,))})
        elif not own.keys() & changed.keys.keys() and (own or not changed.keys):
            differences.append(own)
    if not differences:
        return None
    several = len(differences) > 1
    which = "; ".join(f"study {name}: trials {_ranges(own)}" for name, own in list(numbers.items())[:MAX_VALUES])
    more = ";..." if len(numbers) > MAX_VALUES else ""
    return (
        f"{len(differences)} {'rows' if several else 'row'} of '{request}' in {place}{which and f' ({which}{more})'} "
        f"{'do' if several else 'does'} not count, because its definition has changed since: "
        f"{differences_text(differences)}"
    )


def _ranges(numbers: Collection[int]) -> str:
    """Return e.g. `0..7`, or `0..7,9` for whole numbers."""
    found = list[list[int]]()
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ",".join("..".join(map(str, own)) for own in found)


def _differences(row: Mapping[str, Any], expected: Expected, defaults: Defaults) -> Differences:
    """Return the keys in which a row has none of the expected values. Where they are none but for keys that one of them
    lacks, which has their defaults, it is these keys: the row's trial had others, and so another id."""
    method = str(row["method"])
    if method not in expected:
        return {"method": (method, tuple(expected))}
    now = expected[method]
    names = dict.fromkeys((*now, *(key for key, value in row.items() if value is not None and key != "preset")))
    keys = [key for key in names if row.get(key) not in now.get(key, (None,))]
    known = defaults(method)

    def of_default(key: str, value: Any) -> Any:
        return known.get(key) if value is None else value

    was = {key: of_default(key, row.get(key)) for key in keys}
    values = {key: {of_default(key, value) for value in now.get(key, (None,))} for key in keys}
    changed: Differences = {key: (was[key], values[key]) for key in keys if was[key] not in values[key]}
    return changed or {key: (row.get(key), now.get(key, ())) for key in keys}


def differences_text(differences: Sequence[Differences]) -> str:
    """Return e.g. `lr was 0.05, is 0.02; validation was none, is 0.2`, the key of most rows first."""
    counts = Counter(key for difference in differences for key in difference)
    parts = []
    for key, count in counts.most_common(MAX_KEYS):
        pairs = [difference[key] for difference in differences if key in difference]
        was, now = {old for old, _ in pairs}, {value for _, new in pairs for value in new}
        where = "" if count == len(differences) else f" ({count} rows)"
        parts.append(f"{key} was {_few_values(was)}, is {_few_values(now)}{where}")
    rest = [f"{len(counts) - MAX_KEYS} more keys"] if len(counts) > MAX_KEYS else []
    return "; ".join([*parts, *rest]) or "the values of its axes are combined otherwise"


def _few_values(values: Collection[Any]) -> str:
    texts = sorted(f"{format_value(value):.{MAX_TEXT}}" for value in values) or ["absent"]
    return ",".join(texts[:MAX_VALUES]) + (",..." if len(texts) > MAX_VALUES else "")
