"""The commands that train a best setting again: exactly its trials, or the first of them where no run has just these.

A command is made from the rows of the trials and from the definition that it will find. `sweeper run` is shown only if
that definition has, with the options of the command, these trials and no other.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from sweeper.definition import Grid, Metric, Sweep, Value, registry
from sweeper.definition.function_sweep import MODES, TIME, FunctionSweep
from sweeper.definition.ranges import as_typed
from sweeper.definition.space import PART_KEYS, Axes, Fixed, Part, Space, change_space, parts_of
from sweeper.definition.user_code import CODE_KEYS, own_code
from sweeper.errors import SpecError
from sweeper.planning.changes import DIGEST, OWN_IMAGES, SIZE_KEYS, Defaults, changed_keys, format_value, sorted_values
from sweeper.report.figures import Shown
from sweeper.report.formatting import CLASS
from sweeper.results.best import NO_CHOICE, NUMBER
from sweeper.storage.requests import DECIDED, StoredRequest
from sweeper.storage.rows import STUDY_COLUMNS, plain_value
from trainables.functions.command import PREFIXES
from trainables.validation import is_own

NO_TEXT_OF_AN_AXIS = re.compile(r"^$|^\s|\s$|[,(]|\.\.")
"""Texts that `--axis` does not read as one value."""
Values = tuple[Value, ...]
TextOf = Callable[[str, Value], str]
Config = Mapping[str, Value]


@dataclass(frozen=True)
class Commands:
    """The commands about one sweep in one store."""

    reference: str
    """The sweep as the user named it."""
    name: str
    """Its name in the store."""
    definition: Sweep | None
    """What `sweeper run` finds by the reference; None if it finds none, as by the name of a user's sweep."""
    store: str
    """Its address, without secrets."""
    data: str | None = None
    """Folder of the data sets; None is the default of every command."""
    defaults: Callable[[str, Collection[str]], Config] = lambda method, code: {}
    """Name of a method, and the code of the user's own that may be imported -> the defaults of the method's keys; none
    if they are not known."""

    def train_again(self, request: StoredRequest, trials: Sequence[str], shown: Shown) -> str | None:
        """Return the command that trains these trials of a request, the best first, and no other. Where no run has them
        alone, as the proposals of a search, it is `sweeper trial`, which trains the first. None if there is none.
        `shown` says which columns of the rows are hyperparameters, and how their values are written."""
        sweep, own = self.definition, request.rows[request.rows["trial_id"].isin(list(trials))]
        if sweep is None or request.preset not in sweep.presets or _is_copied(own):
            return None
        preset = ["--preset", request.preset]
        asked = self._narrowing(sweep.presets[request.preset], request, own, list(shown.hyperparameters))
        if asked and (narrowing := _typed(*asked, _typed_as(own, shown))) is not None:
            options = [*preset, *narrowing, *_reading(sweep, shown.preset.headline), *self._places(own), "--fresh"]
            return shlex.join(["sweeper", "run", self.reference, *options])
        first, text_of = own[own["trial_id"] == trials[0]].iloc[0], _typed_as(own, shown)
        changed = [key for key in changed_keys(request.changes) if key in own and key not in STUDY_COLUMNS]
        values = {key: plain_value(first[key]) for key in changed}  # without these the plan may be illegal
        known = {key: value for key, value in values.items() if value is not None}
        options = [word for key, value in known.items() for word in ("--set", f"{key}={text_of(key, value)}")]
        return shlex.join(["sweeper", "trial", self.reference, trials[0], *preset, *options, *self._places(own)])

    def export(self, request: StoredRequest, trial: str) -> str | None:
        """Return the command that writes the model of a trial to a file, and trains the trial again where none is kept.
        None for a trial that copied others of its population, which cannot be trained alone, and of a function, which
        alone knows what it keeps."""
        own = request.rows[request.rows["trial_id"] == trial]
        of_function = is_own(str(own.iloc[0].get("method"))) and ("dataset" not in own or own["dataset"].isna().all())
        if _is_copied(own) or of_function:
            return None
        has_name = registry.is_plain_name(self.reference)
        named = [str(plain_value(own.iloc[0][key])) for key in CODE_KEYS if key in own]
        unnamed = [name for name in named if is_own(name) and (has_name or name not in self._code)]
        code = [word for name in dict.fromkeys(unnamed) for word in ("--method", name)]
        reference = self.name if has_name else self.reference
        return shlex.join(["sweeper", "export", reference, "--trial", trial, *code, *self._places(own)])

    @property
    def _code(self) -> frozenset[str]:
        """The code of the user's own that the definition names, which a command may therefore import."""
        return own_code(self.definition) if self.definition else frozenset()

    def _places(self, own: pd.DataFrame) -> list[str]:
        """Return `--store`, and `--data`; where that is not known, as of images of the user's own, `FOLDER` stands for
        it."""
        needs_folder = self.data is None and DIGEST in own and bool(own[DIGEST].fillna("").any())
        data = "FOLDER" if needs_folder else self.data
        return ["--store", self.store, *([] if data is None else ["--data", data])]

    def _narrowing(
        self, space: Space, request: StoredRequest, own: pd.DataFrame, hyperparameters: Sequence[str]
    ) -> tuple[Fixed, Axes] | None:
        """Return what a run of the preset fixes and varies to train these trials alone; None if it cannot."""
        if "method" not in own or own["method"].nunique() != 1 or (NUMBER in own and own[NUMBER].notna().any()):
            return None
        trials = _Trials(own, lambda method: self.defaults(method, self._code))
        fixed, axes = dict[str, Value](), dict[str, Values]()

        def ask(key: str) -> None:
            values = trials.values(key)
            fixed.update({key: values[0]} if len(values) == 1 else {})
            axes.update({key: values} if len(values) > 1 else {})

        def changed() -> tuple[Part, ...]:
            return parts_of(change_space(space, fixed, axes, lambda method: {*fixed, *axes}))

        try:
            for key in PART_KEYS if isinstance(space, tuple) else ():
                known = [set(part.values(key)) for part in changed()]
                differ = key == "method" or any(values != known[0] for values in known)
                if differ and set().union(*known) != set(trials.values(key)):
                    ask(key)
            parts = changed()
            if not all(isinstance(part, Grid) for part in parts):
                return None  # a search of the same method
            for key in trials.telling(parts, request, hyperparameters):
                if key not in fixed and not all(trials.fit(part, key) for part in parts):
                    if None in trials.values(key) and not trials.can_lack(key, parts):
                        return None
                    ask(key)
            return (fixed, axes) if trials.are_those_of(changed()) else None
        except SpecError:  # values that no part has, as in a definition that has changed since
            return None


def _reading(sweep: Sweep, metric: Metric) -> list[str]:
    """Return the options that say how the reports of a function or a command are read: the metric that ranks trials,
    and where they come from."""
    if not isinstance(sweep, FunctionSweep):
        return []
    modes = [mode for mode, direction in MODES.items() if direction == metric.direction and metric != TIME]
    stdout = any(str(each).startswith(PREFIXES["stdout"]) for each in sweep.parts(sweep.PRESET)[0].values("method"))
    return [*(["--metric", metric.name, "--mode", *modes] if modes else []), *["--metrics-from", "stdout"] * stdout]


def _typed(fixed: Fixed, axes: Axes, text_of: TextOf) -> list[str] | None:
    """Return `--set` and `--axis` as they are typed; None if a value cannot be."""
    single = {key: text_of(key, value) for key, value in fixed.items()}
    several = {key: [text_of(key, value) for value in values] for key, values in axes.items()}
    if any(text != text.strip() for text in single.values()):
        return None
    if any(NO_TEXT_OF_AN_AXIS.search(text) for texts in several.values() for text in texts):
        return None
    options = [word for key, text in single.items() for word in ("--set", f"{key}={text}")]
    return options + [word for key, texts in several.items() for word in ("--axis", f"{key}={as_typed(texts)}")]


def _typed_as(own: pd.DataFrame, shown: Shown) -> TextOf:
    """Return how values are typed: a class of the user's own images by its name."""
    has_names = DIGEST in own and own[DIGEST].fillna("").all()
    return lambda key, value: shown.value_text(key, value) if has_names and key == CLASS else format_value(value)


class _Trials:
    """Trials of one method, by their rows. A value that is null in a row is the key's default, where that is known."""

    def __init__(self, rows: pd.DataFrame, defaults: Defaults) -> None:
        self._rows = {str(key): [plain_value(value) for value in rows[key]] for key in rows}
        self._defaults = defaults

    def default(self, key: str) -> Value:
        """Return the default of a key; None if the method lacks the key, or is not imported."""
        return self._known_defaults.get(key)

    def values(self, key: str) -> Values:
        """Return the distinct values of a key, sorted."""
        return sorted_values(set(self._column(key)))

    def telling(self, parts: Sequence[Part], request: StoredRequest, hyperparameters: Sequence[str]) -> list[str]:
        """Return the keys in which these trials may differ from those of the parts: the keys of the parts, and all that
        the request changes. Keys that follow from the images are left out."""
        mentioned = [key for part in parts for key in (*part.fixed, *part.axes)]
        own = [key for key in hyperparameters if set(self._rows.get(key, ())) - {None}]
        if request.listed and DECIDED not in request.changes.split(", "):  # its name has all its changes
            named = changed_keys(request.changes)
            own = [key for key in own if key in named]
        has_digest = any(self._rows.get(DIGEST, ()))
        of_images = (DIGEST, *(() if self.values("dataset") == (OWN_IMAGES,) else SIZE_KEYS)) if has_digest else ()
        return [key for key in dict.fromkeys((*mentioned, *own)) if key not in of_images]

    def fit(self, part: Part, key: str) -> bool:
        """Whether the trials of a part have the same values of a key as these."""
        return set(part.values(key) or (self.default(key),)) == set(self._column(key))

    def can_lack(self, key: str, parts: Sequence[Part]) -> bool:
        """Whether null is a value of the key, and not the sign of a default that is not known."""
        return any(None in part.values(key) for part in parts) or (
            key in self._known_defaults and self.default(key) is None
        )

    def are_those_of(self, parts: Sequence[Part]) -> bool:
        """Whether the parts have these trials and no other, by all keys of the parts."""
        keys = [key for key in dict.fromkeys(key for part in parts for key in (*part.fixed, *part.axes))]
        planned = {
            tuple(own[key] if key in own else self.default(key) for key in keys)
            for part in parts
            for own in part.combinations()
        }
        return planned == set(zip(*map(self._column, keys), strict=True))

    def _column(self, key: str) -> list[Value]:
        values = self._rows.get(key, [None] * len(self._rows["method"]))
        return [self.default(key) if value is None else value for value in values]

    @cached_property
    def _known_defaults(self) -> Config:
        """Looked up only when they are needed, because that imports PyTorch."""
        return self._defaults(str(self._rows["method"][0]))


def _is_copied(rows: pd.DataFrame) -> bool:
    """Whether some of these trials copied others of their population, so that none is trained again alone."""
    return any(key in rows and rows[key].notna().any() for key in NO_CHOICE)
